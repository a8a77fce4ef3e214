"""What the blocks of a cell say together: moments and their intervals, histograms, quantiles.

Histograms are on one fixed grid, so that counts of different blocks add exactly. Bins are uniform
in asinh(x / c) with c = 1/20. Their width is 0.0005 near 0, and 1 % of x for large x. A quantile
computed from the counts is inside its bin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from shaped_attention.statistics.proportions import fraction_bounds

Floats = NDArray[np.float64]

_SCALE = 0.05
_LARGEST = 1e3
_INNER = 2046

EDGES: Floats = _SCALE * np.sinh(
    np.linspace(-np.arcsinh(_LARGEST / _SCALE), np.arcsinh(_LARGEST / _SCALE), _INNER + 1)
)
"""Inner edges, from -1000 to 1000; beyond them lie the first and the last bin."""

BINS = _INNER + 2

STOPPING_BINS = 100
"""Bins of stopping times over [0, T]; one more counts the paths that did not stop."""


def histogram(values: Floats) -> NDArray[np.uint32]:
    """Return counts (time, observable, bin) of values (time, sample, observable)."""
    bins = np.searchsorted(EDGES, values, side="right")
    counts = np.apply_along_axis(np.bincount, 1, bins, minlength=BINS)
    return counts.transpose(0, 2, 1).astype(np.uint32)


def quantile(counts: NDArray[np.integer], level: float) -> Floats:
    """Return the quantile of counts (..., bin), linear inside its bin; NaN without counts.

    In the two outermost bins it is the edge.
    """
    total = counts.sum(axis=-1)
    cumulative = counts.cumsum(axis=-1)
    wanted = level * total
    bin_ = np.argmax(cumulative >= np.maximum(wanted, 0.5)[..., None], axis=-1)
    here = np.take_along_axis(counts, bin_[..., None], -1)[..., 0]
    before = np.take_along_axis(cumulative, bin_[..., None], -1)[..., 0] - here
    share = np.clip((wanted - before) / np.maximum(here, 1), 0.0, 1.0)
    padded = np.concatenate([EDGES[:1], EDGES, EDGES[-1:]])
    low, high = padded[bin_], padded[bin_ + 1]
    return np.where(total > 0, low + share * (high - low), np.nan)


def merged(counts: ArrayLike, sums: ArrayLike, squares: ArrayLike) -> tuple[Floats, Floats]:
    """Return mean and variance (with N - 1) from sums of blocks, in order along the first axis.

    `squares` are squared deviations from a block's own mean (Chan, Golub and LeVeque, Am.
    Statistician 37, 1983). Blocks with a count of 0 are ignored. NaN if there are too few samples.
    """
    n, s, q = (np.asarray(x, dtype=np.float64) for x in (counts, sums, squares))
    n = n.reshape(n.shape + (1,) * (s.ndim - n.ndim)) if n.ndim < s.ndim else n
    s, q = np.where(n > 0, s, 0.0), np.where(n > 0, q, 0.0)
    total = n.sum(0)
    mean = s.sum(0) / np.where(total > 0, total, np.nan)
    between = (n * (s / np.where(n > 0, n, 1.0) - mean) ** 2).sum(0)
    return mean, (q.sum(0) + between) / np.where(total > 1, total - 1, np.nan)


def half_width(
    samples: ArrayLike, mean: ArrayLike, variance: ArrayLike, level: float, frequency: ArrayLike
) -> Floats:
    """Return half the width of the confidence interval of means.

    The interval is normal, and infinite for fewer than two samples. If the mean is a `frequency`,
    the result is the longer side of the exact interval (`fraction_bounds`), so that mean +- half
    has at least the coverage `level`.
    """
    n, m, v = (np.asarray(x, dtype=np.float64) for x in (samples, mean, variance))
    half = -ndtri((1.0 - level) / 2.0) * np.sqrt(v / np.maximum(n, 2.0))
    half = np.where(n < 2.0, np.inf, half)
    low, high = frequency_bounds(n, m, level, frequency)
    return np.where(frequency, np.fmax(high - m, m - low), half)


def frequency_bounds(
    samples: ArrayLike, mean: ArrayLike, level: float, frequency: ArrayLike = True
) -> tuple[Floats, Floats]:
    """Return the exact interval of means that are a `frequency`; NaN for the others."""
    n, m, counted = np.broadcast_arrays(np.asarray(samples, float), mean, np.asarray(frequency))
    low, high = np.full(m.shape, np.nan), np.full(m.shape, np.nan)
    # Without samples the mean is NaN; zero successes stand for it.
    successes = np.rint(np.where(n > 0.0, m * n, 0.0))
    low[counted], high[counted] = fraction_bounds(successes[counted], n[counted], level)
    return low, high
