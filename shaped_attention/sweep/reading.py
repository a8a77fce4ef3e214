"""A sweep's store as a Dataset, and the means, quantiles and distances of its samples."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.stats import ks_2samp

from shaped_attention.checks import argument_error, check_choice, check_inside, with_types
from shaped_attention.io.storage import reason
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.distances import ks_margin, rounded
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.sweep.code_identity import code_changes
from shaped_attention.sweep.grid import STOPPED
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.store_arrays import CheckedFiles
from shaped_attention.sweep.store_records import StoreError, text_digest
from shaped_attention.sweep.summaries import (
    STOPPING_BINS,
    frequency_bounds,
    half_width,
    merged,
    quantile,
)

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)

_ABOUT = {
    "mean": "mean",
    "half_width": "half the width of the {} confidence interval of the mean",
    "lower": "lower bound of the {} confidence interval of the mean",
    "upper": "upper bound of the {} confidence interval of the mean",
    "deviation": "standard deviation",
    "samples": "number of samples",
    "stopped": "fraction of paths that have stopped",
    "stopped_lower": "lower bound of the {} confidence interval of the probability of stopping",
    "stopped_upper": "upper bound of the {} confidence interval of the probability of stopping",
    "fraction": "time as a fraction of the horizon",
    "quantile": "quantile",
    "level": "level of the quantile",
    "distance": "Kolmogorov-Smirnov distance",
    "margin": "margin of the distance at {} confidence",
}
"""Descriptions of the variables of a summary and of distances; {} is for the confidence."""


@with_types
def open_sweep(path: str | Path) -> xr.Dataset:
    """Open a sweep's store as a Dataset that is read lazily, also during a run.

    It is the Dataset that ``xarray.open_zarr`` returns for the folder `data.zarr` in the store,
    with `drawn`, `reason` and `code_changes` added.

    Returns
    -------
    xarray.Dataset with the dimensions `sampler`, the axes, and

    - `values` (time, sample, kept) and `stopping_time` (sample), or `V` (time, sample, row,
      col), or `histogram` (block, time, kept, bin), depending on `keep`; samples not drawn
      are NaN, and `kept` has the names of the observables;
    - `moments` (block, time, observable, power): sums of values, and of squared deviations from
      the block's mean; the observable 'stopped' is 1 for paths that reached the radius;
    - `stopping` (block, stopping_bin): counts of stopping times in bins of [0, T]; the last bin
      counts the paths that did not stop;
    - `drawn` (block): number of samples of each block in the store;
    - `reason`: why the cell stopped: 'samples', 'target', 'failed', 'time' or '' (not yet known).

    The coordinate `time` has times, or fractions of the horizon if the horizon differs between
    cells. The attribute `code_changes` is a JSON list of the accepted changes of code and versions:
    their `time`, the number of `units` finished before, and what `changed`.

    Raises
    ------
    StoreError
        If there is no store, or it cannot be read.
    """
    store = Store(path)
    # Read before the arrays, so that an extension during the opening is noticed.
    digest = text_digest(store.path)
    # First, so that the summaries ignore what is written while the arrays are read.
    state = _state(store)
    try:
        files = CheckedFiles(store.path / "data.zarr", store.ledger)
        data = xr.open_zarr(files, consolidated=False, chunks=None)
    except Exception as error:  # Zarr may raise anything for files of other programs
        message = f"{store.path}: the arrays of the sweep cannot be read ({reason(error)})"
        raise StoreError(message) from None
    if sweep_of(data).digest != store.sweep.digest:
        raise StoreError(f"{store.path}: this store has just been extended; try again")
    data = data.assign(state)
    data.encoding |= {"store": str(store.path.resolve()), "sweep": digest}
    return data.assign_attrs(code_changes=json.dumps(code_changes(store.path)))


def _state(store: Store) -> xr.Dataset:
    """Return what is drawn of each block, and why each cell stopped in the last run, if known."""
    sweep = store.sweep
    lead = ("sampler", *sweep.axes)
    reasons = np.full((len(sweep.samplers), *sweep.shape), "", dtype="<U7")
    drawn = np.zeros((*reasons.shape, sweep.blocks), dtype=np.int64)
    for unit in store.finished():
        drawn[(unit.sampler, *sweep.index(unit.cell), unit.block)] = sweep.block_samples(unit.block)
    for place, why in store.reasons().items():
        reasons[place] = why
    about = {"long_name": "number of samples drawn in the block"}
    return xr.Dataset(
        {
            "drawn": ((*lead, "block"), drawn, about),
            "reason": (lead, reasons, {"long_name": "why the cell stopped"}),
        }
    )


@recorded()
def sweep_summary(data: xr.Dataset, confidence: float = 0.95) -> xr.Dataset:
    """Return means with confidence intervals, standard deviations and quantiles of every cell.

    Blocks are added in a fixed order, so the numbers do not depend on the order of the run.

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

    - `mean`, the bounds `lower` and `upper` of its interval, `half_width` (for 'stopped', the
      longer side) and `deviation` (sampler, axes, time, observable);
    - `quantile` (sampler, axes, time, kept, level), unless V was kept; from histograms, to within a
      bin;
    - `stopped` (sampler, axes, fraction), the probability of having stopped by that fraction of the
      horizon, with `stopped_lower` and `stopped_upper`;
    - `samples` (sampler, axes).

    Cells without samples are NaN.

    Raises
    ------
    ValueError
        If `data` is not from `open_sweep`, its store has been extended since, or `confidence` is
        not in (0, 1).
    """
    _check_opened(data)
    check_inside("confidence", confidence)
    done = data["drawn"] > 0
    samples = data["drawn"].sum("block")
    moments = data["moments"].transpose("block", "sampler", ..., "power")
    counts = data["drawn"].transpose("block", "sampler", ...)
    # Block by block in a fixed order, so that the sums are bit-identical.
    mean, variance = (
        moments.isel(block=0, power=0, drop=True).copy(data=part)
        for part in merged(counts, moments.isel(power=0), moments.isel(power=1))
    )
    frequency = data["observable"] == STOPPED
    half = xr.apply_ufunc(half_width, samples, mean, variance, confidence, frequency)
    half = half.where(samples > 0).transpose(*mean.dims)
    exact = xr.apply_ufunc(
        frequency_bounds, samples, mean, confidence, frequency, output_core_dims=[[], []]
    )
    normal = (mean - half, mean + half)
    lower, upper = (
        xr.where(frequency, one, other).where(samples > 0).transpose(*mean.dims)
        for one, other in zip(exact, normal, strict=True)
    )
    counts = data["stopping"].where(done, 0).sum("block")
    counts = counts.isel(stopping_bin=slice(0, STOPPING_BINS)).cumsum("stopping_bin")
    ends = np.arange(1, STOPPING_BINS + 1) / STOPPING_BINS
    counts = counts.rename(stopping_bin="fraction").assign_coords(fraction=ends)
    some = samples.where(samples > 0)
    low, high = xr.apply_ufunc(
        fraction_bounds, counts, samples, confidence, output_core_dims=[[], []]
    )
    summary = xr.Dataset(
        {"mean": mean, "half_width": half, "lower": lower, "upper": upper}
        | {"deviation": np.sqrt(variance), "samples": samples, "stopped": counts / some}
        | {"stopped_lower": low.where(samples > 0), "stopped_upper": high.where(samples > 0)}
    )
    if "values" in data:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice encountered")  # cells without samples
            quantiles = data["values"].where(seen(data)).quantile(list(_LEVELS), "sample")
        summary["quantile"] = quantiles.rename(quantile="level").transpose(..., "level")
    elif "histogram" in data:
        whole = data["histogram"].where(done, 0).sum("block")
        parts = [
            xr.apply_ufunc(quantile, whole, input_core_dims=[["bin"]], kwargs={"level": p})
            for p in _LEVELS
        ]
        levels = xr.DataArray(list(_LEVELS), dims="level", name="level")
        summary["quantile"] = xr.concat(parts, levels).transpose(..., "level")
    return _labelled(summary, confidence)


@recorded()
def sweep_distances(
    data: xr.Dataset, first: str = "chain", second: str = "sde", confidence: float = 0.95
) -> xr.Dataset:
    """Return the Kolmogorov-Smirnov distances between two samplers in every cell.

    Distances from values are exact. Those from histograms are taken at the edges of the bins; they
    are too small by at most the fraction of samples in a bin.

    Returns
    -------
    xarray.Dataset with `distance` (axes, time, kept) and `margin` (axes): the true distance of the
    laws is within distance +- margin with probability `confidence` (Dvoretzky, Kiefer, Wolfowitz).

    Raises
    ------
    ValueError
        If `data` is not from `open_sweep`, its store has been extended since, a sampler is not in
        the sweep, V was kept, a cell has no samples, or `confidence` is not in (0, 1).
    """
    _check_opened(data)
    check_inside("confidence", confidence)
    samplers = list(data["sampler"].values)
    check_choice("first", first, samplers)
    check_choice("second", second, samplers)
    if "values" not in data and "histogram" not in data:
        raise ValueError("data must come from a sweep that keeps observables, or their histograms")
    drawn = data["drawn"].sum("block")
    counts = [drawn.sel(sampler=name) for name in (first, second)]
    if any(bool((count == 0).any()) for count in counts):
        raise ValueError("data must come from a finished sweep; some cells have no samples yet")
    if "values" in data:
        values = data["values"].where(seen(data))
        precision = float(np.finfo(sweep_of(data).dtype).eps)
        values = values.copy(data=rounded(values.values, precision))
        parts = [values.sel(sampler=name).drop_vars("sampler") for name in (first, second)]
        test = xr.apply_ufunc(
            ks_2samp, *parts, input_core_dims=[["sample"], ["sample"]], output_core_dims=[[], []],
            kwargs={"axis": -1, "nan_policy": "omit", "method": "asymp"},
        )  # fmt: skip
        distance = test[0]
    else:
        whole = data["histogram"].where(data["drawn"] > 0, 0).sum("block").cumsum("bin")
        a, b = (
            whole.sel(sampler=name).drop_vars("sampler") / count.drop_vars("sampler")
            for name, count in zip((first, second), counts, strict=True)
        )
        distance = abs(a - b).max("bin")
    margin = xr.apply_ufunc(
        ks_margin, *(count.drop_vars("sampler") for count in counts),
        kwargs={"confidence": confidence}, vectorize=True,
    )  # fmt: skip
    return _labelled(xr.Dataset({"distance": distance, "margin": margin}), confidence)


def _labelled(result: xr.Dataset, confidence: float) -> xr.Dataset:
    """Return a result whose variables say what they are; they kept what the raw arrays say."""
    for name in _ABOUT.keys() & result.variables.keys():
        result[name].attrs = {"long_name": _ABOUT[name].format(f"{100.0 * confidence:g} %")}
    return result


def _check_opened(data: xr.Dataset) -> None:
    """Raise ValueError unless `data` is a Dataset from `open_sweep` whose store has not grown.

    A Dataset in memory is refused too, because it may have been loaded after the extension.
    """
    if not {"drawn", "moments", "sampler"} <= set(data.variables):
        raise argument_error("data", "a Dataset from open_sweep", data)
    store = Path(data.encoding.get("store", ""))
    if "sweep" not in data.encoding or not (store / "sweep.json").exists():
        return
    if (store / "extension.json").exists() or text_digest(store) != data.encoding["sweep"]:
        raise ValueError(
            f"data: the store at {store} has been extended since it was opened; open it again with "
            "open_sweep"
        )


def seen(data: xr.Dataset) -> xr.DataArray:
    """Return whether each sample is of a block that was present when the store was opened."""
    number = np.arange(data.sizes["sample"]) // data.attrs["block_samples"]
    return (data["drawn"] > 0).isel(block=xr.DataArray(number, dims="sample"))


def sweep_of(data: xr.Dataset) -> Sweep:
    """Return the sweep that made a Dataset from `open_sweep`."""
    return Sweep.from_json(data.attrs["sweep"])
