"""Work units: a block of samples of one cell and sampler, a pure function of sweep and integers."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.libraries import torch
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.result_axis import axis_of, stopping_times
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.samplers.memory import budget
from shaped_attention.samplers.specification import MEMORY_BUDGET
from shaped_attention.sweep.cells import DEFAULTS, Cell
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.summaries import STOPPING_BINS, histogram

_log = logging.getLogger(__name__)

_LARGEST_CHUNK = 2048
"""Largest chunk that a sampler chooses on the CPU, and so the largest that can fail."""


def unit_seed(sweep: Sweep, unit: Unit) -> int:
    """Return the seed of a unit, derived from the sweep's seed, the cell's values and the block.

    It depends on values, not on places along the axes, so that a cell has the same samples in every
    grid. Chain and SDE have separate streams under the same seed.
    """
    values = DEFAULTS | sweep.values(sweep.index(unit.cell))
    return derived_seed(sweep.seed, values, unit.block)


def memory_of(place: str) -> int:
    """Return the bytes that a unit may take: on a device, what a run may have there."""
    return budget(place, None) or MEMORY_BUDGET


def run_unit(
    sweep: Sweep, unit: Unit, device: str | None = None, threads: int | None = None
) -> dict[str, NDArray[Any]]:
    """Simulate a unit and return what the store keeps of it.

    `device` replaces the sweep's, and `threads` is set for the whole process. As many samples move
    together as fit into what the device has free when the unit starts; a unit that does not fit
    after all is run in smaller chunks. Neither changes the result.

    Returns
    -------
    Arrays by name: `moments` (time, observable, 2), sums of values and of squared deviations;
    `stopping` (bins + 1), counts; and, depending on `keep`, `values` (time, sample, observable) or
    `V` (time, sample, row, col) with `stopping_time` (sample), or `histogram`
    (time, observable, bin).

    Raises
    ------
    MemoryError
        If not even a single sample fits.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    cell = sweep.cell(sweep.index(unit.cell))
    sampler = sweep.samplers[unit.sampler]
    samples, seed = sweep.block_samples(unit.block), unit_seed(sweep, unit)
    place = sweep.device if device is None else device
    chunk: int | None = None
    while True:
        try:
            result = cell.sample(
                sampler, sweep.fractions, samples=samples, seed=seed, device=place,
                dtype=sweep.dtype, chunk=chunk, memory=memory_of(place),
            )  # fmt: skip
            return _kept(sweep, cell, result)
        except (MemoryError, torch.OutOfMemoryError) as error:
            if chunk == 1:
                raise MemoryError(f"{sampler}: one sample does not fit into memory") from error
            chunk = max(1, min(samples, _LARGEST_CHUNK if chunk is None else chunk) // 2)
            _log.warning(
                "unit %s does not fit into memory; it is tried again in chunks of %d", unit, chunk
            )


def _kept(sweep: Sweep, cell: Cell, result: xr.Dataset) -> dict[str, NDArray[Any]]:
    v = result["V"].transpose(axis_of(result), "sample", "row", "col").to_numpy()
    stopping = stopping_times(result)
    # Several times at once: the observables of (time * sample) matrices.
    computed = observables(v.reshape(-1, *v.shape[-2:]), precision=float(np.finfo(sweep.dtype).eps))
    names = sweep.observed[:-1]
    values = np.stack([computed[name].reshape(v.shape[:2]) for name in names], axis=-1)
    stopped = np.isfinite(stopping)
    values = np.concatenate(
        [values, np.broadcast_to(stopped[None, :, None], (*v.shape[:2], 1))], axis=-1
    )
    centred = ((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    kept: dict[str, NDArray[Any]] = {
        "moments": np.stack([values.sum(axis=1), centred], axis=-1),
        "stopping": _stopping_counts(stopping, cell.horizon),
    }
    if sweep.keep == "reductions":
        kept["histogram"] = histogram(values[..., :-1])
    else:
        kept["stopping_time"] = stopping
    if sweep.keep == "observables":
        kept["values"] = values[..., :-1]
    elif sweep.keep == "V":
        kept["V"] = v
    return kept


def _stopping_counts(stopping: NDArray[np.float64], horizon: float) -> NDArray[np.int64]:
    """Count stopping times in ((k - 1) h, k h], h = T / bins; the last count: not stopped."""
    finite = stopping[np.isfinite(stopping)]
    bins = np.clip(np.ceil(finite / horizon * STOPPING_BINS - 1e-6) - 1, 0, STOPPING_BINS - 1)
    counts = np.zeros(STOPPING_BINS + 1, dtype=np.int64)
    counts[:-1] = np.bincount(bins.astype(int), minlength=STOPPING_BINS)
    counts[-1] = len(stopping) - len(finite)
    return counts
