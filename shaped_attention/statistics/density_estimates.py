r"""Histograms and kernel estimates of the density of a sample, with pointwise intervals.

On a bounded support the kernel estimate uses the linear boundary kernel [1]_: at x, with
u = (x - X) / h and the partial moments a_j = int u^j K(u) du over the u whose X lie in the support,

.. math:: K_L(u) = \frac{a_2 - a_1 u}{a_0 a_2 - a_1^2} K(u),

which has mass 1 and mean 0 there. Its bias is O(h^2) up to the boundary. At the boundary, a
Gaussian kernel without correction loses half of the density.

References
----------
.. [1] M. C. Jones. Simple boundary correction for kernel density estimation. Statistics and
   Computing 3 (1993), 135-146.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from shaped_attention.checks import (
    check_choice,
    check_count,
    check_inside,
    check_positive,
    real_array,
)
from shaped_attention.statistics.proportions import fraction_bounds

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Bins = int | Sequence[float] | Floats

RULES = {"scott": 1.06, "silverman": 0.9}
"""Factors of A N^(-1/5), with A the smaller of the standard deviation and IQR / 1.349."""

UNBOUNDED: Interval = (-math.inf, math.inf)
FEWEST = 8
"""Smallest number of samples of an estimate."""

_ATOM = 0.01
_ROUNDING = 1e-9
_REACH = 9.0
"""Bandwidths beyond which the Gaussian kernel is below rounding."""


def estimate_density(
    values: ArrayLike,
    *,
    bins: Bins | None = None,
    bandwidth: float | str | None = None,
    support: Interval = UNBOUNDED,
    window: Interval | None = None,
    points: int = 201,
    level: float = 0.95,
    without: float | None = None,
) -> xr.Dataset:
    """Estimate the density of the law of `values`, as `density` does, but accept atoms.

    Values equal to `without` are samples, but not part of the density: its mass is the share of
    the others.
    """
    check_inside("level", level)
    if bins is not None and bandwidth is not None:
        raise ValueError(f"bandwidth={bandwidth!r}: a histogram (bins=) has none")
    low, high = _interval("support", support)
    sample = np.sort(real_array(values, "values").ravel())
    if len(sample) < FEWEST or not np.isfinite(sample).all():
        raise ValueError(
            f"values: at least {FEWEST} finite numbers are needed, not {len(sample)} with "
            f"{int((~np.isfinite(sample)).sum())} infinite or NaN"
        )
    slack = _ROUNDING * max(1.0, abs(sample[0]), abs(sample[-1]))
    if sample[0] < low - slack or sample[-1] > high + slack:
        raise ValueError(
            f"support=({low:g}, {high:g}): the values, from {sample[0]:.6g} to {sample[-1]:.6g}, "
            "have to be inside"
        )
    total = len(sample)
    sample = np.clip(sample if without is None else sample[sample != without], low, high)
    if window is None:
        window = density_window(sample, (low, high))
    else:
        window = _interval("window", window)
        if not (low <= window[0] and window[1] <= high and np.isfinite(window).all()):
            raise ValueError(
                f"window={window!r}: finite ends inside the support ({low:g}, {high:g}) are needed"
            )
    if bins is not None:
        return _histogram(sample, total, _edges(bins, window), (low, high), level)
    check_count("points", points, 2)
    h = _bandwidth(sample, "scott" if bandwidth is None else bandwidth, (low, high))
    return _kernel(sample, total, np.linspace(*window, points), h, (low, high), level)


def density_window(values: Floats, support: Interval = UNBOUNDED) -> Interval:
    """Return the central 99.8 % of the values and a quarter of that range on both sides."""
    low, high = np.quantile(values, [0.001, 0.999])
    if high <= low:
        low, high = values.min(), values.max()
    margin = 0.25 * (high - low)
    return max(float(low - margin), support[0]), min(float(high + margin), support[1])


def atom(values: Floats) -> float | None:
    """Return the common value of all `values` up to rounding, or None."""
    spread = float(np.ptp(values))
    return float(values[0]) if spread <= _ROUNDING * float(np.abs(values).max()) else None


def largest_atom(values: Floats, place: float | None = None) -> tuple[float, float] | None:
    """Return the most frequent value and its share; None if it is one sample or at most 1 %.

    With `place`, that is the only value that may be an atom: times on a grid are often equal.
    """
    if place is None:
        found, counts = np.unique(values, return_counts=True)
        place = float(found[np.argmax(counts)])
    count = int((values == place).sum())
    share = count / len(values)
    return (place, share) if count > 1 and share > _ATOM else None


def _histogram(
    sample: Floats, total: int, edges: Floats, support: Interval, level: float
) -> xr.Dataset:
    width = np.diff(edges)
    counts = np.histogram(sample, edges)[0]
    share = counts / total
    lower, upper = fraction_bounds(counts, total, level)
    found = {
        "density": share / width,
        "standard_error": np.sqrt(share * (1.0 - share) / total) / width,
        "lower": lower / width,
        "upper": upper / width,
    }
    attrs = {
        "method": "histogram",
        "bins": len(width),
        "outside": (len(sample) - counts.sum()) / total,
    }
    data = _dataset(0.5 * (edges[:-1] + edges[1:]), found, attrs, total, support, level)
    return data.assign_coords(left=("value", edges[:-1]), right=("value", edges[1:]))


def _kernel(
    sample: Floats, total: int, grid: Floats, h: float, support: Interval, level: float
) -> xr.Dataset:
    # u ranges over [a, b] as X ranges over the support.
    a, b = (grid - support[1]) / h, (grid - support[0]) / h
    a0 = ndtr(b) - ndtr(a)
    a1 = _normal(a) - _normal(b)
    a2 = a0 + _times_normal(a) - _times_normal(b)
    determinant = a0 * a2 - a1 * a1
    mean, square = np.zeros_like(grid), np.zeros_like(grid)
    near = np.searchsorted(sample, [grid - _REACH * h, grid + _REACH * h])
    for k, x in enumerate(grid):
        u = (x - sample[near[0, k] : near[1, k]]) / h
        weight = (a2[k] - a1[k] * u) / determinant[k] * _normal(u) / h
        mean[k], square[k] = weight.sum() / total, np.square(weight).sum() / total
    error = np.sqrt(np.maximum(square - mean * mean, 0.0) / (total - 1))
    half = ndtri(0.5 + 0.5 * level) * error
    found = {
        # The boundary kernel is negative far from its centre.
        "density": np.maximum(mean, 0.0),
        "standard_error": error,
        "lower": np.maximum(mean - half, 0.0),
        # So that an estimate of 0 has an interval of the size of its error.
        "upper": np.maximum(mean, 0.0) + half,
    }
    outside = (sample < grid[0]) | (sample > grid[-1])
    attrs = {"method": "kernel", "bandwidth": h, "outside": float(outside.sum()) / total}
    return _dataset(grid, found, attrs, total, support, level)


def _dataset(
    grid: Floats,
    found: dict[str, Floats],
    attrs: dict[str, Any],
    total: int,
    support: Interval,
    level: float,
) -> xr.Dataset:
    attrs |= {"level": level, "samples": total, "support": list(support)}
    return xr.Dataset(
        {name: ("value", numbers) for name, numbers in found.items()},
        coords={"value": grid},
        attrs=attrs,
    )


def _bandwidth(sample: Floats, bandwidth: float | str, support: Interval) -> float:
    if not isinstance(bandwidth, str):
        check_positive("bandwidth", bandwidth)
        if bandwidth > support[1] - support[0]:
            raise ValueError(
                f"bandwidth={bandwidth!r}: at most the length of the support, "
                f"{support[1] - support[0]:g}, is needed"
            )
        return float(bandwidth)
    check_choice("bandwidth", bandwidth, RULES)
    deviation = float(sample.std(ddof=1))
    quarter, more = np.quantile(sample, [0.25, 0.75])
    spread = min(deviation, float(more - quarter) / 1.349) or deviation
    return RULES[bandwidth] * spread * len(sample) ** -0.2


def _edges(bins: Bins, window: Interval) -> Floats:
    if isinstance(bins, int | np.integer):
        check_count("bins", bins)
        return np.linspace(*window, int(bins) + 1)
    edges = real_array(bins, "bins")
    if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0.0).all():
        raise ValueError(f"bins={bins!r}: a whole number >= 1 or increasing edges are needed")
    return edges


def _interval(name: str, ends: Interval) -> Interval:
    found = real_array(ends, name)
    if found.shape != (2,) or not found[0] < found[1]:
        raise ValueError(f"{name}={ends!r}: two numbers, the smaller first, are needed")
    return float(found[0]), float(found[1])


def _normal(u: Floats) -> Floats:
    return np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)


def _times_normal(u: Floats) -> Floats:
    """Compute u phi(u), which is 0 at infinity."""
    finite = np.where(np.isfinite(u), u, 0.0)
    return finite * _normal(finite)
