from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shaped_attention.statistics.distances import (
    JOINT_POINTS,
    energy_distance,
    integral_distances,
    joint_test,
    ks_distance,
    ks_margin,
    quantile_rank,
    wasserstein1,
)

Array = NDArray[np.float64]
LOW, HIGH = 1, 2


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def inside(row: Array, truth: float) -> float:
    return float(((row[LOW] <= truth) & (truth <= row[HIGH])).mean())


# Values


def test_distances_agree_with_scipy_ties_included() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((30, 47), (3000, 2500)):
        x, y = np.round(rng.normal(size=n), 1), np.round(rng.exponential(size=m), 1)
        assert wasserstein1(x, y).distance == pytest.approx(stats.wasserstein_distance(x, y))
        assert energy_distance(x, y).distance == pytest.approx(stats.energy_distance(x, y))
        assert ks_distance(x, y).distance == pytest.approx(stats.ks_2samp(x, y).statistic)


def test_quantiles_of_shifted_gaussians_and_uniforms_give_the_closed_forms() -> None:
    u = (np.arange(20000) + 0.5) / 20000
    x, shift = stats.norm.ppf(u), 0.3
    assert ks_distance(x, x + shift).distance == pytest.approx(
        2 * stats.norm.cdf(shift / 2) - 1, abs=2 / u.size
    )
    assert wasserstein1(x, x + shift).distance == pytest.approx(shift)
    s = 0.25
    assert ks_distance(u, u + s).distance == pytest.approx(s, abs=2 / u.size)
    assert wasserstein1(u, u + s).distance == pytest.approx(s)
    # F - G is a trapezium of height s, base 1 + s and ramps of length s.
    squares = s**2 * (1 - s) + 2 * s**3 / 3
    assert energy_distance(u, u + s).distance == pytest.approx(math.sqrt(2 * squares), rel=1e-4)


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


def test_equal_constants_are_at_distance_zero() -> None:
    x = np.full(40, 0.75)
    assert ks_distance(x, x)[0::3] == (0.0, 1.0)
    assert wasserstein1(x, x) == (0.0, 0.0, 0.0, 0.0)
    assert energy_distance(x, x) == (0.0, 0.0, 0.0, 0.0)
    assert joint_test(np.ones((30, 2)), np.ones((20, 2)), 99) == (0.0, 1.0, 0.0)


# Coverage: 400 replications, so 95 % coverage has a standard error of 1.1 %.


def gauss(rng: np.random.Generator, k: int, n: int) -> Array:
    return rng.normal(size=(k, n))


def capped(rng: np.random.Generator, k: int, n: int) -> Array:
    return np.minimum(rng.exponential(8.0, size=(k, n)), 1.0)


def heavy(rng: np.random.Generator, k: int, n: int) -> Array:
    return np.exp(3.0 * rng.normal(size=(k, n)))


@pytest.mark.parametrize("law", [gauss, capped, heavy])
def test_intervals_cover_zero_when_the_laws_are_equal(
    law: Callable[[np.random.Generator, int, int], Array],
) -> None:
    rng, covered, above = np.random.default_rng(11), [], []
    for seed in range(16):
        x, y = law(rng, 25, 300), law(rng, 25, 200)
        for rows in integral_distances(x, y, 0.95, 100, seed):
            covered.append(inside(rows, 0.0))
            above.append(float((rows[0] > rows[3]).mean()))
    assert np.mean(covered) > 0.95 - 3 * 0.011
    # The null level is a test of size 5 %: neither exceeded too often nor out of reach.
    assert 0.05 - 3 * 0.011 < np.mean(above) < 0.05 + 3 * 0.011


@pytest.mark.parametrize("shift", [0.1, 1.0])
def test_intervals_cover_a_shift(shift: float) -> None:
    root = math.sqrt(2.0)
    cross = 2 * math.exp(-(shift**2) / 4) / math.sqrt(math.pi) + shift * (
        1 - 2 * stats.norm.cdf(-shift / root)
    )
    truths = (shift, math.sqrt(2 * cross - 4 / math.sqrt(math.pi)))
    rng, covered = np.random.default_rng(12), np.zeros(2)
    for seed in range(16):
        x, y = gauss(rng, 25, 300), gauss(rng, 25, 200) + shift
        rows = integral_distances(x, y, 0.95, 100, seed)
        covered += [inside(r, t) / 16 for r, t in zip(rows, truths, strict=True)]
    assert (covered > 0.95 - 3 * 0.011).all()


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
    """Control for the two above: the textbook interval fails the same check."""
    rng, hits = np.random.default_rng(13), 0
    for _ in range(40):
        x, y = rng.normal(size=200), rng.normal(size=200)
        again = [
            stats.wasserstein_distance(rng.choice(x, 200), rng.choice(y, 200)) for _ in range(60)
        ]
        hits += bool(np.quantile(again, 0.025) <= 0.0)
    assert hits == 0


def test_intervals_shrink_so_that_they_say_something() -> None:
    width = [float(np.ptp(wasserstein1(normal(1, n), normal(2, n) + 1)[1:3])) for n in (500, 8000)]
    assert width[1] == pytest.approx(width[0] / 4, rel=0.2)
    assert width[1] < 0.1
    assert wasserstein1(normal(1, 8000), normal(2, 8000) + 0.1).low > 0.0


def test_thinning_of_large_samples_does_not_move_the_quantiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.exp(2 * normal(3, 1, 9000)), np.exp(2 * normal(4, 1, 7000))
    thinned = np.stack(integral_distances(x, y))
    monkeypatch.setattr("shaped_attention.statistics.distances._MIDDLE_POINTS", 20000)
    np.testing.assert_allclose(thinned, np.stack(integral_distances(x, y)), rtol=0.01)


def test_ks_band_covers_and_the_p_value_keeps_its_size() -> None:
    rng, shift = np.random.default_rng(14), 0.4
    truth = 2 * stats.norm.cdf(shift / 2) - 1
    bands = [ks_distance(rng.normal(size=80), rng.normal(size=60) + shift, 0.8) for _ in range(300)]
    assert np.mean([b.low <= truth <= b.high for b in bands]) >= 0.8
    null = [ks_distance(*capped(rng, 2, 200)).p_value for _ in range(300)]
    assert np.mean(np.array(null) <= 0.05) < 0.05 + 3 * 0.0126
    assert ks_distance(normal(1, 2000), normal(2, 2000) + 0.4).p_value < 1e-6


def test_ks_of_nearly_identical_samples_is_quiet() -> None:
    """The exact p-value rounds to above 1 here, which scipy answers with a warning."""
    x = normal(0, 400)
    y = np.where(x == x[0], x[0] + 1e-12, x)
    assert ks_distance(x, y).p_value == pytest.approx(1.0)


# The joint test


@pytest.mark.parametrize("law", [capped, heavy])
def test_joint_test_has_its_size(law: Callable[[np.random.Generator, int, int], Array]) -> None:
    rng = np.random.default_rng(15)
    p = [joint_test(law(rng, 60, 3), law(rng, 50, 3), 99, s).p_value for s in range(200)]
    # Standard errors of 200 replications.
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 3 * 0.0154
    assert np.mean(np.array(p) <= 0.5) == pytest.approx(0.5, abs=3 * 0.0354)


def test_joint_test_has_power() -> None:
    rng = np.random.default_rng(16)
    root = np.linalg.cholesky(np.array([[1.0, 0.7], [0.7, 1.0]]))
    rejections = {"shift": 0, "dependence": 0, "heavy tails": 0}
    for seed in range(40):
        x, y = rng.normal(size=(2, 300, 2))
        rejections["shift"] += joint_test(x, y + 0.3, 99, seed).p_value <= 0.05
        # Equal margins, so no test of single coordinates can see this one.
        rejections["dependence"] += joint_test(x, y @ root.T, 99, seed).p_value <= 0.05
        heavier = joint_test(np.exp(3 * x), np.exp(3 * y + 0.9), 99, seed)
        rejections["heavy tails"] += heavier.p_value <= 0.05
    assert min(rejections.values()) >= 32, rejections


def test_joint_test_uses_the_first_points() -> None:
    x, y = normal(1, JOINT_POINTS + 300, 2), normal(2, JOINT_POINTS + 9, 2)
    moved = x.copy()
    moved[JOINT_POINTS:] += 100.0
    assert joint_test(x, y, 99) == joint_test(moved, y, 99)
    assert joint_test(x[::-1], y, 99) != joint_test(x, y, 99)


@pytest.mark.validation
@pytest.mark.parametrize("size", [64, 512, 4096])
def test_coverage_at_many_replications(size: int) -> None:
    rng, covered = np.random.default_rng(17), np.zeros(2)
    for seed in range(80):
        rows = integral_distances(gauss(rng, 25, size), gauss(rng, 25, size), 0.95, 200, seed)
        covered += [inside(r, 0.0) / 80 for r in rows]
    assert (np.abs(covered - 0.95) < 0.015).all(), covered


# Randomness


def test_results_depend_on_the_seed_alone() -> None:
    """Global generators are watched by the fixture of conftest.py."""
    x, y = normal(5, 4, 200), normal(6, 4, 150)
    together = np.stack(integral_distances(x, y, seed=3))
    np.testing.assert_array_equal(together, np.stack(integral_distances(x, y, seed=3)))
    assert wasserstein1(x[2], y[2], seed=3) == tuple(together[0, :, 2])
    assert energy_distance(x[2], y[2], seed=3) == tuple(together[1, :, 2])
    assert wasserstein1(x[2], y[2], seed=4)[1:] != wasserstein1(x[2], y[2], seed=3)[1:]
    assert joint_test(x.T, y.T, 99, 3) == joint_test(x.T, y.T, 99, 3)
    assert joint_test(x.T, y.T, 99, 3).null != joint_test(x.T, y.T, 99, 4).null


# Errors


def test_refused_arguments() -> None:
    x, rows = normal(0, 10), normal(0, 2, 10)
    with pytest.raises(ValueError, match=r"x has shape \(2, 10\); \(samples,\) is needed"):
        ks_distance(rows, x)
    with pytest.raises(ValueError, match=r"y has shape"):
        wasserstein1(x, rows)
    with pytest.raises(ValueError, match=r"x and y have 10 and 1 samples with"):
        ks_distance(x, x[:1])
    with pytest.raises(ValueError, match=r"have 10 and 10 samples with 1 infinities or NaN"):
        energy_distance(x, np.where(x == x[3], np.inf, x))
    with pytest.raises(
        ValueError, match=r"shapes \(2, 10\) and \(3, 10\); \(K, n\) and \(K, m\) are"
    ):
        integral_distances(rows, normal(0, 3, 10))
    with pytest.raises(ValueError, match=r"; \(n, d\) and \(m, d\) are needed"):
        joint_test(rows, normal(0, 2, 9))
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\); got .*"):
            ks_distance(x, x, confidence)
        with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
            wasserstein1(x, x, confidence)
    with pytest.raises(ValueError, match=r"resamples=98: at least 99 at confidence 0\.99"):
        wasserstein1(x, x, 0.99, resamples=98)
    with pytest.raises(ValueError, match=r"permutations=.*: at least 19"):
        joint_test(rows, rows, 18)
    for seed in (-1, 0.5):
        with pytest.raises(ValueError, match="must be an integer >= 0"):
            wasserstein1(x, x, seed=seed)  # type: ignore[arg-type]
