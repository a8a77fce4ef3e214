"""A pool of threads that share operations, and libraries restricted to one.

Each operation is performed by one thread, so that its value does not depend on their number.

A library that divides a product among threads adds its terms in another order. While paths are
moved it is restricted to one thread, so that results have the same bits.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, ParamSpec, TypeAlias

import numpy as np
from threadpoolctl import OpenBLASController, ThreadpoolController

from shaped_attention.libraries import torch

if TYPE_CHECKING:
    from shaped_attention.numerics.plan import Step

_own = threading.local()
"""`asked` is the number of threads that the caller of `few_threads` has set, while inside."""

FEWEST_FOR_THREADS = 2**17
"""Entries of an operand below which the threads of a library cost more than they gain."""


def thread_count(place: str) -> int:
    """Return the number of concurrent chunks: torch's threads on the CPU, 1 on an accelerator.

    If torch is not loaded, return the number it would have: OMP_NUM_THREADS, or all cores.
    """
    if place != "cpu":
        return 1
    cores = os.cpu_count() or 1
    if "torch" in sys.modules:
        return max(1, min(getattr(_own, "asked", 0) or torch.get_num_threads(), cores))
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdecimal() and int(asked):
        return min(int(asked), cores)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores


P = ParamSpec("P")
_Context: TypeAlias = AbstractContextManager[None]


class Team:
    """Threads that share work."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def together(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls at the same time."""
        if self._pool is None:
            for call in calls:
                call()
            return
        futures = [self._pool.submit(call) for call in calls[1:]]
        try:
            calls[0]()
        finally:
            for future in futures:
                future.result()

    def perform(
        self, steps: Sequence[Step], perform: Callable[[Step], None], forget: Callable[[int], None]
    ) -> None:
        """Call ``perform(step)`` for all steps, and ``forget(value)`` after a value's last use.

        Threads share the steps that need only those before; one thread keeps the order, in which
        few values exist at a time.
        """
        levels = [[step] for step in steps] if self._pool is None else _levels(steps)
        uses = Counter(value for step in steps for value in set(step.inputs))
        ending = {value for step in steps for value in step.ends}
        for level in levels:
            left = iter(level)

            def work(left: Iterator[Step] = left) -> None:
                with np.errstate(all="ignore"):
                    for step in left:
                        perform(step)

            self.together([work] * min(self.threads, len(level)))
            for value in (value for step in level for value in set(step.inputs)):
                uses[value] -= 1
                if not uses[value] and value in ending:
                    forget(value)


def _levels(steps: Sequence[Step]) -> list[list[Step]]:
    """Return steps whose inputs are values of the levels before."""
    level_of: dict[int, int] = {}
    levels: dict[int, list[Step]] = {}
    for step in steps:
        level = max((level_of[x] + 1 for x in step.inputs if x in level_of), default=0)
        level_of[step.output] = level
        levels.setdefault(level, []).append(step)
    return [levels[level] for level in sorted(levels)]


ALONE = Team(1)
"""The calling thread alone."""


def shared(context: Callable[P, _Context]) -> Callable[P, _Context]:
    """Return a context of the process: the first to enter begins it, the last to leave ends it."""
    lock, inside, open_one = threading.Lock(), 0, ExitStack()

    @contextmanager
    def entered(*arguments: P.args, **named: P.kwargs) -> Iterator[None]:
        nonlocal inside
        with lock:
            if inside == 0:
                open_one.enter_context(context(*arguments, **named))
            inside += 1
        try:
            yield
        finally:
            with lock:
                inside -= 1
                if inside == 0:
                    open_one.close()

    return entered


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@shared
@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict BLAS and LAPACK to one thread, in the whole process."""
    _take_control()
    with _controller().limit(limits=1, user_api="blas"):
        yield
        _take_control()


def _take_control() -> None:
    """Let this thread set the number of threads of OpenBLAS.

    Since version 3.8 of threadpoolctl only the first thread to set it can: calls from others do
    nothing, so that the restriction would fail inside a `threadpool_limits` of the caller, and
    would outlast a run whose last worker is not its first.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@shared
@contextmanager
def _torch_threads_put_back() -> Iterator[None]:
    """Restore the number of threads of torch for threads that begin."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@contextmanager
def one_thread_of_worker() -> Iterator[None]:
    """Restrict BLAS, LAPACK and torch to one thread, on a thread that ends afterwards.

    Torch keeps a number of threads for each thread that calls it, and one for those that begin.
    """
    with one_thread():
        if "torch" not in sys.modules:
            yield
            return
        with _torch_threads_put_back():
            torch.set_num_threads(1)
            yield


@contextmanager
def few_threads(entries: float) -> Iterator[None]:
    """Restrict BLAS, LAPACK and torch to one thread if operands have few entries on average.

    The threads of a library would wait for each other longer than an operation takes. The package's
    own threads are as many as before (`thread_count`).
    """
    if entries >= FEWEST_FOR_THREADS:
        yield
        return
    before, outer = torch.get_num_threads(), getattr(_own, "asked", 0)
    with one_thread(), _torch_threads_put_back():
        _own.asked = outer or before
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
            _own.asked = outer
