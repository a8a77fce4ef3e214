"""Histograms of observables on one fixed grid, so that counts of different blocks add exactly.

Bins are uniform in asinh(x / c) with c = 1/20. Their width is 0.0005 near 0, and 1 % of x for
large x. A quantile computed from the counts is inside its bin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SCALE = 0.05
_LARGEST = 1e3
_INNER = 2046

EDGES: NDArray[np.float64] = _SCALE * np.sinh(
    np.linspace(-np.arcsinh(_LARGEST / _SCALE), np.arcsinh(_LARGEST / _SCALE), _INNER + 1)
)
"""Inner edges, from -1000 to 1000; beyond them lie the first and the last bin."""

BINS = _INNER + 2

STOPPING_BINS = 100
"""Bins of stopping times over [0, T]; one more counts the paths that did not stop."""


def histogram(values: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return counts (time, observable, bin) of values (time, sample, observable)."""
    times, _, names = values.shape
    bins = np.searchsorted(EDGES, values, side="right")
    counts = np.empty((times, names, BINS), dtype=np.uint32)
    for i in range(times):
        for j in range(names):
            counts[i, j] = np.bincount(bins[i, :, j], minlength=BINS)
    return counts


def quantile(counts: NDArray[np.integer], level: float) -> NDArray[np.float64]:
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
