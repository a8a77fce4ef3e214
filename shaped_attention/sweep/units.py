"""Work units, pure functions of the sweep and of integers, and the processes that run them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from shaped_attention.libraries import torch
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.result_axis import axis_of, stopping_times
from shaped_attention.sweep.cells import Cell
from shaped_attention.sweep.code import code_here
from shaped_attention.sweep.data import Arrays, encode
from shaped_attention.sweep.specification import Sweep, Unit

_device: str | None = None
"""Device of this process, if it is a worker that has one."""


class Task(NamedTuple):
    """Everything that a unit depends on, to be sent to a worker."""

    cell: Cell
    sampler: str
    fractions: tuple[float, ...]
    observables: tuple[str, ...]
    keep: str
    settings: dict[str, Any]


class Drawn(NamedTuple):
    """What a unit gives: compressed arrays, seconds, the code of its process; or an error."""

    data: bytes
    seconds: float
    code: dict[str, str]
    error: str = ""


def task_of(sweep: Sweep, unit: Unit, cell: Cell | None = None) -> Task:
    """Return the task of a unit, whose cell may have been made before."""
    settings: dict[str, Any] = {"samples": unit.samples, "seed": sweep.unit_seed(unit)}
    settings |= {"device": sweep.device, "dtype": sweep.dtype, "chunk": None}
    kept = (sweep.fractions, sweep.observables, sweep.keep)
    return Task(cell or sweep.cell(unit.cell), unit.sampler, *kept, settings)


def draw(task: Task) -> Drawn:
    """Simulate a unit. An error comes back as text, since not every error can be sent."""
    began = time.perf_counter()
    settings = task.settings | ({} if _device is None else {"device": _device})
    try:
        data = encode(_kept(task, task.cell.sample(task.sampler, task.fractions, **settings)))
    except Exception as error:
        return Drawn(b"", 0.0, code_here(), f"{type(error).__name__}: {error}")
    return Drawn(data, time.perf_counter() - began, code_here())


def _kept(task: Task, result: xr.Dataset) -> Arrays:
    v = result["V"].transpose(axis_of(result), "sample", "row", "col").to_numpy()
    # Several times at once: the observables of (time * sample) matrices.
    precision = float(np.finfo(task.settings["dtype"]).eps)
    computed = observables(v.reshape(-1, *v.shape[-2:]), precision=precision)
    values = np.stack([computed[name].reshape(v.shape[:2]) for name in task.observables], axis=-1)
    kept: Arrays = {"values": values, "stopping_time": stopping_times(result)}
    return kept | ({"V": v} if task.keep == "V" else {})


def processes(workers: int, devices: Sequence[str] = ()) -> ProcessPoolExecutor:
    """Return local processes with one thread each, or with one device each.

    Raises
    ------
    BrokenExecutor
        If no process starts.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    for i in range(workers):
        queue.put(devices[i] if devices else None)
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (queue,))
    pool.submit(os.getpid).result()
    return pool


def end(pool: ProcessPoolExecutor) -> None:
    """End processes, without waiting for the units that they run."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(devices: Any) -> None:
    """Take a device from the queue, if there is one per process; exit when the parent does."""
    global _device
    _device = devices.get()
    # The parent handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Exit when the parent is gone, even by `kill -9`, which the pool would not notice."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
