"""Bounds on the probability of an explosion, and the exact laws, against simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import shaped_attention as sa
from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    explosion_law,
)
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.theory.explosion import bounds
from shaped_attention.theory.explosion.law import ExplosionLaw

V2 = equicorrelated(2, 0.2)


def difference(v):
    """u = V_11 - 2 V_12 + V_22."""
    return v[:, 0, 0] - 2.0 * v[:, 0, 1] + v[:, 1, 1]


def trace(v):
    return np.trace(v, axis1=1, axis2=2)


def reached(sampler, layer, v0, level, keep, samples=4000, seed=1, **size):
    """The number of paths on which a scalar reaches a level at any step."""
    run = sampler(
        layer, v0, samples=samples, seed=seed, save_every=1, progress=False,
        keep=f"tests.test_explosion_bounds:{keep.__name__}", **size,
    )  # fmt: skip
    return int((run["kept"].to_numpy() >= level).any(axis=0).sum())


def chain(layer, v0, level, keep, width, horizon=0.75):
    size = {"width": width, "depth": int(width * horizon)}
    return reached(sa.simulate_chain, layer, v0, level, keep, **size)


def test_chains_approach_the_law_of_passage():
    """P(u >= 10 by 0.75) = 0.1197: 4,000 chains of width 64, 256 and 1024, standard error 0.005.

    Narrow chains reach the level less often: their softmax saturates, and they look at n T times.
    """
    layer, level = ShapedAttention(0.6, 0.5), 10.0
    exact = explosion_law(layer, V2).probability(horizon=0.75, level=level)
    fractions = [chain(layer, V2, level, difference, n) / 4000 for n in (64, 256, 1024)]
    assert fractions == sorted(fractions)
    assert fractions[0] < exact - 0.03
    assert abs(fractions[2] - exact) < 0.02
    other = explosion_law(ShapedAttention(0.6, 0.7), V2).probability(horizon=0.75, level=level)
    assert abs(fractions[2] - other) > 0.02


def test_bounds_with_a_relu_network():
    """P(u >= 6 by 0.75) of 4,000 paths lies between the two laws, 0.21 and 0.24.

    Their interval of 99.9 % has the half-width 0.021. At tau_0 = 1.5 the bounds would be too low.
    """
    layer, level = [ShapedAttention(0.6, 0.5), ShapedMLP(0.7, 0.0, -1.5)], 6.0
    law = explosion_law(layer, V2)
    low, high = law.probability(horizon=0.75, level=level)
    assert law.kind == "bounds"
    assert law.informative(0.75, level)
    assert 0.0 < low < high < 1.0
    count = reached(sa.integrate_sde, layer, V2, level, difference, horizon=0.75, step=0.001)
    below, above = fraction_bounds(np.array([count]), 4000, 0.999)
    assert below[0] < high
    assert above[0] > low
    other = explosion_law([ShapedAttention(0.6, 1.5), layer[1]], V2).probability(0.75, level)
    assert below[0] > other[1]


def test_the_drift_of_a_relu_network_has_its_bound():
    """Its drift of u lies in [-mu u, 0] at every V, and reaches -mu u at opposite tokens."""
    mlp = ShapedMLP(0.7, 0.0, -1.5)
    low, high = explosion_law([ShapedAttention(0.6, 0.5), mlp], V2).coefficients
    assert high.mu == 0.0
    rng = np.random.default_rng(0)
    f = rng.normal(size=(200, 2, 2))
    v = np.concatenate([f @ np.swapaxes(f, 1, 2), [[[1.0, -1.0], [-1.0, 1.0]]]])
    relative = difference(sa.drift(mlp, v)) / difference(v)
    assert relative.max() <= 1e-12
    assert relative.min() == pytest.approx(-low.mu, rel=1e-9)
    assert relative[-1] == relative.min()


@pytest.mark.parametrize(("mlp", "tokens"), [(False, 2), (True, 4)])
def test_bound_for_any_number_of_tokens(tokens, mlp):
    """P(tr V >= R at any time) <= erf(c S_0) / erf(c R): the SDE until 2, 4,000 paths."""
    attention = ShapedAttention(0.5, 2.0, heads=2)
    layer = [attention, ShapedMLP(0.4, 0.3, -1.0)] if mlp else attention
    v0 = equicorrelated(tokens, 0.2, 1 / tokens)
    law = sa.explosion_law(layer, v0)
    if tokens == 2:
        law = _bound_of_the_trace(layer, v0)
    k = 0.25 * 1.75 + 2 * 0.16 * mlp
    c = 0.25 * math.sqrt((tokens + 1) / (2 * k * tokens))
    level = 3.0
    bound = special.erf(c) / special.erf(c * level)
    assert law.probability(level=level) == pytest.approx((0.0, bound), rel=1e-12)
    assert law.probability() == pytest.approx((0.0, special.erf(c)), rel=1e-12)
    count = reached(sa.integrate_sde, layer, v0, level, trace, horizon=2.0, step=0.01, radius=1e3)
    assert fraction_bounds(np.array([count]), 4000, 0.999)[0][0] < bound
    assert count > 200


def _bound_of_the_trace(layer, v0):
    """That of two tokens, for which a sharper one is known."""
    bound = bounds._of_the_trace(layer, v0)
    return ExplosionLaw("bounds", "tr V", "", bound.high.u0, (None, bound.high), layer)


def test_no_explosion_of_two_causal_tokens():
    """For gamma^2 >= H / 2; at a level the bound is a power, which 4,000 chains respect."""
    layer = ShapedAttention(0.8, 0.5, mask="causal")
    law = explosion_law(layer, V2)
    assert law.kind == "bounds"
    assert law.probability() == law.probability(5.0) == (0.0, 0.0)
    bound = (1.6 / 20) ** (1 - 2 / (4 * 0.64))
    assert law.probability(level=20.0) == pytest.approx((0.0, bound), rel=1e-10)
    count = chain(layer, V2, 20.0, difference, 256, horizon=2.0)
    assert 0 < count < bound * 4000
    with_relu = explosion_law([layer, ShapedMLP(0.5)], V2)
    assert with_relu.probability() == (0.0, 0.0)
    with pytest.raises(ValueError, match="does not follow an SDE of its own"):
        explosion_law(ShapedAttention(0.8, mask="causal", heads=2), V2)
