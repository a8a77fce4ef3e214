"""Operations that depend on each other, performed by one thread or by several.

Each operation is performed by one thread, so that its value does not depend on their number. The
threads take the earliest operation whose inputs exist, so that few values exist at a time.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Order:
    """Which operations come before which.

    Attributes
    ----------
    waits
        Number of operations that must come before each.
    followers
        Operations that wait for each.
    uses
        Number of operations that use each value.
    values
        Values that each operation uses and that are not needed after their last use.
    ends
        Values that are not needed after each operation, if they are performed in order.
    """

    waits: list[int]
    followers: list[list[int]]
    uses: dict[int, int]
    values: list[list[int]]
    ends: list[tuple[int, ...]]

    @classmethod
    def of(
        cls,
        before: Sequence[set[int]],
        used: Sequence[set[int]],
        ends: Sequence[tuple[int, ...]],
    ) -> Order:
        """Return the order, from what comes before each operation and the values that it uses."""
        ending = {value for values in ends for value in values}
        values = [sorted(ending & here) for here in used]
        followers: list[list[int]] = [[] for _ in before]
        for k, earlier in enumerate(before):
            for j in earlier:
                followers[j].append(k)
        uses: dict[int, int] = {}
        for here in values:
            for value in here:
                uses[value] = uses.get(value, 0) + 1
        return cls([len(x) for x in before], followers, uses, values, list(ends))


class Team:
    """Threads that share the operations of a program."""

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
        self, order: Order, perform: Callable[[int], None], forget: Callable[[int], None]
    ) -> None:
        """Call ``perform(k)`` for all operations, and ``forget(value)`` after the last use."""
        if self._pool is None:
            for k, ends in enumerate(order.ends):
                perform(k)
                for value in ends:
                    forget(value)
            return
        shared = _Shared(order, perform, forget)
        futures = [self._pool.submit(shared.work) for _ in range(self.threads - 1)]
        shared.work()
        for future in futures:
            future.result()


ALONE = Team(1)
"""The calling thread alone."""


class _Shared:
    """Operations that several threads take one by one."""

    def __init__(
        self, order: Order, perform: Callable[[int], None], forget: Callable[[int], None]
    ) -> None:
        self._order, self._perform, self._forget = order, perform, forget
        self._waits, self._uses = order.waits.copy(), order.uses.copy()
        self._ready = [k for k, count in enumerate(order.waits) if count == 0]
        self._left = len(order.waits)
        self._changed = threading.Condition()

    def work(self) -> None:
        """Perform operations until none is left."""
        with np.errstate(all="ignore"):
            while (k := self._next()) is not None:
                try:
                    self._perform(k)
                except BaseException:
                    self._finish()
                    raise
                self._performed(k)

    def _next(self) -> int | None:
        with self._changed:
            while not self._ready and self._left:
                self._changed.wait()
            return heapq.heappop(self._ready) if self._left else None

    def _finish(self) -> None:
        with self._changed:
            self._left = 0
            self._changed.notify_all()

    def _performed(self, k: int) -> None:
        with self._changed:
            for value in self._order.values[k]:
                self._uses[value] -= 1
                if self._uses[value] == 0:
                    self._forget(value)
            fresh = 0
            for j in self._order.followers[k]:
                self._waits[j] -= 1
                if self._waits[j] == 0:
                    heapq.heappush(self._ready, j)
                    fresh += 1
            self._left = max(0, self._left - 1)
            if fresh > 1 or not self._left:
                self._changed.notify_all()
