"""Density of one observable of a result at one time, with pointwise error bars."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable

import numpy as np
import xarray as xr

from shaped_attention.checks import check_choice
from shaped_attention.numerics.observables import observables, observables_of
from shaped_attention.numerics.result_axis import (
    axis_of,
    check_result,
    place_index,
    place_text,
    requested,
    saved_places,
)
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.density_estimates import (
    FEWEST,
    UNBOUNDED,
    Bins,
    Floats,
    Interval,
    atom,
    estimate_density,
    largest_atom,
)

STOPPING = "stopping time"


@recorded()
def density(
    result: xr.Dataset,
    observable: str,
    *,
    time: float | None = None,
    position: int | None = None,
    bins: Bins | None = None,
    bandwidth: float | str | None = None,
    support: Interval | None = None,
    window: Interval | None = None,
    points: int = 201,
    level: float = 0.95,
) -> xr.Dataset:
    """Estimate the density of one observable at one time or layer, with pointwise intervals.

    With `bins` the estimate is a histogram: `density` is the probability of a bin divided by its
    width, with the Clopper-Pearson interval of this probability. Otherwise it is a kernel estimate
    with a Gaussian kernel and, at the ends of the support, the linear boundary kernel of Jones
    (1993). Its standard error is that of a mean over samples, sqrt(var_i K_h(x, X_i) / samples),
    and its interval is normal, truncated at 0. This interval is too short where few samples (fewer
    than about 10) lie within a bandwidth of x.

    Intervals are pointwise, not simultaneous. They cover the mean of the estimate: the probability
    of a bin, or the density smoothed by the kernel. They do not include the smoothing bias, O(h^2)
    for bandwidth h: compare two bandwidths to see it.

    Parameters
    ----------
    result
        Result of a sampler or a model, with at least 8 samples.
    observable
        A name from `observables`, with any token, or ``stopping time``.
    time
        A stored time, to within 1e-9. Default: the last.
    position
        For the result of a model, a number of layers. Default: the last.
    bins
        Number of equal bins of the window, or increasing edges of bins.
    bandwidth
        Standard deviation h of the kernel; or ``"scott"``, 1.06 A samples^(-1/5), the default, or
        ``"silverman"``, 0.9 A samples^(-1/5), where A is the smaller of the standard deviation and
        the interquartile range / 1.349.
    support
        Ends of the range of possible values, where the estimate is corrected; infinite for no
        bound. Default: (-1, 1) for ``rho[a,b]``, (0, 1) for ``mean |rho|``, (1, m) for
        ``effective rank``, (0, time) for ``stopping time``, otherwise no bounds.
    window
        Ends of the range in which the density is estimated. Default: the central 99.8 % of the
        samples and a quarter of that range on both sides, inside the support.
    points
        Number of values of a kernel estimate, evenly spaced in the window.
    level
        Confidence level of the intervals, strictly between 0 and 1.

    Returns
    -------
    xr.Dataset
        ``density``, ``standard_error``, ``lower`` and ``upper`` along ``value``, the value of the
        observable. For a histogram these are the centres of bins with edges ``left`` and ``right``.
        Attributes: ``method`` ("histogram" or "kernel"), ``bins`` or ``bandwidth``, ``level``,
        ``samples``, ``outside`` (the share of samples outside the window or the bins; the density
        has the remaining mass), ``support``, ``observable``, and ``time`` or ``position``.

    Raises
    ------
    ValueError
        If an argument is outside its range, or all values are equal, so that there is no density.

    Warns
    -----
    UserWarning
        If more than 1 % of the samples share one value: an atom, such as the last time for
        ``stopping time``, has no density.

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
    if support is None:
        support = support_of(observable, result.sizes["row"], at)
    equal = atom(values)
    axis = axis_of(result)
    if equal is not None:
        raise ValueError(
            f"observable={observable!r}: all {len(values)} values at {place_text(axis, at)} are "
            f"{equal:.6g}, and an atom has no density"
        )
    found = estimate_density(
        values, bins=bins, bandwidth=bandwidth, support=support, window=window,
        points=points, level=level,
    )  # fmt: skip
    _warn_of_atoms(values, observable)
    own = {axis: at if axis == "time" else int(at)}
    return found.assign_attrs(observable=observable, **own)


def observable_values(
    result: xr.Dataset,
    observable: str,
    time: float | None = None,
    position: int | None = None,
    name: str = "result",
) -> tuple[Floats, float]:
    """Return the values (samples,) of one observable at a stored place, and that place."""
    check_result(result, name)
    if result.sizes["sample"] < FEWEST:
        raise ValueError(
            f"{name} has {result.sizes['sample']} samples; at least {FEWEST} are needed"
        )
    stopping = [STOPPING] if "stopping_time" in result else []
    check_choice("observable", observable, [*observable_names(result.sizes["row"]), *stopping])
    wanted = requested(axis_of(result), time, position)
    saved = saved_places(result)
    at = float(saved[-1 if wanted is None else place_index(result, wanted, name)])
    return observables_of(result, at, named_tokens([observable]), cap=at)[observable], at


def named_tokens(names: Iterable[str]) -> list[int]:
    """Return the tokens that appear in names of observables, or (0,) if none does."""
    return sorted({int(i) for name in names for i in re.findall(r"\d+", name)}) or [0]


def observable_names(tokens: int) -> list[str]:
    """Return the names of all observables of V with that number of tokens."""
    return list(observables(np.eye(tokens)[None], range(tokens)))


def support_of(observable: str, tokens: int, time: float = math.inf) -> Interval:
    """Return the ends of the range of an observable."""
    if observable.startswith("rho["):
        return -1.0, 1.0
    known = {"mean |rho|": (0.0, 1.0), "effective rank": (1.0, float(tokens))}
    return known.get(observable, (0.0, time) if observable == STOPPING else UNBOUNDED)


def _warn_of_atoms(values: Floats, observable: str) -> None:
    found = largest_atom(values)
    if found is not None:
        place, share = found
        warnings.warn(
            f"{100 * share:.3g} % of the samples of {observable!r} have the value {place:.6g}; "
            "such an atom has no density",
            UserWarning,
            stacklevel=4,
        )
