r"""Two-sample distances with confidence intervals that hold near zero.

Notation: x_1..x_n and y_1..y_m are two independent i.i.d. samples with distribution functions F, G
and empirical distribution functions F_n, G_m. Each one-dimensional distance here is a norm of
F - G:

- Kolmogorov-Smirnov: sup_z abs(F(z) - G(z));
- Wasserstein-1: integral of abs(F - G);
- energy distance [2]_: sqrt(2 integral (F - G)^2) = sqrt(2 E|X-Y| - E|X-X'| - E|Y-Y'|).

The textbook bootstrap interval almost always misses a true distance of zero. Here every interval
comes from the triangle inequality,

    abs(norm(F_n - G_m) - norm(F - G)) <= R,   R = norm((F_n - F) - (G_m - G)),

so ``distance -+ q``, with q the `confidence` quantile of R, covers the truth at least that often:
exactly so (up to the estimate of q) when F = G, more often when they differ. For the supremum norm
q has a bound free of F and G (Dvoretzky, Kiefer, Wolfowitz, with the constant of Massart [1]_). For
the others, Efron's bootstrap estimates q from norm((F* - F_n) - (G* - G_m)). This requires
moments: it is meant for logarithms, correlations and capped times, and the intervals are too short
for raw lognormal variables of log-width 3. Nor can it account for an event that no sample contains.

`integral_distances` returns, for K observables at once, arrays (4, K): distance, low, high and the
null level below which equal laws stay with probability `confidence`. `x` and `y` are finite and
have shapes (K, n) and (K, m). It uses `resamples` bootstrap samples and as many permutations of the
pooled sample. The result for an observable depends only on its values and on the integer `seed`.

References
----------
.. [1] P. Massart. The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality. Ann. Probab. 18
   (1990) 1269-1283.
.. [2] G. J. Székely, M. L. Rizzo. Energy statistics: a class of statistics based on distances.
   J. Stat. Plan. Inference 143 (2013) 1249-1272.
.. [3] B. Phipson, G. K. Smyth. Permutation p-values should never be zero. Stat. Appl. Genet. Mol.
   Biol. 9 (2010) 39.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.spatial.distance import cdist

from shaped_attention.checks import argument_error, check_count, check_inside
from shaped_attention.numerics.seeds import STREAMS

# A few operations magnify the rounding error of V before it reaches an observable.
ROUNDING = 64
JOINT_POINTS = 1500
# Resamples are drawn in blocks of a fixed size: memory remains bounded at any sample size, and the
# draws do not depend on the number of observables that share them.
_BLOCK = 20
_TAIL_POINTS, _MIDDLE_POINTS = 1024, 2048
_BOOTSTRAP, _PERMUTATION, _JOINT = range(1, 4)

Array = NDArray[np.float64]


class KolmogorovSmirnov(NamedTuple):
    """A KS distance in [0, 1], its band, and the p-value of the hypothesis F = G."""

    distance: float
    low: float
    high: float
    p_value: float


class JointTest(NamedTuple):
    """A distance between laws of vectors, and its permutation p-value."""

    distance: float
    p_value: float


def ks_margin(n: int, m: int, confidence: float = 0.95) -> float:
    r"""Return the half-width of the two-sample DKW-Massart band of a KS distance.

    It is ``sqrt(log(2/a) / (2n)) + sqrt(log(2/a) / (2m))`` with a = (1 - confidence)/2, half of the
    error for each sample, and valid for all sizes and laws (Massart 1990, above).
    """
    check_inside("confidence", confidence)
    log = math.log(4.0 / (1.0 - confidence))
    return math.sqrt(log / (2 * n)) + math.sqrt(log / (2 * m))


def ks_distance(x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> KolmogorovSmirnov:
    """Compute the Kolmogorov-Smirnov distance with its DKW-Massart band.

    `x` and `y` have shapes (n,) and (m,), are finite, and may have ties. [low, high], clipped to
    [0, 1], covers the distance between the laws with probability at least `confidence`. The p-value
    is that of the limiting law: below 5 % it is not smaller than the exact one at any sizes, and
    with ties (capped times) it errs upwards.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    n, m = first.size, second.size
    margin = ks_margin(n, m, confidence)
    d = float(stats.ks_2samp(first, second, method="asymp").statistic)
    p = float(stats.kstwobign.sf(d * math.sqrt(n * m / (n + m))))
    return KolmogorovSmirnov(d, max(0.0, d - margin), min(1.0, d + margin), p)


def least_resolved_ks(n: int, m: int, level: float) -> float:
    """Return the smallest KS distance of samples of two sizes whose p-value is at most a level."""
    return float(stats.kstwobign.isf(level)) * math.sqrt((n + m) / (n * m))


def integral_distances(
    x: Array, y: Array, confidence: float = 0.95, resamples: int = 200, seed: int = 0
) -> tuple[Array, Array]:
    """Compute the Wasserstein-1 and energy distances of rows, two arrays (4, K).

    As a function of rank, a resampled distribution function does not depend on the values, so one
    set of resamples serves all observables. The distances use every point; the resampled ones use
    at most 4096 points of the pooled sample (1024 at either end, the middle thinned evenly).
    """
    rank = quantile_rank("resamples", resamples, confidence)
    x, y, n, m = np.sort(x, axis=1), np.sort(y, axis=1), x.shape[1], y.shape[1]
    pooled = np.sort(np.concatenate([x, y], axis=1), axis=1)
    points = pooled[:, _thinned_ranks(n + m)]
    grids = list(zip(points, *(_counts(rows, points) for rows in (x, y, pooled)), strict=True))
    bootstrap, permutation = _generator_of(seed, _BOOTSTRAP), _generator_of(seed, _PERMUTATION)

    def norms() -> Array:
        f, g = _resampled_function(bootstrap, n), _resampled_function(bootstrap, m)
        h = _permuted_function(permutation, n, m)
        return np.stack(
            [[_norms(f[:, i] - g[:, j], at), _norms(h[:, k], at)] for at, i, j, k in grids], axis=-1
        )

    margin, null = _order_statistics(norms, resamples, rank)
    distance = _norms(_counts(x, pooled) / n - _counts(y, pooled) / m, pooled)
    columns = np.stack([distance, np.maximum(distance - margin, 0.0), distance + margin, null], 1)
    return columns[0], columns[1]


def joint_test(x: Array, y: Array, permutations: int = 999, seed: int = 0) -> JointTest:
    r"""Test whether two samples of vectors have equal laws, by permutations of the energy distance.

    In Euclidean norms, ``E^2 = 2 mean|x_i - y_j| - mean|x_i - x_j| - mean|y_i - y_j|`` vanishes for
    the laws if and only if they are equal (Székely and Rizzo, above). Coordinates are first centred
    at the pooled median, divided by the pooled interquartile range (the standard deviation where
    that is zero, as for capped times) and passed through arcsinh. This map is one-to-one, so no
    difference is lost, and one heavy tail cannot dominate the remaining coordinates. Both samples
    are treated alike, so ``p = (1 + #{E_permuted >= E}) / (1 + permutations)`` (Phipson and Smyth,
    above) is exact.

    `x` and `y` are finite and have shapes (n, d) and (m, d). The first 1500 points of each are used
    (they are i.i.d.): one distance matrix then serves all `permutations`.
    """
    n, m = min(len(x), JOINT_POINTS), min(len(y), JOINT_POINTS)
    points = np.concatenate([x[:n], y[:m]])
    low, median, high = np.quantile(points, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high > low, high - low, points.std(axis=0))
    points = np.arcsinh((points - median) / np.where(scale > 0, scale, 1.0))

    centred = cdist(points, points)
    # With weights c = 1/n on the first sample and -1/m on the second, E^2 = -c' D c. Centring D,
    # allowed because c sums to zero, turns c into a 0/1 vector and keeps the small E^2 accurate.
    mean = centred.mean(axis=0)
    centred -= mean[:, None]
    centred -= mean - mean.mean()
    labels = np.tile(np.repeat([1.0, 0.0], [n, m]), (permutations + 1, 1))
    labels[1:] = _generator_of(seed, _JOINT).permuted(labels[1:], axis=1)
    energy = -((1 / n + 1 / m) ** 2) * np.einsum("bi,bi->b", labels, labels @ centred)
    energy = np.maximum(energy, 0.0)
    # Relabellings that tie with the data must count; their sums differ only by rounding.
    p_value = float((energy >= energy[0] * (1 - 1e-9)).mean())
    return JointTest(math.sqrt(energy[0]), p_value)


def _order_statistics(draw: Callable[[], Array], count: int, rank: int) -> Array:
    """Return the order statistic of `count` numbers, drawn along axis -2 in blocks."""
    drawn = np.concatenate([draw() for _ in range(0, count, _BLOCK)], axis=-2)
    return np.partition(drawn[..., :count, :], rank, axis=-2)[..., rank, :]


def _norms(process: Array, points: Array) -> Array:
    """Return the Wasserstein and energy norms (2, ...) of step functions on ascending points."""
    # Contiguous, since the order of the sums depends on it.
    steps, gaps = np.ascontiguousarray(process)[..., :-1], np.diff(points, axis=-1)
    squares = np.einsum("...i,...i,...i->...", steps, steps, gaps)
    return np.stack([np.einsum("...i,...i->...", np.abs(steps), gaps), np.sqrt(2 * squares)])


def _resampled_function(generator: np.random.Generator, n: int) -> Array:
    """Return F* - F_n as a function of the rank 0..n, for one block of bootstrap resamples."""
    draws = generator.integers(0, n, size=(_BLOCK, n)) + (n * np.arange(_BLOCK))[:, None]
    counts = np.bincount(draws.ravel(), minlength=n * _BLOCK).reshape(_BLOCK, n)
    return np.pad(np.cumsum(counts - 1, axis=1) / n, ((0, 0), (1, 0)))


def _permuted_function(generator: np.random.Generator, n: int, m: int) -> Array:
    """Return F - G of one block of relabelled samples as a function of the pooled rank 0..n+m."""
    weights = np.tile(np.repeat([1.0 / n, -1.0 / m], [n, m]), (_BLOCK, 1))
    return np.pad(np.cumsum(generator.permuted(weights, axis=1), axis=1), ((0, 0), (1, 0)))


def _counts(ordered: Array, points: Array) -> NDArray[np.intp]:
    """Count, row by row, the values of `ordered` at or below each point."""
    return np.stack([np.searchsorted(a, p, "right") for a, p in zip(ordered, points, strict=True)])


def _thinned_ranks(size: int) -> NDArray[np.intp]:
    """Return the ranks at which resampled functions are evaluated, including all of the tails."""
    if size <= 2 * _TAIL_POINTS + _MIDDLE_POINTS:
        return np.arange(size)
    tail = np.arange(_TAIL_POINTS)
    middle = np.linspace(_TAIL_POINTS, size - _TAIL_POINTS, _MIDDLE_POINTS, endpoint=False)
    return np.concatenate([tail, middle.astype(np.intp), tail + size - _TAIL_POINTS])


def rounded(values: Array, precision: float) -> Array:
    """Round values to 64 times the relative precision of V: equal values are then ties."""
    resolution = ROUNDING * precision
    return np.round(values / resolution) * resolution


def quantile_rank(name: str, count: int, confidence: float) -> int:
    """Return the index of the order statistic exceeded with probability <= 1 - confidence."""
    check_inside("confidence", confidence)
    rank = math.ceil(confidence * (count + 1) - 1e-9)
    if rank > count:
        fewest = math.ceil(confidence / (1 - confidence) - 1e-9)
        raise argument_error(name, f">= {fewest} at confidence {confidence}", count)
    return rank - 1


def _generator_of(seed: int, stream: int) -> np.random.Generator:
    """Return the generator of one use of the stream "statistics"; check that seed is valid."""
    check_count("seed", seed, lowest=0)
    return np.random.default_rng(
        np.random.SeedSequence(int(seed), spawn_key=(STREAMS["statistics"], stream))
    )
