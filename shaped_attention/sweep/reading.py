"""The file of a sweep as a Dataset, and the means, quantiles and distances of its samples."""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import product
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
from shaped_attention.sweep.data import DIMENSIONS, record_of
from shaped_attention.sweep.file import SweepFile
from shaped_attention.sweep.specification import Sweep

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
        coordinates = {name: _coordinate(values) for name, values in axes.items()}
        cells = list(product(sweep.samplers, sweep.cells()))
        lengths = [len(values) for values in axes.values()]
        places = xr.DataArray(np.arange(len(cells)).reshape(lengths), coordinates, list(axes))
        try:
            places = places.sel(select or {})
        except (KeyError, ValueError, IndexError, TypeError):
            known = "; ".join(f"{name}: {values}" for name, values in coordinates.items())
            raise argument_error("select", f"values by name, of {known[:400]}", select) from None
        record = record_of(sweep)
        size = places.size * sweep.samples * record.itemsize
        if size > max_bytes:
            raise ValueError(
                f"max_bytes must be at least {size}, the size of the data of {path} in memory; got "
                f"{max_bytes}; select= reads a part"
            )
        place_of = {cells[place]: k for k, place in enumerate(places.values.ravel())}
        if len(place_of) < places.size:
            raise ValueError("select must name each value once")
        kept = np.full((places.size, sweep.samples), np.nan, record)
        found = damaged = 0
        for unit, _, records in file.units(lambda unit: (unit.sampler, unit.cell) in place_of):
            span = slice(unit.block * sweep.block, unit.block * sweep.block + unit.samples)
            if records is None:
                damaged += 1
            else:
                found += 1
                kept[place_of[unit.sampler, unit.cell], span] = records
        changed = json.dumps(file.code_changes())
    kept = kept.reshape(*places.shape, sweep.samples)
    variables = {
        name: ((*places.dims, "sample", *DIMENSIONS[name]), kept[name])
        for name in record.names or ()
    }
    coordinates = {"fraction": list(sweep.fractions), "observable": list(sweep.observables)}
    attributes = {"sweep": sweep.to_json(), "code_changes": changed, "damaged": damaged}
    attributes |= {"missing": places.size * sweep.blocks - found}
    data = xr.Dataset(variables, {**places.coords, **coordinates}, attributes)
    return data.transpose(*places.dims, "fraction", "sample", ...)


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
    seconds: dict[str, list[float]] = defaultdict(list)
    by_cell, damaged = Counter[str](), 0
    with SweepFile(path) as file:
        sweep = file.sweep
        for unit, time, records in file.units():
            if records is None:
                damaged += 1
            else:
                seconds[unit.sampler].append(time)
                by_cell[unit.cell] += 1
        changed, failures = file.code_changes(), file.failures()
    # Early blocks of all cells are run first, so the mean is that of all cells.
    each = sweep.unit_count // len(sweep.samplers)
    left = None
    if len(seconds) == len(sweep.samplers):
        left = sum((each - len(times)) * float(np.mean(times)) for times in seconds.values())
    cells = [(sweep.point(cell), by_cell[cell]) for cell in sweep.cells()]
    return Status(sweep.unit_count, by_cell.total(), damaged, failures, left, cells, changed)


@recorded()
def sweep_summary(data: xr.Dataset, confidence: float = 0.95) -> xr.Dataset:
    """Return means with confidence intervals, standard deviations and quantiles of every cell.

    Parameters
    ----------
    data
        Dataset from `open_sweep`.
    confidence
        Coverage probability of the intervals: normal for means, exact for the fractions of stopped
        paths (Clopper and Pearson).

    Returns
    -------
    xarray.Dataset with `mean` in [`lower`, `upper`], `deviation` and `quantile` of each observable,
    the number of `samples`, and the fraction `stopped` of paths, in [`stopped_lower`,
    `stopped_upper`]. Cells without samples are NaN.

    Raises
    ------
    ValueError
        If `data` is not from `open_sweep`, or `confidence` is not in (0, 1).
    """
    _check_opened(data)
    check_inside("confidence", confidence)
    values, times = data["values"], data["stopping_time"]
    samples, stopped = times.notnull().sum("sample"), (times < np.inf).sum("sample")
    counted = samples.where(samples > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # cells with fewer than two samples
        mean, deviation = values.mean("sample"), values.std("sample", ddof=1)
        quantile = values.quantile(list(_LEVELS), "sample").rename(quantile="level")
    half = -float(ndtri((1.0 - confidence) / 2.0)) * deviation / np.sqrt(counted)
    low, high = xr.apply_ufunc(
        fraction_bounds, stopped, samples, confidence, output_core_dims=[[], []]
    )
    summary = xr.Dataset(
        {"mean": mean, "lower": mean - half, "upper": mean + half, "deviation": deviation}
        | {"quantile": quantile.transpose(..., "level"), "stopped": stopped / counted}
        | {"stopped_lower": low, "stopped_upper": high}
    )
    return summary.where(samples > 0).assign(samples=samples)


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
    needed = {"values", "stopping_time", "sampler"}
    if "sweep" not in data.attrs or not needed <= set(data.variables):
        raise argument_error("data", "a Dataset from open_sweep", data)
