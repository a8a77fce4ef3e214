"""Chunks of samples on threads: how many samples move together, and on how many threads.

The random numbers of a sample depend on its number only, so neither the chunks nor the threads
change a result.
"""

from __future__ import annotations

import os
import sys

from shaped_attention.lazy_torch import torch
from shaped_attention.samplers.specification import Specification


def chunk_size(
    spec: Specification, bytes_per_sample: float, preferred: int, multiple: int, smallest: int = 1
) -> int:
    """Return the chunk size: the caller's, or `preferred` reduced to fit memory and threads.

    Work is not divided among threads below `smallest`, where it would cost more than it gains.
    """
    if spec.options.chunk is not None:
        size = spec.options.chunk
    else:
        threads = thread_count(spec.place)
        fitting = int(spec.options.memory / threads / max(bytes_per_sample, 1.0))
        shared = max(smallest, -(-spec.samples // threads))
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


def threads_of_a_chunk(spec: Specification, size: int) -> int:
    """Return how many threads share the work of a chunk: those that no other chunk uses."""
    return max(1, thread_count(spec.place) // -(-spec.samples // size))
