"""Distances of laws: definitions, coverage of the band, size and power of the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shaped_attention.statistics.distances import (
    joint_test,
    ks_distance,
    ks_margin,
    least_resolved_ks,
)

Array = NDArray[np.float64]


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def gauss(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape)


def capped(rng: np.random.Generator, *shape: int) -> Array:
    return np.minimum(rng.exponential(8.0, size=shape), 1.0)


def heavy(rng: np.random.Generator, *shape: int) -> Array:
    return np.exp(3.0 * rng.normal(size=shape))


def test_ks_distances_agree_with_scipy_ties_included() -> None:
    """Ties too; the p-value is that of the limiting law, and 1 for equal samples."""
    rng = np.random.default_rng(0)
    for n, m in ((30, 47), (3000, 2500)):
        x, y = np.round(rng.normal(size=n), 1), np.round(rng.exponential(size=m), 1)
        assert ks_distance(x, y).distance == pytest.approx(stats.ks_2samp(x, y).statistic)
    x, y = normal(0, 4000), normal(1, 3000) + 0.05
    assert ks_distance(x, y).p_value == pytest.approx(stats.ks_2samp(x, y).pvalue, rel=0.05)
    assert ks_distance(x, x)[0::3] == (0.0, 1.0)


def test_joint_energy_is_the_definition_on_transformed_points() -> None:
    x, y = normal(1, 40, 3), normal(2, 55, 3) + 0.5
    z = np.concatenate([x, y])
    low, median, high = np.quantile(z, [0.25, 0.5, 0.75], axis=0)
    a, b = (np.arcsinh((v - median) / (high - low)) for v in (x, y))

    def mean(p: Array, q: Array) -> float:
        return float(np.linalg.norm(p[:, None] - q[None], axis=2).mean())

    expected = math.sqrt(2 * mean(a, b) - mean(a, a) - mean(b, b))
    assert joint_test(x, y, 99).distance == pytest.approx(expected, rel=1e-10)


def test_margin_is_the_massart_constant() -> None:
    expected = math.sqrt(math.log(80) / 200) + math.sqrt(math.log(80) / 800)
    assert ks_margin(100, 400, 0.95) == pytest.approx(expected)
    assert ks_distance([0.0, 1.0, 2.0, 3.0], [2.5, 3.5, 4.5, 5.5]).distance == 0.75
    band = ks_distance(normal(0, 100), normal(1, 400) + 1.0, 0.95)
    assert band.low == pytest.approx(band.distance - expected)
    assert band.high == pytest.approx(band.distance + expected)


def test_ks_band_covers_and_the_p_value_keeps_its_size() -> None:
    rng, shift = np.random.default_rng(14), 0.4
    truth = 2 * stats.norm.cdf(shift / 2) - 1
    bands = [ks_distance(rng.normal(size=80), rng.normal(size=60) + shift, 0.8) for _ in range(300)]
    assert np.mean([b.low <= truth <= b.high for b in bands]) >= 0.8
    null = [ks_distance(*capped(rng, 2, 200)).p_value for _ in range(300)]
    assert np.mean(np.array(null) <= 0.05) < 0.05 + 3 * 0.0126
    assert ks_distance(normal(1, 2000), normal(2, 2000) + 0.4).p_value < 1e-6


def reached(n: int, m: int, distance: Fraction) -> float:
    """The exact probability that the distance is reached, by counting monotone lattice paths."""
    inside = [0] * (m + 1)
    for i in range(n + 1):
        for j in range(m + 1):
            ways = (inside[j] if i else 0) + (inside[j - 1] if j else 0) + (i == j == 0)
            inside[j] = ways if abs(Fraction(i, n) - Fraction(j, m)) < distance else 0
    return 1.0 - inside[m] / math.comb(n + m, n)


@pytest.mark.parametrize(("n", "m"), [(8, 9), (20, 20)])
def test_the_p_value_is_not_below_the_exact_one(n: int, m: int) -> None:
    """At all distances with p from 0.1 to 5 %; it is at most 3.5 times as large.

    The least resolved distance is the first with a p-value at the level.
    """
    apart = {abs(Fraction(i, n) - Fraction(j, m)) for i in range(n + 1) for j in range(m + 1)}
    values = {d: float(stats.kstwobign.sf(float(d) * math.sqrt(n * m / (n + m)))) for d in apart}
    known = {d: reached(n, m, d) for d, p in values.items() if 1e-3 < p < 0.05}
    assert len(known) > 1
    assert all(p <= values[d] <= 3.5 * p for d, p in known.items())
    for level in (0.01, 0.05):
        least = least_resolved_ks(n, m, level)
        assert all((values[d] <= level) == (float(d) >= least) for d in apart)


@pytest.mark.parametrize("law", [gauss, capped, heavy])
def test_joint_test_has_its_size(law: Callable[..., Array]) -> None:
    rng = np.random.default_rng(15)
    p = np.array([joint_test(law(rng, 30, 3), law(rng, 25, 3), 99, s).p_value for s in range(200)])
    # Standard errors of 200 replications.
    assert np.mean(p <= 0.05) < 0.05 + 3 * 0.0154
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=3 * 0.0354)


def test_joint_test_has_power() -> None:
    """At least 80 % of 40 runs of 300 points see each difference at 5 %."""
    rng, rejections = np.random.default_rng(16), np.zeros(3)
    root = np.linalg.cholesky(np.array([[1.0, 0.7], [0.7, 1.0]]))
    for seed in range(40):
        x, y = rng.normal(size=(2, 300, 2))
        # The second has equal margins, so no test of single coordinates can see it.
        pairs = [(x, y + 0.3), (x, y @ root.T), (np.exp(3 * x), np.exp(3 * y + 0.9))]
        rejections += [joint_test(*pair, 99, seed).p_value <= 0.05 for pair in pairs]
    assert rejections.min() >= 0.8 * 40, rejections
