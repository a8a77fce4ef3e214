"""Memory of a run: the bytes that a sample takes while it moves, and how many samples fit.

Every formula is here. Those of torch count what is on the device at the moment when most is;
`tests/test_memory.py` compares them with what is allocated: for the blocks of the package they are
between it and 1.5 times it. The result is in the memory of the host.
"""

from __future__ import annotations

from shaped_attention.libraries import torch
from shaped_attention.memory_sizes import check_fits, shown_bytes
from shaped_attention.numerics.named_numbers import HIDDEN_AT_A_TIME
from shaped_attention.numerics.program import Layout
from shaped_attention.numerics.threads import thread_count
from shaped_attention.samplers.specification import Specification

SHARE = 0.5
"""Share of a device's free memory that a run may take: scratch memory and gaps are on top."""

_LIMIT = {"clock": 35, "torchsde": 22, "direct": 21}
"""Matrices (m, m) of a step of the limit in torch, by its method."""

_UNTRACED = 40
"""Matrices (m, m) of a step of the chain whose program is not known."""


def free_bytes(place: str) -> int | None:
    """Return the free memory of a CUDA device, with what torch holds in reserve; None elsewhere."""
    device = torch.device(place) if place != "cpu" else None
    if device is None or device.type != "cuda" or not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free) + held


def budget(place: str, memory: int) -> int:
    """Return the bytes that a run may take: `memory`, and not more than a device has for it."""
    free = free_bytes(place)
    return memory if free is None else min(memory, int(SHARE * free))


def chunk_size(
    spec: Specification, bytes_of_one: float, preferred: int | None = None, multiple: int = 1,
    smallest: int = 1, threads: int | None = None,
) -> int:  # fmt: skip
    """Return how many samples move together: the caller's `chunk`, or what memory holds.

    At most `preferred` samples, of which one takes `bytes_of_one`, move together; None for all.
    Chunks are multiples of `multiple`, and at least `smallest` where threads share the work, of
    which there are `threads`; None for what the device has.
    """
    if spec.chunk is not None:
        size = spec.chunk
    else:
        at_a_time = thread_count(spec.place) if threads is None else threads
        share = budget(spec.place, spec.together) / at_a_time
        shared = max(smallest, -(-spec.samples // at_a_time))
        most = shared if preferred is None else min(preferred, shared)
        size = max(1, min(most, int(share / max(bytes_of_one, 1.0))))
    return -(-size // multiple) * multiple


def check_one_fits(spec: Specification, bytes_of_one: float, hint: str) -> None:
    """Raise ValueError if a single sample takes more than the memory of the specification."""
    if bytes_of_one > spec.memory:
        raise ValueError(
            f"memory must be at least {shown_bytes(bytes_of_one)!r}, about what one sample takes; "
            f"got {shown_bytes(spec.memory)!r}; {hint} need less"
        )


def check_kept(spec: Specification, numbers: int) -> None:
    """Raise ValueError if what is kept of all samples takes more than half of what is free.

    `numbers` are kept of a sample at each stored time.
    """
    times = len(spec.saved)
    bytes_of_one = 8 * (times * numbers + 1)
    helps = (
        f"keep={spec.keep!r} at {times} time{'s' * (times > 1)} takes {bytes_of_one} bytes "
        "a sample; fewer tokens or stored times, or keep='observables', need less"
    )
    check_fits("samples", spec.samples, bytes_of_one, helps)


# Bytes of a sample, in order: torch, networks, networks of lazily revealed weights, compiled code
# and library routines of the host.


def of_torch(spec: Specification) -> float:
    """Return the bytes of a path that torch moves by the descriptions of its blocks.

    In the chain they follow from the program of a layer: what it has at a time, some of which torch
    frees later; its widest matrix, with its parts; or hidden units with their random numbers.
    """
    itemsize, square = spec.dtype.itemsize, spec.tokens**2
    if spec.width is None:
        return float(itemsize * _LIMIT[spec.method] * square)
    if spec.eager:
        return float(itemsize * _UNTRACED * square * spec.groups)
    most = 0.0
    for program in spec.programs:
        widest = max(rows * columns for rows, columns in (node.shape for node in program.nodes))
        most = max(most, itemsize * max(2.4 * Layout(program).rows, 4.8 * widest))
        for node in program.nodes:
            if node.kind != "activated_gram":
                continue
            _, count, copies = node.integers
            units = min(HIDDEN_AT_A_TIME, count)
            # The numbers are made of integers with eight bytes, whatever their precision is.
            drawn = (32 * copies + 3 * itemsize - 6) * units * spec.tokens
            most = max(most, drawn + 4.0 * itemsize * square)
    return most


def of_network(spec: Specification) -> float:
    """Return the bytes of a network with real weights, without its weights.

    They are its tokens and their images: 9 m n numbers, or 2 m n and 4.2 m for each hidden unit
    where these are many.
    """
    assert spec.width is not None
    widest = max(block.widest(spec.width) for block in spec.blocks)
    numbers = spec.tokens * max(9.0 * spec.width, 2.0 * spec.width + 4.2 * widest)
    return spec.dtype.itemsize * numbers


def of_rows(entries: int, itemsize: int) -> float:
    """Return the bytes of a network of lazily revealed weights, from the numbers that it keeps.

    Its gradients, and bases while they are orthogonalised, come on top of them.
    """
    return 1.4 * itemsize * entries


def of_compiled(spec: Specification) -> float:
    """Return a bound of the bytes of a path of compiled code or library routines on the host."""
    m, saved = spec.tokens, len(spec.saved)
    if spec.method == "clock":
        return 8.0 * m * m * (4 + saved) + 16 * m * 64
    if spec.method == "torchsde":
        return 8.0 * m * m * (14 + saved)
    return 8.0 * 40 * m * m * spec.groups + 16 * m * 64
