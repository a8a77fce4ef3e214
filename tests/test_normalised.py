"""Networks with norms: their chain has their law; exact identities, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.rows.step import State
from tests.example_linear import Linear
from tests.laws import same_law
from tests.refusals import refused

SOFTMAX = sa.ShapedAttention(0.6, identity=False, centring=False, scaled_temperature=False)
RELU = sa.ShapedMLP(0.6, 0.0, -(32**0.5))
HEADS = sa.ShapedAttention(0.6, 0.5, heads=4)
PLACES = ("before", "after", "sandwich", "branch")


def rms(block, place="before", **options):
    return sa.Normalised(block, place, **options)


def layer(block, place="before", **options):
    return sa.Normalised(block, place, "layer", **options)


GPT2 = [
    layer(sa.ShapedAttention(12**-0.5, skip=1.0, identity=False, centring=False)),
    layer(sa.ShapedMLP(12**-0.5, 0.0, -4.0, skip=1.0)),
]
LAYERS = {
    "RMS before, both": ([rms(SOFTMAX), rms(RELU)], 3, 16),
    "RMS after, both": ([rms(SOFTMAX, "after"), rms(RELU, "after")], 3, 16),
    "RMS sandwich, heads": (rms(HEADS, "sandwich"), 2, 8),
    **{
        f"RMS {place}, n = m": (rms(SOFTMAX, place, eps=0.3, gain=1.3), 4, 4)
        for place in PLACES
    },
    "before": (layer(SOFTMAX), 3, 16),
    "before, n = m": (layer(SOFTMAX), 4, 4),
    "after, n = m + 2": (layer(SOFTMAX, "after"), 4, 6),
    "sandwich, n = m": (layer(SOFTMAX, "sandwich"), 4, 4),
    "sandwich, n = m + 2": (layer(SOFTMAX, "sandwich"), 4, 6),
    "branch, n = m": (layer(SOFTMAX, "branch"), 4, 4),
    "eps and gain": (layer(SOFTMAX, "sandwich", eps=0.5, gain=1.3), 3, 8),
    "heads": (layer(HEADS), 2, 8),
    "heads, after": (layer(HEADS, "after"), 2, 16),
    "parallel, after": (layer(sa.Parallel(HEADS, RELU), "after"), 2, 16),
    "with a plain block": ([layer(SOFTMAX), RELU], 4, 4),
    "with RMS": ([layer(HEADS), rms(RELU, "after")], 2, 16),
    "pattern": (sa.Pattern([layer(SOFTMAX, "sandwich"), rms(RELU)]), 4, 8),
    "lambda = 1": (GPT2, 3, 16),
}  # fmt: skip
"""Layers, their numbers of tokens, their widths."""


def run(sampler, name, other=None, **options):
    """Samples of a layer, or of another one, at its sizes."""
    known, tokens, width = LAYERS[name]
    options = {"width": width, "depth": 6, "seed": 1, "progress": False} | options
    return sampler(other or known, sa.equicorrelated(tokens, 0.2, 1.5), **options)


def law_of(sampler, name, other=None, **options):
    """To 9 digits: KS would compare the rounding errors of variances that are exactly 1."""
    result = run(sampler, name, other, **options)
    return result.assign(V=result.V.round(9))


@cache
def networks(name):
    """10,000 networks, simulated once for each layer."""
    return law_of(sa.simulate_network, name, samples=10_000)


@pytest.mark.parametrize("name", LAYERS)
def test_the_chain_has_the_law_of_networks(name):
    """KS on every observable at level 10^-3 (Bonferroni), 10,000 networks.

    KS sees a shift of 0.06 standard deviations of an observable half of the time.
    """
    assert same_law(networks(name), law_of(sa.simulate_chain, name, samples=20_000, seed=2))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("RMS before, both", [SOFTMAX, RELU]),
        ("RMS before, both", [rms(SOFTMAX, "after"), rms(RELU, "after")]),
        ("RMS sandwich, n = m", rms(SOFTMAX, eps=0.3, gain=1.3)),
        ("RMS sandwich, n = m", rms(SOFTMAX, "branch", eps=0.3, gain=1.3)),
        ("RMS before, n = m", rms(SOFTMAX, eps=0.3)),
        ("RMS before, n = m", rms(SOFTMAX, gain=1.3)),
        ("RMS sandwich, heads", rms(sa.ShapedAttention(0.6, 0.5), "sandwich")),
        ("sandwich, n = m", rms(SOFTMAX, "sandwich")),
        ("heads", rms(HEADS)),
        ("with a plain block", [rms(SOFTMAX), RELU]),
    ],
)
def test_wrong_chains_are_rejected(name, wrong):
    """Negative controls: a norm left out, at another place or of another kind; eps, gain, heads."""
    chain = law_of(sa.simulate_chain, name, wrong, samples=30_000, seed=2)
    assert not same_law(networks(name), chain)


@pytest.mark.parametrize(("eps", "gain"), [(0.0, 1.0), (0.3, 1.7)])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_norms_are_those_of_torch(norm, place, eps, gain):
    """Tokens have different means, and the identity replaces the weights."""
    tokens = torch.arange(24.0, dtype=torch.float64).reshape(3, 8).square() / 8.0 + 1.0
    block = sa.Normalised(Linear(0.6), place, norm, eps, gain)

    def expected(x):
        functional = torch.nn.functional
        return gain * (
            functional.layer_norm(x, (8,), eps=eps)
            if norm == "layer"
            else (functional.rms_norm(x, (8,), eps=eps))
        )

    moved = block.forward(at_depth(block, 0.0), tokens, lambda x, columns, *_: x)
    branch = (expected(tokens) if place in ("before", "sandwich") else tokens) / 8**0.5
    if place in ("branch", "sandwich"):
        branch = expected(branch)
    wanted = 0.8 * tokens + 0.6 * branch
    if place == "after":
        wanted = expected(wanted)
    torch.testing.assert_close(moved, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inner", [sa.ShapedMLP(0.0), sa.ShapedAttention(0.0, heads=2)])
@pytest.mark.parametrize("sampler", [sa.simulate_network, sa.simulate_chain])
def test_eps_is_added_to_the_mean_square(sampler, inner):
    """Exactly: without a branch V'_aa = g^2 V_aa / (V_aa + eps), and correlations stay."""
    v0 = sa.equicorrelated(3, 0.2) * np.outer([0.02, 1.0, 3.0], [0.02, 1.0, 3.0])
    block = rms(inner, "after", eps=0.01, gain=1.5)
    v = sampler(block, v0, width=8, depth=1, samples=2).V.values[-1]
    scale = 1.5 / np.sqrt(np.diagonal(v0) + 0.01)
    np.testing.assert_allclose(v, np.stack([v0 * np.outer(scale, scale)] * 2), rtol=1e-12)


@pytest.mark.parametrize("name", ["after, n = m + 2", "heads, after"])
@pytest.mark.parametrize("sampler", [sa.simulate_network, sa.simulate_chain])
def test_a_post_norm_leaves_unit_mean_squares(sampler, name):
    v = run(sampler, name, samples=4).V.values[-1]
    np.testing.assert_allclose(np.diagonal(v, axis1=1, axis2=2), 1.0, rtol=1e-12)


@pytest.mark.portability
@pytest.mark.parametrize("place", ["before", "after", "sandwich"])
@pytest.mark.parametrize("kind", [rms, layer])
def test_equal_and_zero_tokens_stay_so(kind, place):
    """With RMSNorm; with LayerNorm a zero token remains the mean of nothing."""
    v0 = np.array([[1.3, 1.3, 0.0], [1.3, 1.3, 0.0], [0.0, 0.0, 0.0]])
    block = kind(sa.ShapedAttention(0.5), place)
    v = sa.simulate_chain(block, v0, width=16, depth=8, samples=20).V.values[-1]
    np.testing.assert_allclose(v[:, 0], v[:, 1], rtol=1e-11, atol=1e-12)
    assert np.isfinite(v).all()
    assert kind is layer or not v[:, 2].any()


@dataclass(frozen=True)
class Forgetful(sa.ShapedMLP):
    """A step that does not know of the means."""

    def step(self, p, state, numbers, width):
        return State(super().step(p, state, numbers, width).factors)


test_what_is_refused = refused(
    (
        lambda: rms(sa.Parallel(RELU, sa.ShapedMLP(0.2)), "branch"),
        "place must be 'before' or 'after' for parallel branches",
    ),
    (lambda: rms(RELU, "befor"), r"got 'befor' \(did you mean 'before'\?\)$"),
    (
        lambda: run(sa.simulate_chain, "heads", width=4, samples=2),
        r"^width must be at least 8, since LayerNorm subtracts the mean; got 4$",
    ),
    (
        lambda: run(sa.simulate_chain, "before", [layer(RELU), Forgetful(0.5)], samples=1),
        r"^layer contains Forgetful.* whose step does not keep the means of the tokens",
    ),
    (lambda: sa.drift(rms(RELU, eps=1e-5), np.eye(2)), "limit: with eps=1e-05 its variances"),
)
