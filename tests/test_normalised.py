"""Pre- and post-normalised networks: chain against weights, and what they do not have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from tests.example_linear import Linear
from tests.laws import same_law

SOFTMAX = sa.ShapedAttention(0.6, identity=False, centring=False, scaled_temperature=False)
RELU = sa.ShapedMLP(0.6, 0.0, -(32**0.5))
V0 = sa.equicorrelated(3, 0.2, 1.5)
LAYERS = {
    "before": sa.Normalised(SOFTMAX),
    "after": sa.Normalised(SOFTMAX, "after"),
    "before, both": [sa.Normalised(SOFTMAX), sa.Normalised(RELU)],
    "after, both": [sa.Normalised(SOFTMAX, "after"), sa.Normalised(RELU, "after")],
    "before, heads": sa.Normalised(sa.ShapedAttention(0.6, 0.5, heads=4)),
    "after, heads": sa.Normalised(sa.ShapedAttention(0.6, 0.5, heads=4), "after"),
}


def network(layer, **options):
    options = {"width": 32, "depth": 16, "samples": 3000, "seed": 1} | options
    return sa.simulate_network(layer, V0, **options)


def chain(layer, **options):
    options = {"width": 32, "depth": 16, "samples": 20_000, "seed": 2} | options
    return sa.simulate_chain(layer, V0, **options)


def rounded(result):
    """To 9 digits: KS would compare the rounding errors of variances that are exactly 1."""
    return result.assign(V=result.V.round(9))


@pytest.mark.parametrize("name", LAYERS)
def test_the_chain_has_the_law_of_networks(name):
    """KS on every observable at level 10^-3 (Bonferroni); see `test_chain_law` for its power."""
    assert same_law(rounded(network(LAYERS[name])), rounded(chain(LAYERS[name])))


@pytest.mark.parametrize(
    ("layer", "wrong"),
    [
        (sa.Normalised(SOFTMAX), SOFTMAX),
        (sa.Normalised(SOFTMAX), sa.Normalised(SOFTMAX, "after")),
        (LAYERS["before, heads"], sa.Normalised(sa.ShapedAttention(0.6, 0.5, heads=1))),
    ],
)
def test_other_chains_are_rejected(layer, wrong):
    """Negative controls: no normalisation, the other place, one head.

    With 9,000 networks one head in the place of four is rejected at 10^-7.
    """
    assert not same_law(network(layer, samples=9000), chain(wrong))


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_norms_are_those_of_torch(norm, place):
    """Tokens have different means, and the identity replaces the weights."""
    tokens = torch.arange(24.0, dtype=torch.float64).reshape(3, 8).square() + 1.0
    block = sa.Normalised(Linear(0.6), place, norm)

    def expected(x):
        functional = torch.nn.functional
        return (
            functional.layer_norm(x, (8,), eps=0.0)
            if norm == "layer"
            else (functional.rms_norm(x, (8,), eps=0.0))
        )

    moved = block.forward(at_depth(block, 0.0), tokens, lambda x, columns: x)
    inside = expected(tokens) if place == "before" else tokens
    outside = 0.8 * tokens + 0.6 * inside / 8**0.5
    wanted = outside if place == "before" else expected(outside)
    torch.testing.assert_close(moved, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_after_means_unit_variance(norm):
    v = network(sa.Normalised(SOFTMAX, "after", norm), samples=5).V.values[-1]
    np.testing.assert_allclose(np.diagonal(v, axis1=1, axis2=2), 1.0, rtol=1e-12)


def test_layer_norm_is_near_rms_at_large_width():
    """Their covariances differ by the squared means of the tokens, of order 1/n."""
    rms, layer = (
        network(sa.Normalised(SOFTMAX, "before", norm), width=256, depth=4, samples=200).V.values
        for norm in ("rms", "layer")
    )
    assert 0 < np.abs(rms[-1] - layer[-1]).mean() < 0.05


def test_a_token_that_is_zero_stays_zero():
    v0 = np.diag([1.0, 0.0])
    for sampler in (sa.simulate_network, sa.simulate_chain):
        block = sa.Normalised(sa.ShapedAttention(0.5, centring=True), "after")
        v = sampler(block, v0, width=8, depth=3, samples=4).V.values
        assert not v[:, :, 1].any()
        np.testing.assert_allclose(v[1:, :, 0, 0], 1.0, rtol=1e-12)


def test_results_run_again():
    """A block inside a block is stored and comes back."""
    first = chain(LAYERS["after, both"], samples=20)
    assert sa.layer_of(first) == LAYERS["after, both"]
    np.testing.assert_array_equal(sa.rerun(first).V, first.V)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sa.Normalised(sa.Normalised(RELU)), "a block that is not normalised is needed"),
        (lambda: sa.Normalised(RELU, "between"), "place='between': 'before' or 'after' is needed"),
        (lambda: sa.Normalised(RELU, norm="batch"), "norm='batch': 'rms' or 'layer' is needed"),
        (lambda: chain(sa.Normalised(RELU, norm="layer")), "has no chain: LayerNorm depends on"),
        (lambda: sa.drift(sa.Normalised(SOFTMAX), V0), "has no limit: its inner block has none"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
