"""Executors that run units on this machine: in this process, or in processes that are replaced."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any

from shaped_attention.libraries import torch
from shaped_attention.sweep import units

_log = logging.getLogger(__name__)


class Here(Executor):
    """Runs a unit in this process, when it is submitted."""

    _max_workers = 1

    def submit(self, function: Callable[..., Any], /, *values: Any, **named: Any) -> Future[Any]:
        """Return the future of a call that has ended."""
        future = Future[Any]()
        future.set_result(function(*values, **named))
        return future


class Processes(Executor):
    """Local processes with one thread each, one per device; None is the device of the sweep.

    If one dies, BrokenExecutor ends what runs, and the next call starts others. It is also raised
    if no process starts.
    """

    def __init__(self, devices: Sequence[str | None]) -> None:
        self._max_workers, self._devices = len(devices), devices
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        for device in self._devices:
            queue.put(device)
        self._pool = ProcessPoolExecutor(self._max_workers, context, _begin_worker, (queue,))
        try:
            self._pool.submit(os.getpid).result()
        except BrokenExecutor:
            raise BrokenExecutor(
                'no process starts; a script needs `if __name__ == "__main__":` around its calls'
            ) from None

    def submit(self, function: Callable[..., Any], /, *values: Any, **named: Any) -> Future[Any]:
        """Run a function in one of the processes."""
        try:
            return self._pool.submit(function, *values, **named)
        except BrokenExecutor:
            _log.warning("a worker process died; the processes are replaced")
            self.shutdown()
            self._start()
            return self._pool.submit(function, *values, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes, without waiting for the units that they run."""
        for process in list((self._pool._processes or {}).values()):
            process.terminate()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _begin_worker(devices: Any) -> None:
    """Take a device from the queue; exit when the parent does."""
    units.own_device = devices.get()
    # The parent handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, which takes seconds to load, if it comes
    if "torch" in sys.modules:
        torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Exit when the parent is gone, even by `kill -9`, which the pool would not notice."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
