"""Variants of attention that models use: their weights written out, chain, limit, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import (
    ShapedAttention,
    diffusion,
    drift,
    equicorrelated,
    integrate_sde,
    simulate_chain,
    simulate_network,
)
from shaped_attention.blocks.limits.prepared_rows import cosine_series
from shaped_attention.blocks.parameters import at_depth
from tests.closed_forms import mean_cosine
from tests.laws import assert_executors_agree, same_law

TAU = 0.15
SOFTMAX = {"identity": False, "centring": False, "scaled_temperature": False}
BIAS = np.array([[0.5, -1.0, 2.0, 0.0], [3.0, 0.0, 1.0, -1.0], [0.0, 2.0, 0.0, 1.0],
                 [1.0, 0.0, -2.0, 0.5]])  # fmt: skip


def attention(**options):
    """Attention with W_O at a temperature at which its logits matter."""
    return ShapedAttention(0.8, TAU, output_projection=True, **options)


MEMBERS = {
    "groups": (attention(heads=4, kv_heads=2), {"kv_heads": None}),
    "one group": (
        attention(heads=4, kv_heads=1, query_bias=0.3, key_bias=0.5), {"kv_heads": 2}
    ),
    "head size": (attention(heads=3, head_size=2), {"head_size": 1}),
    "rope": (attention(heads=2, rope=[1.2], mask="causal"), {"rope": None}),
    "rope, base": (
        attention(heads=2, rope=sa.Rope(10.0, 0.5), head_size=4, kv_heads=1), {"rope": [0.3]}
    ),
    "rope, long": (
        attention(heads=2, mask="causal", rope=sa.Rope(
            angles=[0.3], attention_factor=2.0, original_max_position_embeddings=3,
            long_angles=[1.5],
        )),
        {"rope": sa.Rope(angles=[1.5])},
    ),
    "rope, biases": (attention(rope=[0.4, 1.3], query_bias=0.5, key_bias=2.0), {"key_bias": 0.0}),
    "bias": (attention(heads=2, position_bias=BIAS), {"position_bias": None}),
    "bias of each head": (
        attention(heads=2, position_bias=sa.alibi(4, [0.0, 4.0]), mask="causal"),
        {"position_bias": None},
    ),
    "window": (attention(heads=2, mask=sa.sliding_window(4, 2)), {"mask": "causal"}),
    "normalised heads": (attention(heads=2, qk_norm=True, head_size=2), {"qk_norm": False}),
    "normalised over heads": (
        attention(heads=4, qk_norm="all", kv_heads=2, head_size=2), {"qk_norm": "head"}
    ),
    "normalised with eps": (
        attention(heads=2, qk_norm=sa.QKNorm(eps=0.5), rope=[0.7]), {"qk_norm": True}
    ),
    "soft cap": (attention(heads=2, softcap=0.7, position_bias=BIAS), {"softcap": None}),
    "as in models": (
        ShapedAttention(
            0.8, 0.4, heads=4, kv_heads=2, head_size=2, mask="causal", rope=100.0,
            qk_norm=sa.QKNorm(eps=1e-6), softcap=2.0, output_projection=True, **SOFTMAX,
        ),
        {"rope": None, "qk_norm": False},
    ),
}  # fmt: skip
"""Blocks, and what their wrong twin leaves out."""


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
    (block, change), weights = MEMBERS[name], Weights()
    x = np.random.default_rng(4).standard_normal((4, 12 if "size" in name else 16))
    found = block.forward(at_depth(block, 0.0), torch.from_numpy(x), weights).numpy()
    np.testing.assert_allclose(found, written_out(block, x, weights.kept), atol=1e-13)
    if name not in ("groups", "one group", "head size", "rope, biases"):
        wrong = written_out(replace(block, **change), x, weights.kept)
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
    (block, change), (width, depth) = MEMBERS[name], SIZES[size]
    network = simulate_network(block, V0, width=width, depth=depth, samples=4000, seed=1)
    right, wrong = (
        simulate_chain(x, V0, width=width, depth=depth, samples=20_000, seed=2)
        for x in (block, replace(block, **change))
    )
    assert same_law(network, right)
    assert not same_law(network, wrong)


@pytest.mark.parametrize("name", MEMBERS)
def test_executors_agree(name, monkeypatch):
    run = {"width": 16, "depth": 8, "samples": 20, "seed": 2}
    assert_executors_agree(
        lambda: simulate_chain(MEMBERS[name][0], V0, **run).V.values, monkeypatch
    )


LAWS = {
    "bias": (ShapedAttention(0.5, 0.8, position_bias=BIAS), {"position_bias": None}),
    "rope": (ShapedAttention(0.5, 0.5, rope=[1.2], mask="causal", key_size=16), {"rope": None}),
    "groups": (
        ShapedAttention(0.8, 2.0, heads=4, kv_heads=1, output_projection=True),
        {"kv_heads": None},
    ),
    "normalised": (ShapedAttention(0.5, 0.25, qk_norm=True), {"qk_norm": False}),
}
V1 = np.array([[1.6, 0.8, 0.2, -0.4], [0.8, 1.2, -0.3, 0.1], [0.2, -0.3, 1.0, 0.5],
               [-0.4, 0.1, 0.5, 1.4]])  # fmt: skip


@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("name", LAWS)
def test_the_sde_has_the_law_of_the_chain(name):
    """KS of all observables at t = 0.5, 4,000 chains at n = 512; the wrong twin's is rejected.

    At most 4 % of the paths reach the radius, where the chain overshoots.
    """
    block, other = LAWS[name]
    chain = simulate_chain(block, V1, width=512, depth=256, samples=4000, seed=1, radius=100.0)
    limit = {"horizon": 0.5, "step": 0.01, "samples": 20_000, "seed": 2, "radius": 100.0}
    assert same_law(chain, integrate_sde(block, V1, **limit))
    assert not same_law(chain, integrate_sde(replace(block, **other), V1, **limit))


def test_options_without_effect_give_the_limit_without_them():
    """A constant bias, angles of 0, a share of 0, and any bound on the logits change nothing."""
    plain = ShapedAttention(0.8, 0.6, mask="causal")
    for options in (
        {"position_bias": np.full((4, 4), 3.0)},
        {"rope": [0.0]},
        {"rope": sa.Rope(angles=[1.0], share=0.0)},
        {"softcap": 0.1},
        {"kv_heads": 1, "output_projection": True},
    ):
        same = replace(plain, **options)
        known = replace(plain, output_projection=same.output_projection)
        for function in (drift, diffusion):
            np.testing.assert_allclose(function(same, V1), function(known, V1), atol=1e-12)


@pytest.mark.parametrize("size", [4, 16, 300])
def test_the_mean_cosine_of_gaussian_rows(size):
    """The series within 5 standard errors of simulated rows, and to 4e-5 of the integral."""
    x = np.linspace(-0.9, 0.9, 19)
    found = sum(c * x ** (2 * j + 1) for j, c in enumerate(cosine_series(size)))
    np.testing.assert_allclose(found, mean_cosine(x, size), atol=4e-5)
    first, other = np.random.default_rng(0).normal(size=(2, 20_000, size))
    second = 0.6 * first + 0.8 * other
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(1) / lengths
    error = cosines.std() / math.sqrt(len(cosines))
    assert abs(cosines.mean() - found[15]) < 5.0 * error
    assert size > 100 or abs(cosines.mean() - 0.6) > 5.0 * error


def test_laws_of_explosion_and_variants():
    """The theorems are for V o T with uniform weights. Shared values make explosions rarer."""
    for options in ({"rope": [1.2]}, {"position_bias": sa.alibi(4, 0.5)}, {"qk_norm": True}):
        with pytest.raises(ValueError, match="without biases, rotations or QK-norm"):
            sa.explosion_law(ShapedAttention(0.8, 0.6, **options), V1)
    block = ShapedAttention(0.5, 0.6, heads=4, output_projection=True)
    few, many = (sa.explosion_law(replace(block, kv_heads=g), V1).probability()[1] for g in (1, 4))
    assert few < many
