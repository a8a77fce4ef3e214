"""The axis of a result: the times, or the positions between layers, at which V is saved.

A sampler saves ``V (time, sample, row, col)``; a model has ``V (position, sample, row, col)``, with
position l after l layers. ``stopping_time (sample)`` is optional: without it no path stops.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.checks import argument_error

TIME_TOLERANCE = 1e-9


def check_result(result: object, name: str, *, stops: bool = False) -> None:
    """Raise ValueError, naming the argument `name`, unless `result` has covariances on an axis.

    With `stops` it needs stopping times too.
    """
    if not isinstance(result, xr.Dataset):
        raise argument_error(name, "an xarray.Dataset from a sampler", result)
    axis = axis_of(result)
    needed = ("V", *(("stopping_time",) if stops else ()), axis)
    if "kept" in result.variables and "V" not in result.variables:
        raise ValueError(
            f"{name} must hold covariances (keep='V'); it has the numbers that keep= chose instead"
        )
    missing = [key for key in needed if key not in result.variables]
    if missing:
        also = ", stopping_time (sample)" if stops else ""
        raise ValueError(
            f"{name} must have V ({axis}, sample, row, col){also} and the coordinate {axis}; it "
            f"lacks {', '.join(missing)}"
        )
    if set(result["V"].dims) != {axis, "sample", "row", "col"}:
        raise ValueError(
            f"V of {name} must have the dimensions ({axis}, sample, row, col); got "
            f"({', '.join(map(str, result['V'].dims))})"
        )
    if "stopping_time" in result and result["stopping_time"].dims != ("sample",):
        raise ValueError(
            f"stopping_time of {name} must have only the dimension sample; got "
            f"({', '.join(map(str, result['stopping_time'].dims))})"
        )


def axis_of(result: xr.Dataset) -> str:
    """Return the name of the axis of a result."""
    return "position" if "position" in result.dims else "time"


def common_axis(first: xr.Dataset, second: xr.Dataset, names: tuple[str, str]) -> str:
    """Return the axis of two results; raise ValueError, with both names, if it differs."""
    axis, other = axis_of(first), axis_of(second)
    if axis != other:
        raise ValueError(
            f"{names[0]} and {names[1]} must both have times or both have positions (layers); "
            f"{names[0]} has the axis {axis} and {names[1]} has the axis {other}"
        )
    return axis


def requested(axis: str, time: float | None, position: int | None) -> float | None:
    """Return the place that was asked for on an axis, or None.

    Raise ValueError if the place is on the other axis.
    """
    other, value = ("position", position) if axis == "time" else ("time", time)
    if value is not None:
        requirement = f"None for results with the axis {axis} (pass {axis}= instead)"
        raise argument_error(other, requirement, value)
    return time if axis == "time" else position


def saved_places(result: xr.Dataset) -> NDArray[np.float64]:
    """Return the times or positions of a result."""
    return np.asarray(result[axis_of(result)].to_numpy(), dtype=np.float64)


def place_index(result: xr.Dataset, at: float, name: str = "result") -> int:
    """Return the index of a saved place to within 1e-9; raise ValueError if it was not saved."""
    saved = saved_places(result)
    if saved.size:
        index = int(np.argmin(np.abs(saved - at)))
        if abs(saved[index] - at) <= TIME_TOLERANCE:
            return index
    raise argument_error(axis_of(result), f"one of those saved in {name}, {listed(saved)}", at)


def place_text(axis: str, at: float) -> str:
    """Return a place in words: "t = 0.5" or "position 4"."""
    return f"t = {at:.6g}" if axis == "time" else f"position {at:g}"


def stopping_times(result: xr.Dataset) -> NDArray[np.float64]:
    """Return the stopping times (samples,), infinite if the result has none.

    Raise ValueError if one is NaN.
    """
    if "stopping_time" not in result:
        return np.full(result.sizes["sample"], np.inf)
    stopping = np.asarray(result["stopping_time"].to_numpy(), dtype=np.float64)
    if np.isnan(stopping).any():
        raise ValueError(
            "stopping_time must be a time or +inf for each path; it is NaN for "
            f"{int(np.isnan(stopping).sum())} of {stopping.size} paths"
        )
    return stopping


def listed(times: NDArray[np.float64]) -> str:
    """Format a list of times for a message, without the middle of a long list."""
    words = [f"{t:.10g}" for t in times]
    if len(words) > 8:
        words = [*words[:4], "...", *words[-3:]]
    return "[" + ", ".join(words) + "]"
