"""The file of a sweep as a Dataset, and the means, quantiles and distances of its samples."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from math import prod
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtri
from scipy.stats import ks_2samp

from shaped_attention.checks import argument_error, check_choice, check_inside, with_types
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.distances import ks_margin, rounded
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.sweep.data import DIMENSIONS, shapes
from shaped_attention.sweep.file import SweepFile
from shaped_attention.sweep.specification import Sweep, Unit

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@with_types
def open_sweep(
    path: str | Path, select: Mapping[str, Any] | None = None, max_bytes: int = 8 * 2**30
) -> xr.Dataset:
    """Read the file of a sweep as a Dataset, also during a run.

    Parameters
    ----------
    path
        File of the sweep.
    select
        Values to read, by axis or 'sampler', as in `xarray.DataArray.sel`; by default all.
    max_bytes
        Size up to which the Dataset is read into memory.

    Returns
    -------
    xarray.Dataset with the dimensions `sampler`, the axes, and

    - `values` (fraction, sample, observable);
    - `stopping_time` (sample), infinite for paths that have not stopped;
    - `V` (fraction, sample, row, col), if it was kept.

    Units that are missing are NaN. The attributes have the `sweep`, the numbers of units that are
    `missing` and, of these, `damaged`, and `code_changes`, a JSON list of the accepted changes of
    code and versions.

    Raises
    ------
    SweepFileError
        If the file is missing or damaged, or of another kind.
    ValueError
        If `select` names no axis or no value of it, or the Dataset is larger than `max_bytes`.
    """
    with SweepFile(path) as file:
        sweep = file.sweep
        axes = {"sampler": list(sweep.samplers), **sweep.axes}
        lengths = tuple(map(len, axes.values()))
        coordinates = {name: _coordinate(values) for name, values in axes.items()}
        places = xr.DataArray(np.arange(prod(lengths)).reshape(lengths), coordinates, list(axes))
        try:
            places = places.sel(select or {})
        except (KeyError, ValueError, IndexError, TypeError):
            known = "; ".join(f"{name}: {values}" for name, values in coordinates.items())
            raise argument_error("select", f"values by name, of {known[:400]}", select) from None
        sizes = shapes(sweep, sweep.samples)
        size = 8 * places.size * sum(map(prod, sizes.values()))
        if size > max_bytes:
            raise ValueError(
                f"max_bytes must be at least {size}, the size of the data of {path} in memory; got "
                f"{max_bytes}; select= reads a part"
            )
        row = {int(place): k for k, place in enumerate(places.values.ravel())}
        if len(row) < places.size:
            raise ValueError("select must name each value once")
        strides = [prod(lengths[k + 1 :]) for k in range(len(lengths))]

        def place_of(unit: Unit) -> int | None:
            index = (sweep.samplers.index(unit.sampler), *unit.cell)
            return row.get(sum(map(mul, index, strides)))

        arrays = {name: np.full((places.size, *shape), np.nan) for name, shape in sizes.items()}
        found = damaged = 0
        for unit, _, parts in file.units(lambda unit: place_of(unit) is not None):
            if parts is None:
                damaged += 1
                continue
            span = slice(unit.block * sweep.block, unit.block * sweep.block + unit.samples)
            for name, part in parts.items():
                before = DIMENSIONS[name].index("sample")
                arrays[name][(place_of(unit), *[slice(None)] * before, span)] = part
            found += 1
        changed = [
            {k: v for k, v in x.items() if k != "code"} for x in file.codes() if x["changed"]
        ]
    coordinates = {"fraction": list(sweep.fractions), "observable": list(sweep.observables)}
    attributes: dict[str, Any] = {"sweep": sweep.to_json(), "code_changes": json.dumps(changed)}
    attributes |= {"missing": places.size * sweep.blocks - found, "damaged": damaged}
    variables = {
        name: ((*places.dims, *DIMENSIONS[name]), array.reshape(*places.shape, *sizes[name]))
        for name, array in arrays.items()
    }
    return xr.Dataset(variables, {**places.coords, **coordinates}, attributes)


def _coordinate(values: list[Any]) -> list[Any]:
    """Return values that an index can have: of one plain type, or as text."""
    for kind in (bool, str, int | float):
        if all(isinstance(value, kind) for value in values):
            return values
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


class Status(NamedTuple):
    """How much of a sweep is done.

    The next run redraws the `damaged` units. `failures` lists sampler, cell, block and message of
    each unit that failed in the last run. `seconds_left` is the time that one worker still needs,
    None before the first unit. `by_cell` has each cell's point and its number of finished units,
    and `code_changes` the accepted changes of code.
    """

    units: int
    done: int
    damaged: int
    failures: list[tuple[str, str, int, str]]
    seconds_left: float | None
    by_cell: list[tuple[dict[str, Any], int]]
    code_changes: list[dict[str, Any]]


@with_types
def sweep_status(path: str | Path) -> Status:
    """Return how much of the sweep in a file is done, also during a run.

    Raises
    ------
    SweepFileError
        If the file is missing or damaged, or of another kind.
    """
    with SweepFile(path) as file:
        sweep, damaged = file.sweep, 0
        times: dict[tuple[str, tuple[int, ...]], list[float]] = {}
        for unit, seconds, arrays in file.units():
            damaged += arrays is None
            if arrays is not None:
                times.setdefault((unit.sampler, unit.cell), []).append(seconds)
        changed = [record for record in file.codes() if record["changed"]]
        failures = file.failures()
    left = 0.0
    for sampler in sweep.samplers:
        drawn = [x for (name, _), seconds in times.items() if name == sampler for x in seconds]
        for index in sweep.indices():
            own = times.get((sampler, index), [])
            left += (sweep.blocks - len(own)) * (float(np.mean(own or drawn)) if drawn else np.nan)
    by_cell = [
        (sweep.point(index), sum(len(times.get((name, index), ())) for name in sweep.samplers))
        for index in sweep.indices()
    ]
    done, seconds_left = sum(map(len, times.values())), None if np.isnan(left) else left
    return Status(sweep.unit_count, done, damaged, failures, seconds_left, by_cell, changed)


@recorded()
def sweep_summary(data: xr.Dataset, confidence: float = 0.95) -> xr.Dataset:
    """Return means with confidence intervals, standard deviations and quantiles of every cell.

    Parameters
    ----------
    data
        Dataset from `open_sweep`.
    confidence
        Coverage probability of the intervals. Those of means are normal, those of the fractions of
        stopped paths exact (Clopper and Pearson).

    Returns
    -------
    xarray.Dataset with

    - `mean`, the bounds `lower` and `upper` of its interval, and `deviation` (sampler, axes,
      fraction, observable);
    - `quantile` (sampler, axes, fraction, observable, level);
    - `stopped` (sampler, axes), the fraction of paths that have stopped, with `stopped_lower` and
      `stopped_upper`;
    - `samples` (sampler, axes).

    Cells without samples are NaN.

    Raises
    ------
    ValueError
        If `data` is not from `open_sweep`, or `confidence` is not in (0, 1).
    """
    _check_opened(data)
    check_inside("confidence", confidence)
    values, times = data["values"], data["stopping_time"]
    samples = times.notnull().sum("sample")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # cells with fewer than two samples
        mean, deviation = values.mean("sample"), values.std("sample", ddof=1)
        quantile = values.quantile(list(_LEVELS), "sample").rename(quantile="level")
    half = -float(ndtri((1.0 - confidence) / 2.0)) * deviation / np.sqrt(samples.where(samples > 1))
    stopped, some = xr.DataArray(np.isfinite(times)).sum("sample"), samples > 0
    low, high = xr.apply_ufunc(
        fraction_bounds, stopped, samples, confidence, output_core_dims=[[], []]
    )
    return xr.Dataset(
        {"mean": mean, "lower": mean - half, "upper": mean + half, "deviation": deviation}
        | {"quantile": quantile.transpose(..., "level"), "samples": samples}
        | {"stopped": stopped / samples.where(some)}
        | {"stopped_lower": low.where(some), "stopped_upper": high.where(some)}
    )


@recorded()
def sweep_distances(
    data: xr.Dataset, first: str = "chain", second: str = "sde", confidence: float = 0.95
) -> xr.Dataset:
    """Return the Kolmogorov-Smirnov distances between two samplers in every cell.

    Returns
    -------
    xarray.Dataset with `distance` (axes, fraction, observable) and `margin` (axes): the true
    distance of the laws is within distance +- margin with probability `confidence` (Dvoretzky,
    Kiefer, Wolfowitz).

    Raises
    ------
    ValueError
        If `data` is not from `open_sweep`, a sampler is not in the sweep, a cell has no samples, or
        `confidence` is not in (0, 1).
    """
    _check_opened(data)
    check_inside("confidence", confidence)
    if "sampler" not in data.dims:
        raise argument_error("data", "a Dataset with two samplers", data)
    for name, sampler in (("first", first), ("second", second)):
        check_choice(name, sampler, list(data["sampler"].values))
    precision = float(np.finfo(Sweep.from_json(data.attrs["sweep"]).dtype).eps)
    data = data.assign(values=data["values"].copy(data=rounded(data["values"].values, precision)))
    pair = [data.sel(sampler=name).drop_vars("sampler") for name in (first, second)]
    counts = [part["stopping_time"].notnull().sum("sample") for part in pair]
    if any(bool((count == 0).any()) for count in counts):
        raise ValueError("data must come from a finished sweep; some cells have no samples yet")
    distance, _ = xr.apply_ufunc(
        ks_2samp, *(part["values"] for part in pair), input_core_dims=[["sample"], ["sample"]],
        output_core_dims=[[], []], kwargs={"axis": -1, "nan_policy": "omit", "method": "asymp"},
    )  # fmt: skip
    margin = xr.apply_ufunc(ks_margin, *counts, kwargs={"confidence": confidence}, vectorize=True)
    return xr.Dataset({"distance": distance, "margin": margin})


def _check_opened(data: xr.Dataset) -> None:
    if (
        not {"values", "stopping_time", "sampler"} <= set(data.variables)
        or "sweep" not in data.attrs
    ):
        raise argument_error("data", "a Dataset from open_sweep", data)
