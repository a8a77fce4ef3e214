"""Distances of two samples: Kolmogorov and Smirnov's of numbers, and the energy of vectors.

Notation: x_1..x_n and y_1..y_m are two independent i.i.d. samples with distribution functions F, G
and empirical distribution functions F_n, G_m. The triangle inequality

    abs(sup |F_n - G_m| - sup |F - G|) <= sup |F_n - F| + sup |G_m - G|

gives a band that covers the distance of the laws whether or not they differ, where the textbook
bootstrap almost always misses a distance of zero. Its width does not depend on F and G (Dvoretzky,
Kiefer, Wolfowitz, with the constant of Massart [1]_).

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
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.spatial.distance import cdist

from shaped_attention.checks import check_count, check_inside
from shaped_attention.numerics.seeds import STREAMS

# A few operations magnify the rounding error of V before it reaches an observable.
ROUNDING = 64
JOINT_POINTS = 1500
_JOINT = 3
"""The use of the stream "statistics" by the joint test."""

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
    check_count("seed", seed, lowest=0)
    sequence = np.random.SeedSequence(int(seed), spawn_key=(STREAMS["statistics"], _JOINT))
    labels[1:] = np.random.default_rng(sequence).permuted(labels[1:], axis=1)
    energy = -((1 / n + 1 / m) ** 2) * np.einsum("bi,bi->b", labels, labels @ centred)
    energy = np.maximum(energy, 0.0)
    # Relabellings that tie with the data must count; their sums differ only by rounding.
    p_value = float((energy >= energy[0] * (1 - 1e-9)).mean())
    return JointTest(math.sqrt(energy[0]), p_value)


def rounded(values: Array, precision: float) -> Array:
    """Round values to 64 times the relative precision of V: equal values are then ties."""
    resolution = ROUNDING * precision
    return np.round(values / resolution) * resolution
