"""Variants of attention that models use: their weights written out, their chain, their errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import ShapedAttention, equicorrelated, simulate_chain, simulate_network
from shaped_attention.blocks.parameters import at_depth
from tests.laws import assert_executors_agree, same_law
from tests.refusals import refused

TAU = 0.15
SOFTMAX = {"identity": False, "centring": False, "scaled_temperature": False}
BIAS = np.array([[0.5, -1.0, 2.0, 0.0], [3.0, 0.0, 1.0, -1.0], [0.0, 2.0, 0.0, 1.0],
                 [1.0, 0.0, -2.0, 0.5]])  # fmt: skip


def attention(**options):
    """Attention with W_O at a temperature at which its logits matter."""
    return ShapedAttention(0.8, TAU, output_projection=True, **options)


MEMBERS = {
    "groups": attention(heads=4, kv_heads=2),
    "one group": attention(heads=4, kv_heads=1, query_bias=0.3, key_bias=0.5),
    "head size": attention(heads=3, head_size=2),
    "rope": attention(heads=2, rope=[1.2], mask="causal"),
    "rope, base": attention(heads=2, rope=sa.Rope(10.0, 0.5), head_size=4, kv_heads=1),
    "rope, long": attention(
        heads=2, mask="causal",
        rope=sa.Rope(
            angles=[0.3], attention_factor=2.0, original_max_position_embeddings=3,
            long_angles=[1.5],
        ),
    ),
    "rope, biases": attention(rope=[0.4, 1.3], query_bias=0.5, key_bias=2.0),
    "bias": attention(heads=2, position_bias=BIAS),
    "bias of each head": attention(heads=2, position_bias=sa.alibi(4, [0.0, 4.0]), mask="causal"),
    "window": attention(heads=2, mask=sa.sliding_window(4, 2)),
    "normalised heads": attention(heads=2, qk_norm=True, head_size=2),
    "normalised over heads": attention(heads=4, qk_norm="all", kv_heads=2, head_size=2),
    "normalised with eps": attention(heads=2, qk_norm=sa.QKNorm(eps=0.5), rope=[0.7]),
    "soft cap": attention(heads=2, softcap=0.7, position_bias=BIAS),
    "as in models": ShapedAttention(
        0.8, 0.4, heads=4, kv_heads=2, head_size=2, mask="causal", rope=100.0,
        qk_norm=sa.QKNorm(eps=1e-6), softcap=2.0, output_projection=True, **SOFTMAX,
    ),
}  # fmt: skip
WRONG = {
    "groups": {"kv_heads": None},
    "one group": {"kv_heads": 2},
    "head size": {"head_size": 1},
    "rope": {"rope": None},
    "rope, base": {"rope": [0.3]},
    "rope, long": {"rope": sa.Rope(angles=[1.5])},
    "rope, biases": {"key_bias": 0.0},
    "bias": {"position_bias": None},
    "bias of each head": {"position_bias": None},
    "window": {"mask": "causal"},
    "normalised heads": {"qk_norm": False},
    "normalised over heads": {"qk_norm": "head"},
    "normalised with eps": {"qk_norm": True},
    "soft cap": {"softcap": None},
    "as in models": {"rope": None, "qk_norm": False},
}
"""What the wrong twin of each member leaves out."""


class Weights:
    """Gaussian matrices, one for each product with tokens, kept in their order."""

    def __init__(self):
        self.generator, self.kept = np.random.default_rng(3), []

    def __call__(self, x, columns, name=None, head=0):
        self.kept.append(self.generator.standard_normal((x.shape[-1], columns)))
        return x @ torch.from_numpy(self.kept[-1])


def rotated(x, block, size):
    """Multiply each pair of columns by a factor and e^(i a theta), as complex numbers."""
    turning = round(block.rope.share * size)
    longest = block.rope.original_max_position_embeddings or len(x)
    angles = block.rope.turning if len(x) <= longest else block.rope.long_angles
    if isinstance(angles, float):
        angles = [angles ** (-2.0 * j / turning) for j in range(turning // 2)]
    angles = np.repeat(angles, turning // 2 // len(angles))
    z = x[:, : turning // 2] + 1j * x[:, turning // 2 : turning]
    z = block.rope.attention_factor * z * np.exp(1j * np.outer(np.arange(len(x)), angles))
    return np.concatenate([z.real, z.imag, x[:, turning:]], axis=1)


def written_out(block, x, weights):
    """lambda x + gamma [A_h x W_V] W_O, entry by entry, from the definition of each variant."""
    (m, n), heads = x.shape, block.heads
    size = block.head_size or n // heads
    share = heads // (block.kv_heads or heads)
    weights = iter(weights)
    sides, values = ([], []), []
    for h in range(heads):
        for side, variance in zip(sides, (block.query_bias, block.key_bias), strict=True):
            if side is sides[1] and h % share:
                continue
            rows = x @ next(weights) / math.sqrt(n)
            side.append(rows + math.sqrt(variance) * next(weights) if variance else rows)
        if h % share == 0:
            values.append(x @ next(weights) / math.sqrt(n))
    for side in sides:
        squares = [(rows**2).mean(1, keepdims=True) for rows in side]
        if block.qk_norm and block.qk_norm.over == "all":
            squares = [np.mean(squares, axis=0)] * len(side)
        for h, rows in enumerate(side):
            if block.qk_norm:
                side[h] = rows / np.sqrt(squares[h] + block.qk_norm.eps)
            if block.rope is not None:
                side[h] = rotated(side[h], block, size)
    scale = block.tau0 * math.sqrt((n if block.scaled_temperature else 1) * size)
    mask = np.ones((m, m), dtype=bool)
    if block.mask is not None:
        mask = np.tri(m, dtype=bool) if block.mask == "causal" else np.array(block.mask)
    branch = []
    for h in range(heads):
        logits = sides[0][h] @ sides[1][h // share].T / scale
        if block.softcap:
            logits = block.softcap * np.tanh(logits / block.softcap)
        bias = np.zeros((m, m)) if block.position_bias is None else np.array(block.position_bias)
        bias = bias[h] if bias.ndim == 3 else bias
        seen, w = np.exp(logits + bias) * mask, np.exp(bias) * mask
        matrix = seen / seen.sum(1, keepdims=True)
        matrix = matrix - w / w.sum(1, keepdims=True) if block.centring else matrix
        branch.append((matrix + np.eye(m) if block.identity else matrix) @ values[h // share])
    mixed = np.concatenate(branch, axis=1) @ next(weights) / math.sqrt(heads * size)
    return math.sqrt(1.0 - block.gamma**2) * x + block.gamma * mixed


@pytest.mark.parametrize("name", MEMBERS)
def test_the_weights_are_those_of_the_formula(name):
    """To 1e-13; the wrong twin is further away than 1e-3."""
    block, weights = MEMBERS[name], Weights()
    x = np.random.default_rng(4).standard_normal((4, 12 if "size" in name else 16))
    found = block.forward(at_depth(block, 0.0), torch.from_numpy(x), weights).numpy()
    np.testing.assert_allclose(found, written_out(block, x, weights.kept), atol=1e-13)
    if name not in ("groups", "one group", "head size", "rope, biases"):
        wrong = written_out(replace(block, **WRONG[name]), x, weights.kept)
        assert np.abs(found - wrong).max() > 1e-3


V0 = equicorrelated(4, 0.2)
SIZES = {"n = 16": (16, 8), "n = m": (4, 4)}
"""Width and depth."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MEMBERS)
def test_the_chain_has_the_law_of_networks(name, size):
    """KS of all observables, 4,000 networks: half of the time it sees 0.08 deviations.

    Negative control: the same test rejects the wrong twin at the same sizes.
    """
    width, depth = SIZES[size]
    network = simulate_network(MEMBERS[name], V0, width=width, depth=depth, samples=4000, seed=1)
    right, wrong = (
        simulate_chain(block, V0, width=width, depth=depth, samples=20_000, seed=2)
        for block in (MEMBERS[name], replace(MEMBERS[name], **WRONG[name]))
    )
    assert same_law(network, right)
    assert not same_law(network, wrong)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MEMBERS)
def test_executors_agree(name, size, monkeypatch):
    width, depth = SIZES[size]
    run = {"width": width, "depth": depth, "samples": 20, "seed": 2}
    assert_executors_agree(lambda: simulate_chain(MEMBERS[name], V0, **run).V.values, monkeypatch)


REFUSED = {
    "kv_heads must be a divisor of heads=4; got 3": {"heads": 4, "kv_heads": 3},
    "kv_heads must be None without output_projection=True; got 1": {
        "kv_heads": 1, "output_projection": False
    },
    "head_size must be None without output_projection=True; got 4": {
        "head_size": 4, "output_projection": False
    },
    "head_size must be an integer >= 1; got 0": {"head_size": 0},
    r"value_ratio must be None without head_size; got 2\.0": {"value_ratio": 2.0},
    r"value_ratio must be positive and finite; got -1\.0": {"value_ratio": -1.0, "head_size": 4},
    "rope must be None, a positive base, or a list of finite angles; got 0": {"rope": 0},
    "rope must be None, a positive base, .*; got True": {"rope": True},
    r"position_bias must have shape \(m, m\).*; got \(2, 3\)": {"position_bias": np.zeros((2, 3))},
    r"position_bias must have shape .* \(2, m, m\) for 2 heads; got \(3, 4, 4\)": {
        "heads": 2, "position_bias": np.zeros((3, 4, 4))
    },
    "position_bias must have finite entries": {"position_bias": np.full((4, 4), -np.inf)},
    "qk_norm must be None, True, 'head', 'all' or a QKNorm; got 'heads'": {"qk_norm": "heads"},
    r"qk_norm eps must be finite and >= 0; got -1\.0": {"qk_norm": {"eps": -1.0}},
    r"softcap must be positive and finite; got 0\.0": {"softcap": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_fields_that_contradict_are_refused(message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ShapedAttention(0.5, **{"output_projection": True} | REFUSED[message])


@pytest.mark.parametrize(
    ("layer", "width", "message"),
    [
        (attention(position_bias=np.zeros((3, 3))), 16, r"position_bias must have shape \(4, 4\)"),
        (attention(heads=3), 16, "width must be a multiple of heads=3; got 16"),
        (ShapedAttention(0.5, heads=4), 8, "width must be at least 16 for v0 of rank 4; got 8"),
        (
            [ShapedAttention(0.5, heads=h) for h in (2, 3)],
            12,
            "width must be at least 24 for v0 of rank 4; got 12",
        ),
        (attention(rope=10.0, heads=2), 6, r"rope share must be .* of the 3 columns .*; got 1\.0"),
        (attention(rope=sa.Rope(10.0, 0.3)), 16, r"rope share must .* of the 16 columns .* 0\.3"),
        (
            attention(rope=[1.0, 2.0, 3.0]),
            16,
            "rope has 3 angles; their number must divide the 8",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(layer, width, message):
    for run in (simulate_chain, simulate_network):
        with pytest.raises(ValueError, match=message):
            run(layer, V0, width=width, depth=1, samples=1)


def test_a_bias_that_is_the_same_for_all_heads_is_one_bias():
    assert attention(heads=2, position_bias=[BIAS, BIAS]) == attention(heads=2, position_bias=BIAS)


def test_variants_are_shown_where_they_are_used():
    assert repr(ShapedAttention(0.5)).endswith("skip=None)")
    assert repr(ShapedAttention(0.5, rope=[1])).endswith("skip=None, rope=(1.0,))")


def test_short_forms_are_values():
    """A value, its short forms and what a result stores make equal blocks; others differ."""
    short = attention(heads=2, rope=10.0, head_size=4, qk_norm=True)
    assert short == attention(heads=2, rope=sa.Rope(10.0), head_size=4, qk_norm="head")
    assert short == replace(short, qk_norm={"over": "head"}, rope={"base": 10.0})
    assert short != replace(short, rope=sa.Rope(10.0, 0.5))
    scaled = attention(rope=sa.Rope(100.0, factor=2.0, attention_factor=1.5), key_size=8)
    assert repr(scaled).endswith("rope=Rope(base=100.0, factor=2.0, attention_factor=1.5))")
    np.testing.assert_array_equal(scaled.rope.pairs(8), sa.Rope.angles_of(100.0, 8) / 2.0)
    for block in (short, scaled, replace(short, qk_norm=sa.QKNorm(eps=0.1))):
        run = simulate_chain(block, V0, width=16, depth=1, samples=2, progress=False)
        assert sa.layer_of(run) == [block]


test_rotations_that_are_none_are_refused = refused(
    ({}, "Rope needs either a base or angles, not both"),
    ({"base": 10.0, "angles": [1.0]}, "Rope needs either a base or angles, not both"),
    ({"angles": [1.0], "factor": 2.0}, "rope factor must be 1 with angles; got 2.0"),
    ({"base": 10.0, "share": 2.0}, r"rope share must be in \[0, 1\]; got 2.0"),
    ({"base": 10.0, "attention_factor": 0.0}, "rope attention_factor must be positive"),
    (
        {"base": 10.0, "long_angles": 100.0},
        "rope original_max_position_embeddings must be an integer",
    ),
    (
        {"base": 10.0, "original_max_position_embeddings": 4, "long_angles": -1.0},
        "rope long_angles must be None, a positive base, .* got -1.0",
    ),
    by=lambda arguments: sa.Rope(**arguments),
)


def test_a_module_of_a_variant_is_refused():
    for name in MEMBERS:
        if name not in ("window",):
            with pytest.raises(ValueError, match=r"has [a-z_]+=.* and cannot be trained"):
                sa.ShapedTransformer(MEMBERS[name], width=12, depth=1)


test_angles_that_are_not_known_are_refused = refused(
    ({"size": 3}, "size must be even; got 3"),
    ({"base": -1.0}, "base must be positive and finite; got -1.0"),
    ({"scaling": "yarn"}, "scaling must be one of linear, llama3; got 'yarn'"),
    ({"factor": 2.0}, "factor must be None if scaling=None; got 2.0"),
    ({"scaling": "linear"}, "factor must be positive and finite; got None"),
    ({"scaling": "llama3", "factor": 8.0}, "low_freq_factor must be positive"),
    (
        {"scaling": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
         "original_max_position_embeddings": 100},
        "high_freq_factor must be above low_freq_factor=4.0; got 1.0",
    ),
    by=lambda options: sa.Rope.angles_of(**{"base": 10.0, "size": 4} | options),
)  # fmt: skip


def test_windows_and_biases_of_distance():
    one_sided, two_sided = sa.sliding_window(5, 2), sa.sliding_window(5, 2, causal=False)
    for a in range(5):
        for b in range(5):
            assert one_sided[a, b] == (0 <= a - b < 2)
            assert two_sided[a, b] == (abs(a - b) < 2)
    np.testing.assert_array_equal(sa.alibi(3, 0.5)[0], [0.0, -0.5, -1.0])
    assert sa.alibi(3, [0.5, 0.25]).shape == (2, 3, 3)
    with pytest.raises(ValueError, match="slope must be a finite number"):
        sa.alibi(3, math.nan)
    with pytest.raises(ValueError, match="window must be an integer >= 1; got 0"):
        sa.sliding_window(3, 0)
