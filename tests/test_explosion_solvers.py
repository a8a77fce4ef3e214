"""Passage probabilities of the scalar SDE: two solvers, closed forms and brute force."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from shaped_attention.theory.explosion.scalar_law import ScalarLaw, precise
from tests.finite_differences import Chain, grid_of


def two_tokens(gamma, tau0, u0=1.6, mu=0.0, heads=1):
    """The law of u for two tokens with full attention, by its closed form."""
    return ScalarLaw(
        alpha=gamma**2 / (16 * tau0**2), mu=mu, k=gamma**2 * (2 - gamma**2),
        delta=gamma**4 / (4 * tau0**2 * heads), u0=u0,
    )  # fmt: skip


LAWS = {
    "a = 0.69": two_tokens(0.6, 0.5),
    "a = 6": two_tokens(0.2, 0.3, 1.0),
    "with mu": two_tokens(0.6, 0.5, mu=0.3),
    "with large mu": two_tokens(0.6, 0.5, 3.0, mu=2.0),
}


def passage_curve(law, times, level, cells=200):
    """P(u reaches a finite level by t) by finite differences, without the errors h^2 and h^4."""
    coarse, start = grid_of(law, max(times), level, cells)
    found = []
    for refinement in (1, 2, 4):
        step = (coarse[1] - coarse[0]) / refinement
        nodes = coarse[-1] + step * np.arange(-cells * refinement, 1)
        grid = Chain(law, nodes)
        found.append([grid.propagator(t)[start * refinement, -1] for t in times])
    once = [(4 * np.array(fine) - coarse) / 3 for coarse, fine in pairwise(found)]
    return (16 * once[1] - once[0]) / 15


@pytest.mark.parametrize(
    ("law", "level"),
    [
        (LAWS["a = 0.69"], 10.0),
        (LAWS["with mu"], 30.0),
        (two_tokens(0.8, 0.5), 10.0),
        (ScalarLaw(0.0, 0.1, 0.5, 0.0, 1.6), 6.0),
    ],
    ids=["a = 0.69", "with mu", "a = 0.39", "without delta"],
)
def test_finite_differences_and_laplace_agree(law, level):
    """To 1e-9, for a level of u and two times; a level 1e-6 higher fails."""
    times = np.array([0.4, 0.8])
    found = passage_curve(law, times, level)
    exact = np.array([law.probability(t, level) for t in times])
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-9)
    higher = [law.probability(t, level * (1 + 1e-6)) for t in times]
    assert np.abs(found - higher).max() > 1e-9


def test_the_reflection_formula_without_delta():
    """log u is a Brownian motion with drift: the inverse Gaussian law, and its mass."""
    law, level = ScalarLaw(0.0, 0.1, 0.5, 0.0, 1.6), 5.0
    gap, drift, spread = math.log(level / law.u0), -(law.mu + law.k), math.sqrt(2 * law.k)
    for t in (0.05, 0.7, 4.0):
        deviation = spread * math.sqrt(t)
        first = stats.norm.cdf((-gap + drift * t) / deviation)
        second = stats.norm.cdf((-gap - drift * t) / deviation)
        exact = first + math.exp(2 * drift * gap / spread**2) * second
        assert law.probability(t, level) == pytest.approx(exact, rel=1e-10)
    assert law.ever(level) == pytest.approx(math.exp(2 * drift * gap / spread**2), rel=1e-12)


@pytest.mark.parametrize("name", ["a = 0.69", "a = 6", "with large mu"])
def test_the_probability_at_any_time(name):
    """The incomplete beta function against the scale function by quadrature, at any level."""
    law = LAWS[name]
    mp = precise()

    def slope(x):
        return x ** (2 * law.r) * (2 * law.k + law.delta * x * x) ** (-law.a - law.r)

    def scale(u):
        return mp.quad(slope, [0, min(u, law.u0), u])

    def beyond(u):
        """The integral from u to infinity, where the density decays like x^{-2a}."""
        power = 1 / (2 * mp.mpf(law.a) - 1)
        return mp.quad(lambda w: slope(u * w**-power) * u * power * w ** (-power - 1), [0, 1])

    whole = scale(law.u0) + beyond(law.u0)
    assert law.ever() == pytest.approx(float(scale(law.u0) / whole), rel=1e-10)
    assert law.ever(50.0) == pytest.approx(float(scale(law.u0) / scale(50.0)), rel=1e-10)
    assert law.ever(1e9) == pytest.approx(float(scale(law.u0) / (whole - beyond(1e9))), rel=1e-10)


def test_levels_are_reached_without_explosion():
    """For a <= 1/2 u does not explode, yet each level has a positive probability."""
    law = two_tokens(0.8, 0.5)
    assert law.a < 0.5
    assert law.ever() == 0.0
    assert law.probability(100.0) == 0.0
    assert law.ever(100.0) == pytest.approx(law.probability(1e6, 100.0), rel=1e-6)
