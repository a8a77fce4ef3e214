"""Wasserstein-2 distances: identities, coverage of the intervals, size and power of the test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment, linprog

from shaped_attention.statistics.distances import wasserstein1
from shaped_attention.statistics.transport import (
    PAIRED_POINTS,
    joint_wasserstein2,
    wasserstein2,
    wasserstein2_rows,
)

Array = NDArray[np.float64]
LOW, HIGH, NULL = 1, 2, 3


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def gauss(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape)


def capped(rng: np.random.Generator, *shape: int) -> Array:
    return np.minimum(rng.exponential(8.0, size=shape), 1.0)


def split(rng: np.random.Generator, *shape: int) -> Array:
    """Two halves with a gap between them, where W2 shrinks as n^-1/4 only."""
    return np.where(rng.random(shape) < 0.5, 0.0, 1.0) + 0.1 * rng.random(shape)


# Values


def test_a_shift_is_its_length() -> None:
    x = normal(0, 301)
    for c in (-2.0, 1e-6, 0.3):
        assert wasserstein2(x, x + c).distance == pytest.approx(abs(c), rel=1e-9, abs=0.0)
    assert wasserstein2(x, np.repeat(x, 3)).distance == 0.0
    assert joint_wasserstein2(x[:, None] + [0.0, 5.0], x[:, None] + [3.0, 9.0], 19).distance == (
        pytest.approx(5.0, rel=1e-12)
    )


def test_equal_sizes_agree_with_the_optimal_assignment() -> None:
    """Against scipy on the matrix of squares, and in 1D the vectors' distance is the scalars'."""
    x, y = normal(1, 60), np.exp(normal(2, 60))
    cost = (x[:, None] - y[None]) ** 2
    expected = math.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert wasserstein2(x, y).distance == pytest.approx(expected, rel=1e-12)
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
    found = wasserstein2(x, y).distance
    assert found == pytest.approx(math.sqrt(program.fun), rel=1e-9)
    levels = sorted({Fraction(i, n) for i in range(n + 1)} | {Fraction(j, m) for j in range(m + 1)})
    total = sum(
        float(b - a) * (np.sort(x)[math.floor(a * n)] - np.sort(y)[math.floor(a * m)]) ** 2
        for a, b in itertools.pairwise(levels)
    )
    assert found == pytest.approx(math.sqrt(total), rel=1e-12)


@pytest.mark.parametrize(("n", "m"), [(40, 40), (53, 97)])
def test_wasserstein1_is_at_most_wasserstein2(n: int, m: int) -> None:
    for seed in range(20):
        x, y = normal(seed, n), 1.5 * normal(100 + seed, m)
        first, second = stats.wasserstein_distance(x, y), wasserstein2(x, y, 0.5, resamples=1)
        assert first <= second.distance * (1 + 1e-12)
        assert wasserstein1(x, y).distance == pytest.approx(first, rel=1e-12)
    # Two points moved by 1 and 3: the means of lengths and of squares.
    assert wasserstein2([0.0, 10.0], [1.0, 13.0]).distance == pytest.approx(math.sqrt(5.0))


def test_quantiles_of_two_gaussians_give_the_closed_form() -> None:
    """W2^2 = (difference of means)^2 + (difference of standard deviations)^2."""
    z = stats.norm.ppf((np.arange(20000) + 0.5) / 20000)
    z /= z.std()
    found = wasserstein2(z, 0.4 + 1.3 * z, resamples=19).distance
    assert found == pytest.approx(0.5, rel=1e-12)


def test_scale_is_no_obstacle() -> None:
    x, y = normal(5, 50), normal(6, 40) + 1.0
    rows = np.array(wasserstein2(x, y))
    for exponent in (-900, 900):
        moved = wasserstein2(np.ldexp(x, exponent), np.ldexp(y, exponent))
        np.testing.assert_array_equal(np.ldexp(moved, -exponent), rows)
        joint = joint_wasserstein2(np.ldexp(x[:, None], exponent), np.ldexp(y[:, None], exponent))
        expected = joint_wasserstein2(x[:, None], y[:, None])
        assert joint.p_value == expected.p_value
        assert np.ldexp(joint.distance, -exponent) == expected.distance


def test_equal_constants_are_at_distance_zero() -> None:
    for value in (0.0, 0.75):
        x = np.full(40, value)
        assert wasserstein2(x, x[:30]) == (0.0, 0.0, 0.0, 0.0)
        assert joint_wasserstein2(x[:, None], x[:, None]) == (0.0, 1.0, 0.0)


# Intervals and null levels. 400 replications: 95 % coverage has a standard error of 1.1 %.


def coverage(
    law: Callable[..., Array], shift: float, sizes: tuple[int, int] = (200, 150)
) -> tuple[float, float]:
    """Fractions of intervals with the true distance inside, and of null levels exceeded."""
    rng, inside, above = np.random.default_rng(21), [], []
    for seed in range(16):
        x, y = law(rng, 25, sizes[0]), law(rng, 25, sizes[1]) + shift
        rows = wasserstein2_rows(x, y, 0.95, 99, seed)
        inside.append(((rows[LOW] <= shift) & (shift <= rows[HIGH])).mean())
        above.append((rows[0] > rows[NULL]).mean())
    return float(np.mean(inside)), float(np.mean(above))


@pytest.mark.parametrize("law", [gauss, capped, split])
def test_intervals_cover_zero_and_null_levels_have_their_size(law: Callable[..., Array]) -> None:
    inside, above = coverage(law, 0.0)
    assert inside > 0.95 - 3 * 0.011
    assert 0.05 - 3 * 0.011 < above < 0.05 + 3 * 0.011


@pytest.mark.parametrize("law", [gauss, capped])
def test_intervals_cover_a_shift_which_the_null_level_detects(law: Callable[..., Array]) -> None:
    inside, above = coverage(law, 0.4)
    assert inside > 0.95 - 3 * 0.011
    # The control of the test above: laws that differ exceed the level far more often.
    assert above > 0.8


def test_the_percentile_bootstrap_would_not_cover_zero() -> None:
    """Control: the textbook interval of the distance itself misses zero in every run."""
    rng, missed = np.random.default_rng(22), 0
    for _ in range(40):
        x, y = np.sort(rng.normal(size=(2, 200)), axis=1)
        again = np.sort(rng.choice(x, (60, 200))), np.sort(rng.choice(y, (60, 200)))
        distances = np.sqrt(np.mean((again[0] - again[1]) ** 2, axis=1))
        missed += bool(np.quantile(distances, 0.025) > 0.0)
    assert missed == 40


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
    found = wasserstein2(x, y, resamples=2000)
    assert found.high - found.distance == pytest.approx(np.quantile(norms, 0.95), rel=0.06)
    assert found.distance - found.low == pytest.approx(np.quantile(norms, 0.95), rel=0.06)
    assert np.quantile(sums, 0.95) > 1.2 * np.quantile(norms, 0.95)


def test_thinning_of_large_samples_does_not_move_the_quantiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.exp(normal(3, 1, 6000)), np.exp(normal(4, 1, 5000))
    thinned = wasserstein2_rows(x, y, 0.95, 99)
    monkeypatch.setattr("shaped_attention.statistics.distances._MIDDLE_POINTS", 20000)
    np.testing.assert_allclose(thinned, wasserstein2_rows(x, y, 0.95, 99), rtol=0.01)


# The test of vectors


def test_the_joint_test_has_its_size() -> None:
    rng = np.random.default_rng(15)
    p = np.array(
        [
            joint_wasserstein2(gauss(rng, 30, 3), gauss(rng, 25, 3), 19, s).p_value
            for s in range(200)
        ]
    )
    # Standard errors of 200 replications. The power below shows that it is not silent.
    assert np.mean(p <= 0.05) < 0.05 + 3 * 0.0154
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=3 * 0.0354)


def test_the_joint_test_has_power() -> None:
    rng = np.random.default_rng(16)
    root = np.linalg.cholesky(np.array([[1.0, 0.8], [0.8, 1.0]]))
    rejections = {"shift": 0, "scale": 0, "dependence": 0}
    for seed in range(20):
        x, y = rng.normal(size=(2, 100, 2))
        for name, moved in (("shift", y + 0.5), ("scale", 1.6 * y), ("dependence", y @ root.T)):
            rejections[name] += joint_wasserstein2(x, moved, 19, seed).p_value <= 0.05
    assert min(rejections.values()) >= 16, rejections


def test_the_joint_test_uses_the_first_points_of_each() -> None:
    x, y = normal(1, PAIRED_POINTS + 9, 2), normal(2, PAIRED_POINTS + 5, 2)
    moved = x.copy()
    moved[PAIRED_POINTS:] += 100.0
    found = joint_wasserstein2(x, y, 19)
    assert found == joint_wasserstein2(moved, y, 19)
    assert found != joint_wasserstein2(x[::-1], y, 19)
    # Of unequal sizes, as many of the longer as there are of the shorter.
    few = joint_wasserstein2(x[:50], y[:50], 19)
    assert joint_wasserstein2(x[:50], y, 19) == few == joint_wasserstein2(x[:50], y[:200], 19)


def test_rounding_is_a_tie() -> None:
    x = np.ones((30, 2))
    y = x * (1 + 1e-15)
    assert joint_wasserstein2(x, y).p_value == 1.0
    assert joint_wasserstein2(x, y, precision=1e-17).p_value == 0.01


# Randomness and errors


def test_results_depend_on_the_seed_and_on_the_observable_alone() -> None:
    x, y = normal(5, 4, 200), normal(6, 4, 150)
    together = wasserstein2_rows(x, y, seed=3)
    np.testing.assert_array_equal(together, wasserstein2_rows(x, y, seed=3))
    assert wasserstein2(x[2], y[2], seed=3) == tuple(together[:, 2])
    assert wasserstein2(x[2], y[2], seed=4)[1:] != wasserstein2(x[2], y[2], seed=3)[1:]
    assert joint_wasserstein2(x.T, y.T, 19, 3) == joint_wasserstein2(x.T, y.T, 19, 3)
    assert joint_wasserstein2(x.T, y.T, 19, 3).null != joint_wasserstein2(x.T, y.T, 19, 4).null


def test_refused_arguments() -> None:
    x, rows = normal(0, 10), normal(0, 2, 10)
    with pytest.raises(ValueError, match=r"x has shape \(2, 10\); \(samples,\) is needed"):
        wasserstein2(rows, x)
    with pytest.raises(ValueError, match=r"x and y have 10 and 1 samples with"):
        wasserstein2(x, x[:1])
    with pytest.raises(ValueError, match="have 10 and 10 samples with 1 infinities or NaN"):
        wasserstein2(x, np.where(x == x[3], np.nan, x))
    with pytest.raises(ValueError, match=r"; \(K, n\) and \(K, m\) are needed"):
        wasserstein2_rows(rows, normal(0, 3, 10))
    with pytest.raises(ValueError, match=r"; \(n, d\) and \(m, d\) are needed"):
        joint_wasserstein2(rows, normal(0, 2, 9))
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\); got .*"):
        wasserstein2(x, x, math.nan)
    with pytest.raises(ValueError, match=r"resamples=18: at least 19 at confidence 0\.95"):
        wasserstein2(x, x, resamples=18)
    with pytest.raises(ValueError, match=r"permutations=.*: at least 19"):
        joint_wasserstein2(rows, rows, 18)
    with pytest.raises(ValueError, match=r"precision must be positive and finite; got 0\.0"):
        joint_wasserstein2(rows, rows, precision=0.0)
    with pytest.raises(ValueError, match="seed must be an integer >= 0; got -1"):
        wasserstein2(x, x, seed=-1)
