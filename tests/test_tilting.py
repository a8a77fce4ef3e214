"""Importance sampling of passage times, with the exact law as guide."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.statistics import tilting
from shaped_attention.statistics.tilting import tilted_probability

V0 = sa.equicorrelated(2, 0.2)
BILLIONTH = sa.ShapedAttention(0.35, 3.0), 300.0
"""P(u >= 300 by 0.75) is 9.3e-10."""


@pytest.mark.parametrize(
    ("layer", "level", "spread"),
    [(*BILLIONTH, 0.5), (sa.ShapedAttention(0.35, 1.0), 1000.0, 0.4)],
    ids=["1e-9", "1e-5"],
)
def test_the_probability_is_the_exact_one(layer, level, spread):
    """Within 2 % of the step and 3 standard errors of 1 %: an exponent that is 1 % off fails."""
    exact = sa.explosion_law(layer, V0).probability(horizon=0.75, level=level)
    found = tilted_probability(layer, V0, level, horizon=0.75, replicas=250, runs=4, seed=1)
    error = float(found.relative_error)
    assert error < 2.0 * spread / np.sqrt(1000)
    assert abs(float(found.probability) / exact - 1.0) < 0.02 + 3.0 * error


@dataclass
class _WithoutHorizon:
    """The guide P(u ever reaches the level), whose horizon is infinite."""

    nodes: np.ndarray
    values: np.ndarray

    def slope(self, t, u):
        """Return the derivative of its logarithm in log u."""
        return np.interp(np.log(u), self.nodes, self.values)


def test_the_guide_without_a_horizon_does_not_work():
    """Its paths reach the level too late, so that nearly all of the probability is missed."""
    layer, level = BILLIONTH
    known = sa.explosion_law(layer, V0)
    law = known.coefficients
    nodes = np.linspace(np.log(0.05), np.log(level), 200)
    logs = np.log([replace(law, u0=float(u)).ever(level) for u in np.exp(nodes)])
    guide = _WithoutHorizon(nodes, np.gradient(logs, nodes))
    weights, _ = tilting._weights(law, guide, 0.75, level, 0.01, 2000, seed=1)
    assert (weights > 0.0).mean() < 0.05
    assert weights.mean() < 0.1 * known.probability(horizon=0.75, level=level)


def test_what_it_refuses():
    with pytest.raises(ValueError, match=r"^level must be above u_0 = 1.6; got 1.0"):
        tilted_probability(sa.ShapedAttention(0.5), V0, 1.0, horizon=0.5)
    with pytest.raises(ValueError, match=r"^layer must be one whose u has an exact law"):
        tilted_probability(sa.ShapedAttention(0.5), sa.equicorrelated(3, 0.2), 9.0, horizon=0.5)
    with pytest.raises(ValueError, match=r"^layer must be one with attention"):
        tilted_probability(sa.ShapedMLP(0.5, 1.0, 1.0), V0, 9.0, horizon=0.5)
