"""Choice of the executor that moves a chunk of paths, and of the number of paths in it.

All three executors (tiles, library routines, torch) run the same `Task` with the same random
numbers and produce the same paths up to rounding. A process knows its state, how to advance it, and
which paths have stopped; it knows neither save times nor files.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.blas_operations import FEWEST_LARGE_TOKENS
from shaped_attention.numerics.jit import LANES
from shaped_attention.samplers.blas_process import BlasProcess
from shaped_attention.samplers.chunks import chunk_size, threads_of_a_chunk
from shaped_attention.samplers.driver import LimitProcess
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.start_states import start_states
from shaped_attention.samplers.task import Task
from shaped_attention.samplers.tile_process import TileProcess
from shaped_attention.samplers.torch_process import TorchProcess

_PREFERRED_CHUNK = 1024
"""Number of paths whose factors fit into the second-level cache for the usual m."""

_SMALLEST_ENTRIES = 2**11
"""Below this size, the interpreter time of a chunk outweighs a second thread's gain (measured)."""

FEWEST_LARGE_NUMBERS = 2**15
"""Random numbers of a layer and sample from which on models run by library routines.

Tiles move 64 samples at once. If a single one fills the caches, stacks of any number take no longer
for each sample, and far less for a few.
"""

_PREFERRED_ENTRIES = 2**15
"""Entries of V in a chunk of large matrices."""


def path_chunk(request: Request, task: Task | None = None) -> int:
    """Return how many paths of a request move together."""
    m = request.tokens
    per_sample = 8.0 * 40 * m * m * request.groups + 16 * m * 64
    if by_torch_on_cpu(request):
        return LANES
    if by_library(request, task):
        return chunk_size(request, per_sample, max(1, _PREFERRED_ENTRIES // m**2), 1)
    smallest = _SMALLEST_ENTRIES // m**2
    return chunk_size(request, per_sample, _PREFERRED_CHUNK, LANES, smallest)


def by_library(request: Request, task: Task | None = None) -> bool:
    """Return whether library routines move the samples of a request.

    The specification alone decides: the number of tokens and, in models, of random numbers.
    """
    if not request.compiled_device or request.tokens >= FEWEST_LARGE_TOKENS:
        return request.compiled_device
    if task is None or task.keys.stream != "model":
        return False
    return task.numbers >= FEWEST_LARGE_NUMBERS


def by_torch_on_cpu(request: Request) -> bool:
    """Return whether torch moves the samples of a request on the CPU, always as many together."""
    return request.place == "cpu" and not request.compiled_device


def executor(tokens: int) -> str:
    """Describe what runs programs with that many tokens, in float64 on the CPU."""
    if tokens >= FEWEST_LARGE_TOKENS:
        return "BLAS and LAPACK"
    return "compiled code on tiles"


def process_of(
    request: Request,
    task: Task,
    first: int,
    count: int,
    factors: NDArray[np.float64] | None = None,
) -> LimitProcess:
    """Return paths of a request on the executor that it requires, at time 0 or with `factors`."""
    start = factors
    if start is None:
        start = start_states(request, task, first, count)
    process: LimitProcess
    if by_library(request, task):
        threads = threads_of_a_chunk(request, path_chunk(request, task))
        process = BlasProcess(task, first, start, threads)
    elif request.compiled_device:
        process = TileProcess(task, first, start)
    else:
        size = LANES if by_torch_on_cpu(request) else 1
        process = TorchProcess(task, first, start, request.device, request.dtype, size)
    if request.resumed:
        process.stop(request.resumed.stopping_time[first : first + count])
    return process
