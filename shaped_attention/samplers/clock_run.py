"""Runs of the limit by the clock: the choice of the executor, chunks, and stored times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.numerics.jit import LANES
from shaped_attention.samplers.chunks import chunk_size
from shaped_attention.samplers.clock_process import BlasClock, ClockProcess, TorchClock
from shaped_attention.samplers.driver import run
from shaped_attention.samplers.executors import by_library, by_torch_on_cpu, path_chunk
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.task import Task, covariances

Array = NDArray[np.float64]

_PREFERRED_CHUNK = 2**15
"""Number of paths: the last few, near an explosion, take the time of a whole tile."""

_SMALLEST_ENTRIES = 2**11


def run_clock(
    request: Request, task: Task, progress: bool | None, parameters: dict[str, Any]
) -> xr.Dataset:
    """Run all samples of a request by the clock."""

    def start(first: int, count: int) -> ClockProcess:
        return clock_process(request, task, first, count)

    return run(request, start, _chunk(request), progress, "sde", parameters, _travel, _report)


def clock_process(request: Request, task: Task, first: int, count: int) -> ClockProcess:
    """Return paths of a request at its start, on the executor that it requires."""
    factors = request.start_factors(first, count, 1, request.tokens)[:, 0]
    samples = np.arange(first, first + count)
    paths: ClockProcess
    if by_library(request):
        paths = BlasClock(task, samples, factors, request.begin)
    elif request.compiled_device:
        paths = ClockProcess(task, samples, factors, request.begin)
    else:
        paths = TorchClock(
            task, samples, factors, request.begin, device=request.device, dtype=request.dtype,
            size=LANES if by_torch_on_cpu(request) else 1,
        )  # fmt: skip
    resumed = request.resumed
    if resumed:
        part = slice(first, first + count)
        paths.stop(resumed.stopping_time[part])
        if resumed.steps_taken is None or resumed.largest_speed is None:
            raise ValueError(
                "result has no steps_taken, so the clock cannot continue it; one of "
                "integrate_sde by the clock is needed"
            )
        paths.taken[:] = resumed.steps_taken[part]
        paths.largest[:] = resumed.largest_speed[part]
    return paths


def _chunk(request: Request) -> int:
    if by_torch_on_cpu(request):
        return path_chunk(request)
    m = request.tokens
    per_sample = 8.0 * m * m * (4 + len(request.saved)) + 16 * m * 64
    multiple = 1 if by_library(request) else LANES
    return chunk_size(
        request, per_sample, _PREFERRED_CHUNK, multiple, max(1, _SMALLEST_ENTRIES // m**2)
    )


def _travel(
    request: Request,
    paths: ClockProcess,
    keep: Callable[[Array], Array],
    kept: Array,
    tick: Callable[[int], None],
) -> None:
    """Move paths to the end, and store the values at the save times."""
    stored = np.empty((len(request.saved), *paths.state.shape))
    shown = request.begin
    for _ in paths.moves(request.steps, request.saved, stored):
        reached = int(np.where(paths.alive > 0.5, paths.grid, request.steps).mean())
        tick(reached - shown)
        shown = reached
    for i, factors in enumerate(stored):
        kept[i] = keep(covariances(factors[:, None]))


def _report(paths: ClockProcess) -> dict[str, NDArray[Any]]:
    return {"steps_taken": paths.taken, "largest_speed": paths.largest}
