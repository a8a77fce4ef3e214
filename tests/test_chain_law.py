"""The chain has exactly the law of networks with real weights, and wrong chains do not."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention import (
    Parallel,
    Pattern,
    Schedule,
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    simulate_chain,
    simulate_network,
)
from tests.laws import same_law

ATTENTION, MLP = ShapedAttention(0.6, 0.5), ShapedMLP(0.7, 0.5, -3.0)
RISING = Schedule([(0.0, 0.1), (1.0, 0.9)])
MLP_OF_HALF = ShapedMLP(0.6, 0.0, -3.0)
LAYERS = {"attention": ATTENTION, "mlp": MLP, "both": [ATTENTION, MLP]}


@pytest.fixture(scope="module")
def network():
    """Networks, simulated once for each case."""
    cache = {}

    def get(name, layer, tokens, width, samples):
        key = name, tokens, width
        if key not in cache:
            v0 = equicorrelated(tokens, 0.2, 1.5)
            depth = 8 if width == 16 else 16
            cache[key] = simulate_network(
                layer, v0, width=width, depth=depth, samples=samples, seed=1
            )
        return cache[key]

    return get


def chain(layer, tokens, width, samples, seed=2):
    v0 = equicorrelated(tokens, 0.2, 1.5)
    depth = 8 if width == 16 else 16
    return simulate_chain(layer, v0, width=width, depth=depth, samples=samples, seed=seed)


@pytest.mark.parametrize("tokens", [2, 3, 5])
@pytest.mark.parametrize("name", LAYERS)
def test_chain_has_the_law_of_networks(name, tokens, network):
    """KS on every observable at level 10^-3 (Bonferroni), n = 16, 3,000 networks.

    At this size KS sees a shift of 0.11 standard deviations of an observable half of the time.
    """
    reference = network(name, LAYERS[name], tokens, 16, 3000)
    assert same_law(reference, chain(LAYERS[name], tokens, 16, 15_000))


MEMBERS = {
    "few keys": (ShapedAttention(0.6, 0.5, key_size=2), 3, 16),
    "projection": (ShapedAttention(0.6, 0.5, output_projection=True), 3, 16),
    "causal": (ShapedAttention(0.6, 0.5, mask="causal"), 3, 16),
    "two heads": (ShapedAttention(0.6, 0.5, heads=2), 3, 16),
    "four heads, MLP": ([ShapedAttention(0.6, 0.5, heads=4), MLP], 3, 16),
    "two and four heads": ([ShapedAttention(0.6, 0.5, heads=h) for h in (2, 4)], 2, 16),
    "heads of width m": (ShapedAttention(0.6, 0.5, heads=4, key_size=3), 4, 16),
    "heads, projection": (ShapedAttention(0.6, 0.5, heads=4, output_projection=True), 3, 16),
    "heads of width 1, projection": (
        ShapedAttention(0.6, 0.5, heads=8, output_projection=True),
        3,
        8,
    ),
    "biases": (ShapedAttention(0.6, 0.5, query_bias=1.5, key_bias=0.5), 3, 16),
    "biases, causal, heads": (
        ShapedAttention(0.6, 0.5, heads=2, mask="causal", query_bias=1.5),
        3,
        16,
    ),
    "softmax attention": (
        ShapedAttention(
            0.4, identity=False, centring=False, scaled_temperature=False, query_bias=0.5
        ),
        3,
        16,
    ),
    "without identity": (ShapedAttention(0.4, 0.5, identity=False), 3, 16),
    "without centring": (ShapedAttention(0.4, 0.5, centring=False), 3, 16),
    "unscaled temperature": (ShapedAttention(0.4, 2.0, scaled_temperature=False), 3, 16),
    "pattern": (Pattern([ATTENTION, MLP]), 3, 16),
    "schedule": (ShapedAttention(RISING, 0.5), 3, 8),
    "parallel": (Parallel(ShapedAttention(0.7, 0.4, heads=2), MLP_OF_HALF), 3, 8),
    "width m": ([ATTENTION, MLP], 4, 4),
    "width m + 1, projection": (ShapedAttention(0.6, 0.5, output_projection=True), 4, 5),
    "width m + 2": ([ATTENTION, MLP], 4, 6),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_and_edges_of_the_family(name, network):
    layer, tokens, width = MEMBERS[name]
    reference = network(name, layer, tokens, width, 3000)
    assert same_law(reference, chain(layer, tokens, width, 15_000))


@pytest.mark.parametrize(
    ("wrong", "layer", "tokens", "width"),
    [
        (ShapedAttention(0.6, 0.5, centring=False), ATTENTION, 5, 16),
        (ShapedAttention(0.9, 0.3), ShapedAttention(0.9, 0.3, key_size=2), 5, 16),
        (ShapedMLP(0.7, 0.5, -1.5), MLP, 5, 16),
        (ATTENTION, ShapedAttention(0.6, 0.5, heads=4), 4, 16),
        (ATTENTION, Pattern([ATTENTION, MLP]), 3, 16),
        (ShapedAttention(0.5, 0.5), ShapedAttention(RISING, 0.5), 3, 8),
        ([ShapedAttention(0.7, 0.4, heads=2), MLP_OF_HALF], MEMBERS["parallel"][0], 3, 8),
        (ATTENTION, ShapedAttention(0.6, 0.5, query_bias=1.5), 3, 16),
    ],
)
def test_wrong_chains_are_rejected(wrong, layer, tokens, width, network):
    """Negative controls: the same test, at the same sizes, rejects each of these."""
    name = repr(layer)
    reference = network(name, layer, tokens, width, 3000)
    assert not same_law(reference, chain(wrong, tokens, width, 15_000))


@pytest.mark.parametrize("block", [sa.ShapedAttention, sa.ShapedMLP])
def test_a_branch_may_weigh_more_than_one_with_a_skip_weight(block):
    """One token of a linear branch: E V' = (lambda^2 + gamma^2) V, over 20,000 chains."""
    options = {"c_minus": 0.0} if block is sa.ShapedMLP else {}
    result = sa.simulate_chain(
        block(2.0, skip=1.0, **options), np.eye(1), width=64, depth=1, samples=20_000, seed=3
    )
    v = result.V[-1].values[:, 0, 0]
    assert abs(v.mean() - 5.0) < 4.0 * v.std() / 20_000**0.5
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]; got 2\.0"):
        block(2.0)
    with pytest.raises(ValueError, match=r"gamma must be finite and >= 0; got -1\.0"):
        block(-1.0, skip=1.0)
