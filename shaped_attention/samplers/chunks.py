"""Chunks of samples on threads: their size, and how they run and are interrupted together.

The random numbers of a sample depend on its number alone, so neither the chunks nor the threads
change a result.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from shaped_attention.lazy_torch import torch
from shaped_attention.numerics.one_thread import one_thread_of_worker
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.request import Request

_log = logging.getLogger(__name__)


def chunk_size(
    request: Request, bytes_per_sample: float, preferred: int, multiple: int, smallest: int = 1
) -> int:
    """Return the chunk size: the caller's, or `preferred` reduced to fit memory and threads.

    Work is not divided among threads below `smallest`, where it would cost more than it gains.
    """
    if request.chunk is not None:
        size = request.chunk
    else:
        threads = thread_count(request.place)
        fitting = int(request.memory / threads / max(bytes_per_sample, 1.0))
        shared = max(smallest, -(-request.samples // threads))
        size = max(1, min(preferred, fitting, shared))
    return -(-size // multiple) * multiple


def thread_count(place: str) -> int:
    """Return the number of concurrent chunks: torch's threads on the CPU, 1 on an accelerator.

    If torch is not loaded, return the number it would have: OMP_NUM_THREADS, or all cores.
    """
    if place != "cpu":
        return 1
    cores = os.cpu_count() or 1
    if "torch" in sys.modules:
        return max(1, min(torch.get_num_threads(), cores))
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdecimal() and int(asked):
        return min(int(asked), cores)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores


def threads_of_a_chunk(request: Request, size: int) -> int:
    """Return how many threads share the work of a chunk: those that no other chunk uses."""
    return max(1, thread_count(request.place) // -(-request.samples // size))


ChunkFunction = Callable[
    [int, int, NDArray[np.float64], NDArray[np.float64], Callable[[int], None]], None
]
"""``simulate(first, count, kept, stopping_time, tick)`` fills kept (times, count, ...) and
stopping_time (count,) for the samples first, ..., first + count - 1, and ticks steps."""


def run_chunks(
    request: Request,
    size: int,
    simulate: ChunkFunction,
    progress: bool | None,
    label: str,
    shape: tuple[int, ...],
) -> tuple[Float[NDArray[np.float64], "time sample ..."], Float[NDArray[np.float64], " sample"]]:
    """Run `simulate` for all chunks on threads; return the stored values and the stopping times.

    `shape` is that of the stored value of one sample at one time. With `progress` None a bar is
    shown if the standard error stream is a terminal. An interrupt or an error in one chunk stops
    all chunks at their next step.
    """
    samples = request.samples
    # Samples are contiguous in memory for each time, so chunks write without false sharing.
    v = np.empty((len(request.saved), samples, *shape))
    stopping = np.full(samples, np.inf)
    starts = range(0, samples, size)
    cancelled = threading.Event()
    lock = threading.Lock()
    total = samples * (request.steps - request.begin)
    with progress_bar(label, progress, total=total, unit="step", unit_scale=True) as bar:

        def one(start: int) -> None:
            count = min(size, samples - start)

            def tick(steps: int) -> None:
                if cancelled.is_set():
                    raise _CancelledError
                if not bar.disable:
                    with lock:
                        bar.update(count * steps)

            here = slice(start, start + count)
            try:
                with one_thread_of_worker():
                    simulate(start, count, v[:, here], stopping[here], tick)
            except BaseException:
                cancelled.set()
                raise

        with ThreadPoolExecutor(thread_count(request.place)) as pool:
            futures = [pool.submit(one, start) for start in starts]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                cancelled.set()
                for future in futures:
                    future.cancel()
                raise
    stopped = int(np.isfinite(stopping).sum())
    _log.info("%s: %d samples, %d chunks, %d stopped", label, samples, len(starts), stopped)
    return v, stopping


class _CancelledError(Exception):
    """Raised inside a chunk when another chunk fails or the user interrupts."""
