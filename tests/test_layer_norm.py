"""LayerNorm: the chain with the means of the tokens, and its executors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.numerics.primitives import Numbers, row_squares, sqrt
from shaped_attention.rows.step import State
from shaped_attention.samplers.specification import Specification
from tests.laws import same_law, with_state
from tests.refusals import refused
from tests.test_executors import SINGULAR, assert_same_paths

SOFTMAX = sa.ShapedAttention(0.6, identity=False, centring=False, scaled_temperature=False)
RELU = sa.ShapedMLP(0.6, 0.0, -4.0)
HEADS = sa.ShapedAttention(0.6, 0.5, heads=4)


def normed(block, place="before", **options):
    return sa.Normalised(block, place, "layer", **options)


RESIDUAL = 12**-0.5
"""Scale of the branches of GPT-2, 1 / sqrt(2 L), for the L = 6 layers of these tests."""

GPT2 = [
    normed(sa.ShapedAttention(RESIDUAL, skip=1.0, identity=False, centring=False)),
    normed(sa.ShapedMLP(RESIDUAL, 0.0, -4.0, skip=1.0)),
]
LAYERS = {
    "before": (normed(SOFTMAX), 3, 16),
    "after": (normed(SOFTMAX, "after"), 3, 16),
    "sandwich": (normed(SOFTMAX, "sandwich"), 3, 16),
    "branch": (normed(SOFTMAX, "branch"), 3, 16),
    "before, n = m": (normed(SOFTMAX), 4, 4),
    "after, n = m + 1": (normed(SOFTMAX, "after"), 3, 4),
    "sandwich, n = m": (normed(SOFTMAX, "sandwich"), 4, 4),
    "branch, n = m": (normed(SOFTMAX, "branch"), 4, 4),
    "sandwich, n = m + 2": (normed(SOFTMAX, "sandwich"), 4, 6),
    "after, n = m + 2": (normed(SOFTMAX, "after"), 4, 6),
    "eps and gain": (normed(SOFTMAX, "sandwich", eps=0.5, gain=1.3), 3, 8),
    "heads": (normed(HEADS), 2, 8),
    "heads, after": (normed(HEADS, "after"), 2, 16),
    "heads, sandwich": (normed(HEADS, "sandwich"), 2, 8),
    "parallel": (normed(sa.Parallel(HEADS, RELU)), 2, 16),
    "parallel, after": (normed(sa.Parallel(HEADS, RELU), "after"), 2, 16),
    "with a plain block": ([normed(SOFTMAX), RELU], 4, 4),
    "after a plain block": ([RELU, normed(SOFTMAX, "after")], 3, 8),
    "with RMS": ([normed(HEADS), sa.Normalised(RELU, "after")], 2, 16),
    "pattern": (sa.Pattern([normed(SOFTMAX, "sandwich"), sa.Normalised(RELU)]), 4, 8),
    "lambda = 1": (GPT2, 3, 16),
}


def run(sampler, name, other=None, **options):
    """Samples of a layer, or of another one, at its sizes."""
    layer, tokens, width = LAYERS[name]
    options = {"width": width, "depth": 6, "seed": 1, "progress": False} | options
    return sampler(other or layer, sa.equicorrelated(tokens, 0.2, 1.5), **options)


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


def _by_deviation(tokens):
    """Divide by the standard deviation, without subtracting the mean."""
    centred = tokens - tokens.mean(-1, keepdim=True)
    return tokens / sqrt(row_squares(centred) / tokens.shape[-1])


@dataclass(frozen=True)
class KeepsTheMeans(sa.Normalised):
    """LayerNorm that divides by the standard deviation and does not subtract the mean."""

    def _seen(self, p, tokens):
        return _by_deviation(tokens) if self.place == "before" else tokens

    def forward(self, p, tokens, project):
        new = self.inner.skip_weight(p.inner) * tokens
        new = new + p.inner.gamma * self.branch(p, tokens, project)
        return _by_deviation(new) if self.place == "after" else new


@dataclass(frozen=True)
class OneMoreDegree(sa.Normalised):
    """n in place of n - 1 degrees of freedom."""

    def step(self, p, state, numbers, width):
        return super().step(p, state, _OneMore(numbers), width)


@dataclass(frozen=True)
class MeansWithoutTheBranch(sa.Normalised):
    """Pre-norm whose branch does not reach the means: h' = lambda h."""

    def forward(self, p, tokens, project):
        branch = self.branch(p, tokens, project)
        branch = branch - branch.mean(-1, keepdim=True)
        return self.inner.skip_weight(p.inner) * tokens + p.inner.gamma * branch


class _OneMore(Numbers):
    def __init__(self, numbers):
        self._numbers = numbers

    def inside(self, index):
        return _OneMore(self._numbers.inside(index))

    def again(self):
        return _OneMore(self._numbers.again())

    def normal(self, *arguments):
        return self._numbers.normal(*arguments)

    def wishart(self, name, rows, dof, head=0):
        more = name in ("values, orthogonal", "values, 1")
        return self._numbers.wishart(name, rows, dof + more, head)

    def activated_gram(self, *arguments):
        return self._numbers.activated_gram(*arguments)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("before, n = m", KeepsTheMeans(SOFTMAX, "before", "layer")),
        ("after", KeepsTheMeans(SOFTMAX, "after", "layer")),
        ("before, n = m", MeansWithoutTheBranch(SOFTMAX, "before", "layer")),
        ("sandwich, n = m + 2", OneMoreDegree(SOFTMAX, "sandwich", "layer")),
        ("after, n = m + 2", OneMoreDegree(SOFTMAX, "after", "layer")),
        ("sandwich", normed(SOFTMAX, "before")),
        ("sandwich", normed(SOFTMAX, "branch")),
        ("sandwich, n = m", sa.Normalised(SOFTMAX, "sandwich")),
        ("heads", sa.Normalised(HEADS, "before")),
        ("with a plain block", [sa.Normalised(SOFTMAX), RELU]),
    ],
)
def test_wrong_chains_are_rejected(name, wrong):
    """Negative controls: means, degrees of freedom, a norm left out, RMS in its place."""
    assert not same_law(
        networks(name), law_of(sa.simulate_chain, name, wrong, samples=20_000, seed=2)
    )


@pytest.mark.parametrize("name", ["after", "heads, after"])
def test_a_post_norm_leaves_no_mean_and_unit_variance(name):
    """Exactly, in chain and network, with the state in which each of them ends."""
    (chain, states), (network, tokens) = (
        with_state(lambda: run(sampler, name, samples=4))  # noqa: B023
        for sampler in (sa.simulate_chain, sa.simulate_network)
    )
    np.testing.assert_allclose(states[..., 0].mean(1), 0.0, atol=1e-14)
    np.testing.assert_allclose(tokens.mean(-1), 0.0, atol=1e-14)
    for result in (chain, network):
        diagonal = np.diagonal(result.V.values[-1], axis1=1, axis2=2)
        np.testing.assert_allclose(diagonal, 1.0, rtol=1e-12)


@pytest.mark.portability
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_code_gives_the_paths_of_torch(name, monkeypatch):
    fast = run(sa.simulate_chain, name, samples=70)
    assert sa.explain(LAYERS[name][0]).chain.startswith("compiled code")
    monkeypatch.setattr(Specification, "compiled_device", property(lambda self: False))
    slow = run(sa.simulate_chain, name, samples=70)
    scale = np.abs(slow.V.values).max()
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-9 * scale)


@pytest.mark.parametrize("start", SINGULAR)
@pytest.mark.parametrize("place", ["before", "sandwich"])
def test_singular_starts_in_compiled_code_and_torch(place, start, monkeypatch):
    layer = [normed(sa.ShapedAttention(0.5, 0.7), place, eps=0.1), sa.ShapedMLP(0.4)]
    options = {"width": 40, "depth": 20, "samples": 50, "seed": 2}
    fast = sa.simulate_chain(layer, SINGULAR[start], **options)
    monkeypatch.setattr(Specification, "compiled_device", property(lambda self: False))
    assert_same_paths(fast, sa.simulate_chain(layer, SINGULAR[start], **options))


@pytest.mark.portability
@pytest.mark.parametrize("name", ["before", "sandwich", "with a plain block"])
def test_equal_and_zero_tokens_stay_so(name):
    v0 = np.array([[1.3, 1.3, 0.0], [1.3, 1.3, 0.0], [0.0, 0.0, 0.0]])
    block = sa.ShapedAttention(0.5, centring=True)
    layer = {
        "before": normed(block),
        "sandwich": normed(block, "sandwich"),
        "with a plain block": [normed(block), block],
    }[name]
    v = sa.simulate_chain(layer, v0, width=16, depth=8, samples=20).V.values[-1]
    # A zero token stays the mean of nothing; equal tokens have equal rows.
    np.testing.assert_allclose(v[:, 0], v[:, 1], rtol=1e-11, atol=1e-12)
    assert np.isfinite(v).all()


@dataclass(frozen=True)
class Forgetful(sa.ShapedMLP):
    """A step that does not know of the means."""

    def step(self, p, state, numbers, width):
        return State(super().step(p, state, numbers, width).factors)


test_what_is_refused = refused(
    (
        lambda: run(sa.simulate_chain, "heads", width=4, samples=2),
        r"^width must be at least 8, since LayerNorm subtracts the mean; got 4$",
    ),
    (
        lambda: sa.simulate_network(normed(RELU), np.eye(1), width=1, depth=1, samples=1),
        r"^width must be at least 2, since LayerNorm subtracts the mean; got 1$",
    ),
    (
        lambda: sa.simulate_chain(
            [normed(RELU), Forgetful(0.5)], np.eye(2), width=8, depth=1, samples=1
        ),
        r"^layer contains Forgetful.* whose step does not keep the means of the tokens",
    ),
)
