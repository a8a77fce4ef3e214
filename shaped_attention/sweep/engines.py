"""Engines run work units: in this process, in an executor, in local processes, on a Dask cluster.

An engine has a number of `workers` and returns futures. If the death of a worker breaks its
executor, `recover` is called and returns whether the engine can continue.
"""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from shaped_attention.checks import argument_error, check_count
from shaped_attention.samplers.arguments import named_device

NO_GUARD = "in a script, workers need `if __name__ == '__main__':` around the call"

_LONGEST_END = 2.0
"""Seconds that a broken pool has to end its processes."""

_UNGUARDED = 91
"""Exit status of a worker whose import of the script would start further workers."""

_log = logging.getLogger(__name__)


class Engine:
    """Interface of an engine, as `run_sweep` uses it; this one runs units one after another.

    An engine calls functions with two further arguments: the device and the number of threads of a
    unit. None leaves either as it is.
    """

    workers = 1
    devices: tuple[str, ...] = ()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a call, or run it now."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, None, None))
        except Exception as error:
            future.set_exception(error)
        return future

    def recover(self) -> bool:
        """Restore the engine after a worker died; return whether it can continue."""
        return False

    def abandon(self, futures: Sequence[Future[Any]]) -> None:
        """Give up calls that an interrupted run has left."""
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """Release the resources of the engine, if it holds any."""


class InProcess(Engine):
    """Engine that runs units one after another in this process, on the samplers' threads."""


class ExecutorEngine(Engine):
    """Engine that runs units in any `concurrent.futures.Executor`, which the caller closes.

    Parameters
    ----------
    executor
        Executor that can send functions and arguments to its workers.
    workers
        Number of units that it runs at a time.
    threads
        Number of threads per unit, for executors of processes; None leaves it as it is.

    Raises
    ------
    ValueError
        If `workers` is not a whole number >= 1.
    """

    def __init__(self, executor: Executor, workers: int, threads: int | None = None) -> None:
        check_count("workers", workers)
        self.workers = workers
        self._executor, self._threads = executor, threads

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a call in the executor."""
        return self._executor.submit(function, *arguments, None, self._threads)


class Processes(Engine):
    """Engine of local processes with one thread each, or one per device; replaces dead ones.

    Parameters
    ----------
    workers
        Number of processes; by default 2.
    devices
        Devices such as 'cuda:0', with one process each, instead of `workers`.

    Raises
    ------
    ValueError
        If `workers` is not a whole number >= 1, a device is unknown, or both are given.
    """

    def __init__(self, workers: int | None = None, devices: Sequence[str] = ()) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # The script of the run is being imported by one of its own workers; the run reports it.
            os._exit(_UNGUARDED)
        self.devices = (devices,) if isinstance(devices, str) else tuple(devices)
        if self.devices and workers is not None:
            raise ValueError(
                "workers, devices: give exactly one of the two; there is one process per device"
            )
        for device in self.devices:
            named_device(device)
        self.workers = len(self.devices) or (2 if workers is None else workers)
        check_count("workers", self.workers)
        self._started: set[multiprocessing.process.BaseProcess] = set()
        self._pool: ProcessPoolExecutor | None = None

    def _make(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        for i in range(self.workers):
            queue.put(self.devices[i] if self.devices else None)
        return ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_begin_worker, initargs=(queue,)
        )

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a call in a process."""
        others = set(multiprocessing.active_children())
        try:
            with _interrupts_held():
                self._pool = self._pool or self._make()
                future = self._pool.submit(_on_device, function, *arguments)
        except BrokenExecutor as error:
            future = Future()
            future.set_exception(error)
        self._started.update(set(multiprocessing.active_children()) - others)
        return future

    def recover(self) -> bool:
        """Replace the pool: one dead process breaks all of it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        # The pool ends its other processes itself, in a thread. Exit codes are None until that
        # thread has joined the processes.
        last = time.monotonic() + _LONGEST_END
        while time.monotonic() < last and any(x.exitcode is None for x in self._started):
            time.sleep(0.01)
        codes = {process.exitcode for process in self._started}
        self._started.clear()
        if _UNGUARDED in codes:
            raise BrokenExecutor(f"worker processes import the script that starts them; {NO_GUARD}")
        self._pool = None
        _log.warning("a worker process died; the pool was replaced")
        return True

    def abandon(self, futures: Sequence[Future[Any]]) -> None:
        """End the processes; the next call starts others.

        The pool fails when it finds them dead and its calls cancelled, so nothing is cancelled.
        """
        self.close()

    def close(self) -> None:
        """End the processes, without waiting for the units that an interrupted run has left."""
        for process in self._started:
            process.terminate()
        self._started.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def dask_engine(client: Any) -> ExecutorEngine:
    """Return an engine on the workers of a Dask `distributed.Client` (extra `cluster`).

    The call waits for the first worker and counts the threads there are then. The engine keeps
    twice as many units in flight, so wait for all workers first (`client.wait_for_workers(n)`). If
    a worker dies, Dask runs its unit again elsewhere. On Slurm, use the client of a
    `dask_jobqueue.SLURMCluster`.

    Raises
    ------
    ValueError
        If `client` is not a Dask client.
    """
    if not hasattr(client, "get_executor"):
        raise argument_error("client", "a distributed.Client", client)
    client.wait_for_workers(1)
    threads = sum(client.nthreads().values())
    return ExecutorEngine(client.get_executor(pure=False), threads, threads=1)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C, also in processes that are started meanwhile, whose imports it would end."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows; the import of a worker may end early
        yield
        return
    from multiprocessing import resource_tracker  # missing on Windows

    # It starts with the first process, and then lets interrupts through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_device: str | None = None


def _begin_worker(devices: Any) -> None:
    """Take a device from the queue, if there is one per process; exit when the parent does."""
    global _device
    _device = devices.get()
    # The parent handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Exit when the parent is gone, even by `kill -9`, which the pool would not notice."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _on_device(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a unit in a worker process, on its device and with one thread."""
    return function(*arguments, _device, 1)
