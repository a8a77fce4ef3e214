r"""Density of one observable: histograms and kernel estimates, with pointwise intervals.

On a bounded support the kernel estimate uses the linear boundary kernel [1]_: at x, with
u = (x - X) / h and the partial moments a_j = int u^j K(u) du over the u whose X lie in the support,

.. math:: K_L(u) = \frac{a_2 - a_1 u}{a_0 a_2 - a_1^2} K(u),

which has mass 1 and mean 0 there. Its bias is O(h^2) up to the boundary.

.. [1] M. C. Jones. Simple boundary correction for kernel density estimation. Statistics and
   Computing 3 (1993), 135-146.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_inside,
    check_positive,
    real_array,
)
from shaped_attention.numerics.observables import STOPPING, observables, observables_of, support_of
from shaped_attention.numerics.result_axis import (
    axis_of,
    check_result,
    place_index,
    place_text,
    requested,
    saved_places,
)
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.proportions import fraction_bounds

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Bins = int | Sequence[float] | Floats

UNBOUNDED: Interval = (-math.inf, math.inf)
FEWEST = 8
"""Smallest number of samples of an estimate."""

_ATOM, _ROUNDING = 0.01, 1e-9
_REACH, _END = 9.0, 40.0
"""Bandwidths beyond which the Gaussian kernel is below rounding, and beyond which it is 0."""


@recorded()
def density(
    result: xr.Dataset,
    observable: str,
    *,
    time: float | None = None,
    position: int | None = None,
    bins: Bins | None = None,
    bandwidth: float | None = None,
    window: Interval | None = None,
    confidence: float = 0.95,
) -> xr.Dataset:
    """Estimate the density of one observable at one time or layer, with pointwise intervals.

    With `bins` the estimate is a histogram: `density` is the probability of a bin divided by its
    width, with the Clopper-Pearson interval of this probability. Otherwise it is a kernel estimate
    with a Gaussian kernel and, at the ends of the support, the linear boundary kernel of Jones
    (1993). Its standard error is that of a mean over samples, sqrt(var_i K_h(x, X_i) / samples),
    and its interval is normal, truncated at 0, and too short where fewer than about 10 samples lie
    within a bandwidth of x.

    Intervals are pointwise, not simultaneous. They cover the probability of a bin, or the density
    smoothed by the kernel, without the smoothing bias, O(h^2) for bandwidth h: compare two
    bandwidths to see it.

    Parameters
    ----------
    result
        Result of a sampler or a model, with at least 8 samples.
    observable
        A name from `observables`, with any token, or ``stopping time``.
    time, position
        A stored time, or for the result of a model a number of layers. Default: the last.
    bins
        Number of equal bins of the window, or increasing edges of bins.
    bandwidth
        Standard deviation h of the kernel. Default: 1.06 A samples^(-1/5) (Scott), where A is the
        smaller of the standard deviation and the interquartile range / 1.349.
    window
        Ends of the range in which the density is estimated, at 201 points by the kernel. Default:
        the central 99.8 % of the samples and a quarter of that range on both sides, inside the
        support of the observable, such as (-1, 1) for ``rho[a,b]``.
    confidence
        Coverage probability of each interval, in (0, 1).

    Returns
    -------
    xr.Dataset
        ``density``, ``standard_error``, ``lower`` and ``upper`` along ``value``, the value of the
        observable. For a histogram these are the centres of bins with edges ``left`` and ``right``.
        Attributes: ``method`` ("histogram" or "kernel"), ``bins`` or ``bandwidth``, ``confidence``,
        ``samples``, ``outside`` (the share of samples outside the window or the bins; the density
        has the remaining mass), ``support``, ``observable``, and ``time`` or ``position``.

    Raises
    ------
    ValueError
        If an argument is outside its range, or all values are equal: there is no density.

    Warns
    -----
    UserWarning
        If more than 1 % of the samples share one value, an atom: it has no density.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> v0 = sa.equicorrelated(2, 0.2)
    >>> chain = sa.simulate_chain(sa.ShapedAttention(0.5), v0, width=20, depth=10, samples=500)
    >>> estimate = sa.density(chain, "rho[0,1]", bins=4, window=(-1.0, 1.0))
    >>> float((estimate["density"] * 0.5).sum())
    1.0
    """
    values, at = observable_values(result, observable, time, position)
    axis, equal, shared = axis_of(result), atom(values), largest_atom(values)
    if equal is not None:
        raise ValueError(
            f"observable {observable!r} has no density: all {len(values)} values at "
            f"{place_text(axis, at)} are {equal:.6g}"
        )
    estimate = estimate_density(
        values, bins=bins, bandwidth=bandwidth, window=window, confidence=confidence,
        support=support_of(observable, result.sizes["row"], at),
    )  # fmt: skip
    if shared is not None:
        warnings.warn(
            f"{100 * shared[1]:.3g} % of the samples of {observable!r} have the value "
            f"{shared[0]:.6g}; such an atom has no density",
            UserWarning,
            stacklevel=4,  # the caller of the recorded function
        )
    return estimate.assign_attrs(
        {"observable": observable, axis: at if axis == "time" else int(at)}
    )


def observable_values(
    result: xr.Dataset,
    observable: str,
    time: float | None = None,
    position: int | None = None,
    name: str = "result",
) -> tuple[Floats, float]:
    """Return the values (samples,) of one observable at a stored place, and that place."""
    check_samples(result, name)
    stopping = [STOPPING] if "stopping_time" in result else []
    check_choice("observable", observable, [*observable_names(result.sizes["row"]), *stopping])
    wanted = requested(axis_of(result), time, position)
    saved = saved_places(result)
    at = float(saved[-1 if wanted is None else place_index(result, wanted, name)])
    return observables_of(result, at, named_tokens([observable]), cap=at)[observable], at


def check_samples(result: xr.Dataset, name: str) -> None:
    """Raise ValueError unless `result` has covariances of at least 8 samples."""
    check_result(result, name)
    if (count := result.sizes["sample"]) < FEWEST:
        raise ValueError(f"{name} must have at least {FEWEST} samples; got {count}")


def named_tokens(names: Iterable[str]) -> list[int]:
    """Return the tokens that appear in names of observables, or (0,) if none does."""
    return sorted({int(i) for name in names for i in re.findall(r"\d+", name)}) or [0]


def observable_names(tokens: int) -> list[str]:
    """Return the names of all observables of V with that number of tokens."""
    return list(observables(np.eye(tokens)[None], range(tokens)))


def estimate_density(
    values: ArrayLike,
    *,
    bins: Bins | None = None,
    bandwidth: float | None = None,
    support: Interval = UNBOUNDED,
    window: Interval | None = None,
    points: int = 201,
    confidence: float = 0.95,
    without: float | None = None,
) -> xr.Dataset:
    """Estimate the density of the law of `values`, as `density` does, but accept atoms.

    Values equal to `without` are samples, but the density has the mass of the others.
    """
    check_inside("confidence", confidence)
    if bins is not None and bandwidth is not None:
        raise ValueError("bins and bandwidth cannot be used together: a histogram has no bandwidth")
    low, high = support
    sample = np.sort(np.asarray(values, dtype=np.float64).ravel())
    total = len(sample)
    sample = np.clip(sample if without is None else sample[sample != without], low, high)
    if window is None:
        window = density_window(sample, (low, high))
    else:
        ends = real_array(window, "window")
        inside = ends.shape == (2,) and bool(low <= ends[0] < ends[1] <= high)
        if not inside or not np.isfinite(ends).all():
            allowed = f"two finite numbers in [{low:g}, {high:g}], the smaller first"
            raise argument_error("window", allowed, window)
        window = float(ends[0]), float(ends[1])
    about = {"confidence": confidence, "samples": total, "support": [low, high]}
    if bins is not None:
        return _histogram(sample, total, _edges(bins, window), confidence).assign_attrs(about)
    h, grid = _bandwidth(sample, bandwidth, high - low), np.linspace(*window, points)
    return _kernel(sample, total, grid, h, (low, high), confidence).assign_attrs(about)


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
        distinct, counts = np.unique(values, return_counts=True)
        place = float(distinct[np.argmax(counts)])
    share = float((values == place).mean())
    return (place, share) if share > max(_ATOM, 1.5 / len(values)) else None


def _histogram(sample: Floats, total: int, edges: Floats, confidence: float) -> xr.Dataset:
    width = np.diff(edges)
    counts = np.histogram(sample, edges)[0]
    share = counts / total
    lower, upper = fraction_bounds(counts, total, confidence)
    error = np.sqrt(share * (1.0 - share) / total)
    columns = (share / width, error / width, lower / width, upper / width)
    data = _dataset(0.5 * (edges[:-1] + edges[1:]), columns)
    return data.assign_coords(left=("value", edges[:-1]), right=("value", edges[1:])).assign_attrs(
        method="histogram", bins=len(width), outside=(len(sample) - counts.sum()) / total
    )


def _kernel(
    sample: Floats, total: int, grid: Floats, h: float, support: Interval, confidence: float
) -> xr.Dataset:
    # u ranges over [a, b] as X ranges over the support.
    a, b = (np.clip((grid - end) / h, -_END, _END) for end in support[::-1])
    a0 = ndtr(b) - ndtr(a)
    a1 = _normal(a) - _normal(b)
    a2 = a0 + a * _normal(a) - b * _normal(b)
    determinant = a0 * a2 - a1 * a1
    mean, square = np.zeros_like(grid), np.zeros_like(grid)
    near = np.searchsorted(sample, [grid - _REACH * h, grid + _REACH * h])
    for k, x in enumerate(grid):
        u = (x - sample[near[0, k] : near[1, k]]) / h
        weight = (a2[k] - a1[k] * u) / determinant[k] * _normal(u) / h
        mean[k], square[k] = weight.sum() / total, np.square(weight).sum() / total
    error = np.sqrt(np.maximum(square - mean * mean, 0.0) / (total - 1))
    half = ndtri(0.5 + 0.5 * confidence) * error
    # The boundary kernel is negative far from its centre. The interval of an estimate of 0 has the
    # size of its error.
    bounds = np.maximum(mean - half, 0.0), np.maximum(mean, 0.0) + half
    outside = (sample < grid[0]) | (sample > grid[-1])
    return _dataset(grid, (np.maximum(mean, 0.0), error, *bounds)).assign_attrs(
        method="kernel", bandwidth=h, outside=float(outside.sum()) / total
    )


def _dataset(grid: Floats, columns: Sequence[Floats]) -> xr.Dataset:
    pairs = zip(("density", "standard_error", "lower", "upper"), columns, strict=True)
    return xr.Dataset({name: ("value", x) for name, x in pairs}, coords={"value": grid})


def _bandwidth(sample: Floats, bandwidth: float | None, longest: float) -> float:
    if bandwidth is not None:
        check_positive("bandwidth", bandwidth)
        if bandwidth > longest:
            allowed = f"at most {longest:g}, the length of the support"
            raise argument_error("bandwidth", allowed, bandwidth)
        return float(bandwidth)
    deviation = float(sample.std(ddof=1))
    quarter, more = np.quantile(sample, [0.25, 0.75])
    spread = min(deviation, float(more - quarter) / 1.349) or deviation
    return 1.06 * spread * len(sample) ** -0.2


def _edges(bins: Bins, window: Interval) -> Floats:
    if isinstance(bins, int | np.integer):
        check_count("bins", bins)
        return np.linspace(*window, int(bins) + 1)
    edges = real_array(bins, "bins")
    if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0.0).all():
        raise argument_error("bins", "an integer >= 1 or increasing edges", bins)
    return edges


def _normal(u: Floats) -> Floats:
    return np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
