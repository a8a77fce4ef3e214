"""Distances of laws: identities, coverage of the intervals, size and power of the tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment, linprog

from shaped_attention.statistics.distances import (
    JOINT_POINTS,
    PAIRED_POINTS,
    integral_distances,
    joint_test,
    joint_wasserstein2,
    ks_distance,
    ks_margin,
    least_resolved_ks,
    quantile_rank,
    wasserstein2_rows,
)

Array = NDArray[np.float64]
LOW, HIGH, NULL = 1, 2, 3
NAMES = ("wasserstein1", "energy", "wasserstein2")


def rows_of(x: Array, y: Array, *settings: float) -> Array:
    """Distance, low, high and null level (4, 3, K) of the three norms in `NAMES`."""
    return np.stack([*integral_distances(x, y, *settings), wasserstein2_rows(x, y, *settings)], 1)


def distance_of(name: str, x: ArrayLike, y: ArrayLike) -> float:
    pair = (np.asarray(values, dtype=float)[None] for values in (x, y))
    return float(rows_of(*pair, 0.5, 1)[0, NAMES.index(name), 0])


def wasserstein2(x: ArrayLike, y: ArrayLike) -> float:
    return distance_of("wasserstein2", x, y)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def gauss(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape)


def capped(rng: np.random.Generator, *shape: int) -> Array:
    return np.minimum(rng.exponential(8.0, size=shape), 1.0)


def heavy(rng: np.random.Generator, *shape: int) -> Array:
    return np.exp(3.0 * rng.normal(size=shape))


def split(rng: np.random.Generator, *shape: int) -> Array:
    """Two halves with a gap between them, where W2 shrinks as n^-1/4 only."""
    return np.where(rng.random(shape) < 0.5, 0.0, 1.0) + 0.1 * rng.random(shape)


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
    # W2^2 = (difference of means)^2 + (difference of standard deviations)^2.
    z = x / x.std()
    assert wasserstein2(z, 0.4 + 1.3 * z) == pytest.approx(0.5, rel=1e-12)


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


def test_a_shift_is_its_length() -> None:
    x = normal(0, 301)
    for c in (-2.0, 1e-6, 0.3):
        assert wasserstein2(x, x + c) == pytest.approx(abs(c), rel=1e-9, abs=0.0)
    assert wasserstein2(x, np.repeat(x, 3)) == 0.0
    assert joint_wasserstein2(x[:, None] + [0.0, 5.0], x[:, None] + [3.0, 9.0], 19).distance == (
        pytest.approx(5.0, rel=1e-12)
    )


def test_equal_sizes_agree_with_the_optimal_assignment() -> None:
    """Against scipy on the matrix of squares, and in 1D the vectors' distance is the scalars'."""
    x, y = normal(1, 60), np.exp(normal(2, 60))
    cost = (x[:, None] - y[None]) ** 2
    expected = math.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert wasserstein2(x, y) == pytest.approx(expected, rel=1e-12)
    joint = joint_wasserstein2(x[:, None], y[:, None], 19).distance
    assert joint == pytest.approx(expected, rel=1e-12)
    # The order of the samples is not the best pairing.
    assert math.sqrt(np.mean((x - y) ** 2)) > 1.1 * expected


def test_different_sizes_agree_with_the_linear_program_and_with_exact_levels() -> None:
    x, y = normal(3, 6), normal(4, 9) + 0.5
    n, m = x.size, y.size
    cost = (x[:, None] - y[None]) ** 2
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    program = linprog(cost.ravel(), A_eq=sums, b_eq=np.repeat([1 / n, 1 / m], [n, m]))
    found = wasserstein2(x, y)
    assert found == pytest.approx(math.sqrt(program.fun), rel=1e-9)
    levels = sorted({Fraction(i, n) for i in range(n + 1)} | {Fraction(j, m) for j in range(m + 1)})
    total = sum(
        float(b - a) * (np.sort(x)[math.floor(a * n)] - np.sort(y)[math.floor(a * m)]) ** 2
        for a, b in itertools.pairwise(levels)
    )
    assert found == pytest.approx(math.sqrt(total), rel=1e-12)


def test_scale_is_no_obstacle() -> None:
    x, y = normal(5, 1, 50), normal(6, 1, 40) + 1.0
    rows = wasserstein2_rows(x, y)
    for exponent in (-900, 900):
        moved = wasserstein2_rows(np.ldexp(x, exponent), np.ldexp(y, exponent))
        np.testing.assert_array_equal(np.ldexp(moved, -exponent), rows)
        joint = joint_wasserstein2(np.ldexp(x.T, exponent), np.ldexp(y.T, exponent))
        expected = joint_wasserstein2(x.T, y.T)
        assert joint.p_value == expected.p_value
        assert np.ldexp(joint.distance, -exponent) == expected.distance


@pytest.mark.parametrize("value", [0.0, 0.75])
def test_equal_constants_are_at_distance_zero(value: float) -> None:
    x = np.full((1, 40), value)
    assert ks_distance(x[0], x[0])[0::3] == (0.0, 1.0)
    assert not rows_of(x, x[:, :30]).any()
    assert joint_test(x.T, x.T[:20], 99) == (0.0, 1.0, 0.0)
    assert joint_wasserstein2(x.T, x.T) == (0.0, 1.0, 0.0)


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


@pytest.mark.parametrize("law", [gauss, capped, heavy, split])
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
    inside, above = coverage(gauss, shift, [shift, energy, shift])
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


def test_the_percentile_bootstrap_would_not_cover_zero() -> None:
    """Control for the coverage: the textbook interval of a distance misses zero in every run."""
    rng, hits = np.random.default_rng(13), 0
    for _ in range(40):
        x, y = rng.normal(size=200), rng.normal(size=200)
        again = np.sort(rng.choice(x, (60, 200))), np.sort(rng.choice(y, (60, 200)))
        for power in (1, 2):
            distances = np.mean(np.abs(again[0] - again[1]) ** power, axis=1)
            hits += bool(np.quantile(distances, 0.025) <= 0.0)
    assert hits == 0


def test_thinning_of_large_samples_does_not_move_the_quantiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.exp(normal(3, 1, 6000)), np.exp(normal(4, 1, 5000))
    thinned = rows_of(x, y, 0.95, 99)
    monkeypatch.setattr("shaped_attention.statistics.distances._MIDDLE_POINTS", 20000)
    np.testing.assert_allclose(thinned, rows_of(x, y, 0.95, 99), rtol=0.01)


def test_a_distance_in_an_unsampled_tail_is_missed_as_documented() -> None:
    """The limit of the bootstrap: e^(3 Z) and its double are e^9 apart, 200 samples see less."""
    rng = np.random.default_rng(23)
    x, y = np.exp(3 * rng.normal(size=(2, 40, 200)))
    rows = wasserstein2_rows(x, 2 * y, 0.95, 99)
    assert (rows[HIGH] < math.exp(9)).mean() > 0.8


def test_the_interval_is_the_norm_of_resampled_quantile_functions() -> None:
    """The 95 % margin of equal sizes, from an independent bootstrap written out; 6 % noise."""
    x, y = np.sort(normal(7, 300)), np.sort(normal(8, 300)) + 3.0
    rng, norms, sums = np.random.default_rng(0), [], []
    for _ in range(2000):
        a, b = np.sort(rng.choice(x, 300)) - x, np.sort(rng.choice(y, 300)) - y
        norms.append(math.sqrt(np.mean((a - b) ** 2)))
        sums.append(math.sqrt(np.mean(a**2)) + math.sqrt(np.mean(b**2)))
    distance, low, high, _ = wasserstein2_rows(x[None], y[None], 0.95, 2000)[:, 0]
    assert high - distance == pytest.approx(np.quantile(norms, 0.95), rel=0.06)
    assert distance - low == pytest.approx(np.quantile(norms, 0.95), rel=0.06)
    assert np.quantile(sums, 0.95) > 1.2 * np.quantile(norms, 0.95)


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
@pytest.mark.parametrize(("test", "count"), [(joint_test, 99), (joint_wasserstein2, 19)])
def test_joint_tests_have_their_size(
    law: Callable[..., Array], test: Callable[..., Any], count: int
) -> None:
    rng = np.random.default_rng(15)
    p = np.array([test(law(rng, 30, 3), law(rng, 25, 3), count, s).p_value for s in range(200)])
    # Standard errors of 200 replications.
    assert np.mean(p <= 0.05) < 0.05 + 3 * 0.0154
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=3 * 0.0354)


@pytest.mark.parametrize(("correlation", "moved"), [(0.7, 0.3), (0.8, 0.5)])
def test_joint_tests_have_power(correlation: float, moved: float) -> None:
    """At least 80 % of 40 runs of 300 points, and of 20 of 100, see each difference at 5 %."""
    energy = moved == 0.3
    test, runs, points, count = (
        (joint_test, 40, 300, 99) if energy else (joint_wasserstein2, 20, 100, 19)
    )
    rng, rejections = np.random.default_rng(16), np.zeros(3)
    root = np.linalg.cholesky(np.array([[1.0, correlation], [correlation, 1.0]]))
    for seed in range(runs):
        x, y = rng.normal(size=(2, points, 2))
        # The second has equal margins, so no test of single coordinates can see it.
        pairs = [(x, y + moved), (x, y @ root.T)]
        pairs.append((np.exp(3 * x), np.exp(3 * y + 0.9)) if energy else (x, 1.6 * y))
        rejections += [test(*pair, count, seed).p_value <= 0.05 for pair in pairs]
    assert rejections.min() >= 0.8 * runs, rejections


@pytest.mark.parametrize(
    ("test", "used", "count"),
    [(joint_test, JOINT_POINTS, 99), (joint_wasserstein2, PAIRED_POINTS, 19)],
)
def test_joint_tests_use_the_first_points(test: Callable[..., Any], used: int, count: int) -> None:
    x, y = normal(1, used + 9, 2), normal(2, used + 5, 2)
    moved = x.copy()
    moved[used:] += 100.0
    assert test(x, y, count) == test(moved, y, count)
    assert test(x[::-1], y, count) != test(x, y, count)


def test_joint_wasserstein2_pairs_as_many_of_the_longer_as_there_are_of_the_shorter() -> None:
    x, y = normal(1, PAIRED_POINTS + 9, 2), normal(2, PAIRED_POINTS + 5, 2)
    few = joint_wasserstein2(x[:50], y[:50], 19)
    assert joint_wasserstein2(x[:50], y, 19) == few == joint_wasserstein2(x[:50], y[:200], 19)


def test_rounding_is_a_tie() -> None:
    x = np.ones((30, 2))
    y = x * (1 + 1e-15)
    assert joint_wasserstein2(x, y).p_value == 1.0
    assert joint_wasserstein2(x, y, precision=1e-17).p_value == 0.01


@pytest.mark.validation
@pytest.mark.parametrize("size", [64, 512, 4096])
def test_coverage_at_many_replications(size: int) -> None:
    rng, covered = np.random.default_rng(17), np.zeros(3)
    for seed in range(80):
        rows = rows_of(gauss(rng, 25, size), gauss(rng, 25, size), 0.95, 200, seed)
        covered += (rows[LOW] <= 0.0).mean(axis=1) / 80
    # The bootstrap of a linear norm is exact in the limit; that of Wasserstein-2 errs upwards.
    assert (np.abs(covered[:2] - 0.95) < 0.015).all(), covered
    assert covered[2] > 0.95 - 0.015, covered


# Randomness and errors


def test_results_depend_on_the_seed_and_on_the_observable_only() -> None:
    """Global generators are watched by the fixture of conftest.py."""
    x, y = normal(5, 4, 200), normal(6, 4, 150)
    together = rows_of(x, y, 0.95, 200, 3)
    np.testing.assert_array_equal(together, rows_of(x, y, 0.95, 200, 3))
    one = rows_of(x[2:3], y[2:3], 0.95, 200, 3)
    np.testing.assert_array_equal(one[..., 0], together[..., 2])
    assert (rows_of(x[2:3], y[2:3], 0.95, 200, 4) != one)[1:].any(axis=(0, 2)).all()
    for test, count in ((joint_test, 99), (joint_wasserstein2, 19)):
        assert test(x.T, y.T, count, 3) == test(x.T, y.T, count, 3)
        assert test(x.T, y.T, count, 3).null != test(x.T, y.T, count, 4).null


def test_refused_arguments() -> None:
    x, rows = normal(0, 10), normal(0, 2, 10)
    for x_bad, y_bad, message in (
        (rows, normal(0, 2, 1), r"^x and y must have at least 2 samples .*; got 10 and 1 with"),
        (rows, np.where(rows == rows[0, 3], np.inf, rows), "10 and 10 with 1 infinities or NaN"),
        (rows, normal(0, 3, 10), r"\(K, n\) and \(K, m\); got \(2, 10\) and \(3, 10\)"),
    ):
        for distances in (integral_distances, wasserstein2_rows):
            with pytest.raises(ValueError, match=message):
                distances(x_bad, y_bad)
    with pytest.raises(ValueError, match=r"^x and y must have"):
        ks_distance(rows, x)
    for test in (joint_test, joint_wasserstein2):
        with pytest.raises(ValueError, match=r"have shapes \(n, d\) and \(m, d\); got"):
            test(rows, normal(0, 2, 9))
        with pytest.raises(ValueError, match=r"^permutations must be >= 19 at confidence 0\.95"):
            test(rows, rows, 18)
    with pytest.raises(ValueError, match=r"^precision must be positive and finite; got 0\.0"):
        joint_wasserstein2(rows, rows, precision=0.0)
    for distances in (integral_distances, wasserstein2_rows):
        for confidence in (0.0, 1.0, math.nan):
            with pytest.raises(ValueError, match=r"^confidence must be in \(0, 1\); got"):
                distances(rows, rows, confidence)
        with pytest.raises(ValueError, match=r"^resamples must be >= 99 at confidence 0\.99"):
            distances(rows, rows, 0.99, 98)
        for seed in (-1, 0.5):
            with pytest.raises(ValueError, match=r"^seed must be an integer >= 0; got"):
                distances(rows, rows, seed=seed)
