"""Variants of attention that models use: their chain has the law of networks; exact limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention import (
    ShapedAttention,
    diffusion,
    drift,
    equicorrelated,
    simulate_chain,
    simulate_network,
)
from shaped_attention.blocks.limits.prepared_rows import cosine_series
from tests.closed_forms import mean_cosine
from tests.laws import same_law

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


V1 = np.array([[1.6, 0.8, 0.2, -0.4], [0.8, 1.2, -0.3, 0.1], [0.2, -0.3, 1.0, 0.5],
               [-0.4, 0.1, 0.5, 1.4]])  # fmt: skip


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


@pytest.mark.parametrize("size", [4, 16])
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
    assert abs(cosines.mean() - 0.6) > 5.0 * error


def test_laws_of_explosion_and_variants():
    """The theorems are for V o T with uniform weights. Shared values make explosions rarer."""
    for options in ({"rope": [1.2]}, {"position_bias": sa.alibi(4, 0.5)}, {"qk_norm": True}):
        with pytest.raises(ValueError, match="without biases, rotations or QK-norm"):
            sa.explosion_law(ShapedAttention(0.8, 0.6, **options), V1)
    block = ShapedAttention(0.5, 0.6, heads=4, output_projection=True)
    few, many = (sa.explosion_law(replace(block, kv_heads=g), V1).probability()[1] for g in (1, 4))
    assert few < many
