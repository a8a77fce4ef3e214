"""Distances of laws: identities, coverage of the intervals, size and power of the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from shaped_attention.statistics.distances import (
    JOINT_POINTS,
    integral_distances,
    joint_test,
    ks_distance,
    ks_margin,
    least_resolved_ks,
    quantile_rank,
)

Array = NDArray[np.float64]
LOW, HIGH, NULL = 1, 2, 3
NAMES = ("wasserstein1", "energy")


def rows_of(x: Array, y: Array, *settings: float) -> Array:
    """Distance, low, high and null level (4, 2, K) of the two norms in `NAMES`."""
    return np.stack(integral_distances(x, y, *settings), 1)


def distance_of(name: str, x: ArrayLike, y: ArrayLike) -> float:
    pair = (np.asarray(values, dtype=float)[None] for values in (x, y))
    return float(rows_of(*pair, 0.5, 1)[0, NAMES.index(name), 0])


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def gauss(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape)


def capped(rng: np.random.Generator, *shape: int) -> Array:
    return np.minimum(rng.exponential(8.0, size=shape), 1.0)


def heavy(rng: np.random.Generator, *shape: int) -> Array:
    return np.exp(3.0 * rng.normal(size=shape))


# Values


def test_distances_agree_with_scipy_ties_included() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((30, 47), (3000, 2500)):
        x, y = np.round(rng.normal(size=n), 1), np.round(rng.exponential(size=m), 1)
        assert distance_of("wasserstein1", x, y) == pytest.approx(stats.wasserstein_distance(x, y))
        assert distance_of("energy", x, y) == pytest.approx(stats.energy_distance(x, y))
        assert ks_distance(x, y).distance == pytest.approx(stats.ks_2samp(x, y).statistic)


def test_quantiles_of_shifted_laws_give_the_closed_forms() -> None:
    u = (np.arange(20000) + 0.5) / 20000
    x, shift = stats.norm.ppf(u), 0.3
    known = 2 * stats.norm.cdf(shift / 2) - 1
    assert ks_distance(x, x + shift).distance == pytest.approx(known, abs=2 / u.size)
    assert distance_of("wasserstein1", x, x + shift) == pytest.approx(shift)
    s = 0.25
    assert ks_distance(u, u + s).distance == pytest.approx(s, abs=2 / u.size)
    # F - G is a trapezium of height s, base 1 + s and ramps of length s.
    squares = s**2 * (1 - s) + 2 * s**3 / 3
    assert distance_of("energy", u, u + s) == pytest.approx(math.sqrt(2 * squares), rel=1e-4)


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


@pytest.mark.parametrize("value", [0.0, 0.75])
def test_equal_constants_are_at_distance_zero(value: float) -> None:
    x = np.full((1, 40), value)
    assert ks_distance(x[0], x[0])[0::3] == (0.0, 1.0)
    assert not rows_of(x, x[:, :30]).any()
    assert joint_test(x.T, x.T[:20], 99) == (0.0, 1.0)


# Coverage: 400 replications, so 95 % coverage has a standard error of 1.1 %.


def coverage(law: Callable[..., Array], shift: float, truths: ArrayLike) -> tuple[Array, Array]:
    """Fractions of intervals with the true distances inside, and of null levels exceeded."""
    rng, inside, above = np.random.default_rng(11), [], []
    for seed in range(16):
        rows = rows_of(law(rng, 25, 300), law(rng, 25, 200) + shift, 0.95, 100, seed)
        known = np.asarray(truths, dtype=float)[..., None]
        inside.append(((rows[LOW] <= known) & (known <= rows[HIGH])).mean(axis=1))
        above.append((rows[0] > rows[NULL]).mean(axis=1))
    return np.mean(inside, axis=0), np.mean(above, axis=0)


@pytest.mark.parametrize("law", [gauss, capped, heavy])
def test_intervals_cover_zero_and_null_levels_have_their_size(law: Callable[..., Array]) -> None:
    """A null level is a test of size 5 %: neither exceeded too often nor out of reach."""
    inside, above = coverage(law, 0.0, [0.0])
    assert (inside > 0.95 - 3 * 0.011).all()
    assert (np.abs(above - 0.05) < 3 * 0.011).all()


@pytest.mark.parametrize("shift", [0.1, 0.4, 1.0])
def test_intervals_cover_a_shift_which_the_null_level_detects(shift: float) -> None:
    """The control of the test above: laws that differ exceed the level far more often."""
    cross = 2 * math.exp(-(shift**2) / 4) / math.sqrt(math.pi) + shift * (
        1 - 2 * stats.norm.cdf(-shift / math.sqrt(2.0))
    )
    energy = math.sqrt(2 * cross - 4 / math.sqrt(math.pi))
    inside, above = coverage(gauss, shift, [shift, energy])
    assert (inside > 0.95 - 3 * 0.011).all()
    assert shift < 0.4 or (above > 0.8).all()


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("count", [19, 20, 99, 100, 999])
def test_the_rank_of_a_quantile_is_the_lowest_that_keeps_the_level(
    count: int, confidence: float
) -> None:
    """A further number is above the k-th (from 0) of `count` with probability 1 - (k+1)/(count+1).

    That is at most 1 - confidence at the rank, and more at the one below.
    """
    rank = quantile_rank("count", count, confidence)
    above = 1.0 - (rank + 1) / (count + 1)
    assert above <= 1.0 - confidence + 1e-12 < above + 1.0 / (count + 1)


def test_thinning_of_large_samples_does_not_move_the_quantiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.exp(normal(3, 1, 6000)), np.exp(normal(4, 1, 5000))
    thinned = rows_of(x, y, 0.95, 99)
    monkeypatch.setattr("shaped_attention.statistics.distances._MIDDLE_POINTS", 20000)
    np.testing.assert_allclose(thinned, rows_of(x, y, 0.95, 99), rtol=0.01)


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


@pytest.mark.parametrize(("n", "m"), [(8, 8), (8, 9), (12, 12), (8, 20), (20, 20), (16, 24)])
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


def test_ks_p_values_are_those_of_the_limiting_law() -> None:
    x, y = normal(0, 4000), normal(1, 3000) + 0.05
    assert ks_distance(x, y).p_value == pytest.approx(stats.ks_2samp(x, y).pvalue, rel=0.05)
    same = np.where(x == x[0], x[0] + 1e-12, x)
    assert ks_distance(x, same).p_value == pytest.approx(1.0)


# The joint tests


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


def test_joint_test_uses_the_first_points() -> None:
    x, y = normal(1, JOINT_POINTS + 9, 2), normal(2, JOINT_POINTS + 5, 2)
    moved = x.copy()
    moved[JOINT_POINTS:] += 100.0
    assert joint_test(x, y, 99) == joint_test(moved, y, 99)
    assert joint_test(x[::-1], y, 99) != joint_test(x, y, 99)


@pytest.mark.validation
@pytest.mark.parametrize("size", [64, 512, 4096])
def test_coverage_at_many_replications(size: int) -> None:
    rng, covered = np.random.default_rng(17), np.zeros(2)
    for seed in range(80):
        rows = rows_of(gauss(rng, 25, size), gauss(rng, 25, size), 0.95, 200, seed)
        covered += (rows[LOW] <= 0.0).mean(axis=1) / 80
    assert (np.abs(covered - 0.95) < 0.015).all(), covered


# Randomness and errors


def test_results_depend_on_the_seed_and_on_the_observable_only() -> None:
    """Global generators are watched by the fixture of conftest.py."""
    x, y = normal(5, 4, 200), normal(6, 4, 150)
    together = rows_of(x, y, 0.95, 200, 3)
    np.testing.assert_array_equal(together, rows_of(x, y, 0.95, 200, 3))
    one = rows_of(x[2:3], y[2:3], 0.95, 200, 3)
    np.testing.assert_array_equal(one[..., 0], together[..., 2])
    assert (rows_of(x[2:3], y[2:3], 0.95, 200, 4) != one)[1:].any(axis=(0, 2)).all()
    assert joint_test(x.T, y.T, 99, 3) == joint_test(x.T, y.T, 99, 3)
    assert joint_test(x.T, y.T, 99, 3).p_value != joint_test(x.T, y.T, 99, 4).p_value
