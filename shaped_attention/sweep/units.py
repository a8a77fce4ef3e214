"""Work units, pure functions of the sweep and of integers, and the executors that run them here."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.libraries import sources_digest, torch, versions
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.result_axis import axis_of, stopping_times
from shaped_attention.sweep.cells import Cell
from shaped_attention.sweep.data import Drawn, encode, record_of
from shaped_attention.sweep.specification import Sweep, Unit

_FEW = 64
"""Samples from which `estimate` estimates."""

_device: str | None = None
"""Device of this process, if it is a worker that has one."""


class Task(NamedTuple):
    """Everything that a unit depends on, to be sent to a worker."""

    cell: Cell
    sampler: str
    fractions: tuple[float, ...]
    observables: tuple[str, ...]
    record: np.dtype[np.void]
    settings: dict[str, Any]


def task_of(sweep: Sweep, unit: Unit, cell: Cell | None = None) -> Task:
    """Return the task of a unit, whose cell may have been made before."""
    settings: dict[str, Any] = {"samples": unit.samples, "seed": sweep.unit_seed(unit)}
    settings |= {"device": sweep.device, "dtype": sweep.dtype, "chunk": None}
    kept = (sweep.fractions, sweep.observables, record_of(sweep))
    return Task(cell or sweep.cell(unit.cell), unit.sampler, *kept, settings)


def code_here() -> dict[str, str]:
    """Return the digest of the package and the versions of libraries in this process."""
    code = {name: version for name, version in versions().items() if name != "python"}
    return code | {"sources of shaped_attention": sources_digest()}


def draw(task: Task) -> Drawn:
    """Simulate a unit. An error comes back as text, since not every error can be sent."""
    began = time.perf_counter()
    settings = task.settings | ({} if _device is None else {"device": _device})
    try:
        data = encode(_records(task, task.cell.sample(task.sampler, task.fractions, **settings)))
    except Exception as error:
        return Drawn(b"", 0.0, code_here(), f"{type(error).__name__}: {error}")
    return Drawn(data, time.perf_counter() - began, code_here())


def _records(task: Task, result: xr.Dataset) -> NDArray[np.void]:
    v = result["V"].transpose("sample", axis_of(result), "row", "col").to_numpy()
    # All samples and times at once.
    precision = float(np.finfo(task.settings["dtype"]).eps)
    computed = observables(v.reshape(-1, *v.shape[-2:]), precision=precision)
    records = np.empty(len(v), task.record)
    for k, name in enumerate(task.observables):
        records["values"][:, :, k] = computed[name].reshape(v.shape[:2])
    records["stopping_time"] = stopping_times(result)
    if "V" in (task.record.names or ()):
        records["V"] = v
    return records


def estimate(sweep: Sweep) -> dict[str, float]:
    """Return the seconds that each sampler takes on one worker.

    The first, the middle and the last cell are timed, with 64 samples or a unit if that is smaller.
    """
    indices = list(sweep.indices())
    samples, seconds = min(_FEW, sweep.block, sweep.samples), {}
    for sampler in sweep.samplers:
        times = []
        for place in {0, len(indices) // 2, len(indices) - 1}:
            # The first samples load or compile what the others use.
            for count in (1, samples):
                drawn = draw(task_of(sweep, Unit(sampler, indices[place], 0, count)))
            if drawn.error:
                raise ValueError(f"{sampler}: {drawn.error}")
            times.append(drawn.seconds / samples)
        seconds[sampler] = sum(times) / len(times) * sweep.samples * len(indices)
    return seconds


class Here(Executor):
    """Runs a unit in this process, when it is submitted."""

    _max_workers = 1

    def submit(self, function: Callable[..., Any], /, *values: Any, **named: Any) -> Future[Any]:
        """Return the future of a call that has ended."""
        future = Future[Any]()
        future.set_result(function(*values, **named))
        return future


class Processes(Executor):
    """Local processes with one thread each, or with one device each, which can be replaced.

    BrokenExecutor is raised if no process starts.
    """

    def __init__(self, workers: int, devices: Sequence[str] = ()) -> None:
        self._max_workers, self._devices = workers, devices
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        for i in range(self._max_workers):
            queue.put(self._devices[i] if self._devices else None)
        self._pool = ProcessPoolExecutor(self._max_workers, context, _begin_worker, (queue,))
        try:
            self._pool.submit(os.getpid).result()
        except BrokenExecutor:
            raise BrokenExecutor(
                'no process starts; a script needs `if __name__ == "__main__":` around its calls'
            ) from None

    def submit(self, function: Callable[..., Any], /, *values: Any, **named: Any) -> Future[Any]:
        """Run a function in one of the processes."""
        return self._pool.submit(function, *values, **named)

    def replace(self) -> None:
        """Start other processes after the death of one."""
        self.shutdown()
        self._start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes, without waiting for the units that they run."""
        for process in list((self._pool._processes or {}).values()):
            process.terminate()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


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
