"""One level of multilevel Monte Carlo: pairs of Euler paths, moments of their difference.

The two paths have the steps h and 2 h and the same Brownian motion: a coarse increment is the sum
of two fine ones. `shaped_attention.statistics.multilevel` sums the levels.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.jit import LANES
from shaped_attention.numerics.named_numbers import Keys
from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers.choice import stepper_of
from shaped_attention.samplers.task import task_of

Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""An observable: V (samples, m, m) -> (samples,)."""

_BLOCK, _BLOCK_ENTRIES = 4096, 2**16
"""Paths, and entries of their factors, in a block: bounded memory that fits into the cache."""


@dataclass
class Level:
    """A level: grids, random numbers, and moments of its samples.

    `mean` and `squares`, the sum of squared deviations from the mean, have shape (2,): one entry
    for the difference and one for the finer value.
    """

    base: Specification
    number: int
    f: Function
    count: int = 0
    stopped: int = 0
    mean: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    def __post_init__(self) -> None:
        self.grids = [
            replace(self.base, steps=self.base.steps * 2**i, dt=self.base.dt / 2**i)
            for i in (self.number, self.number - 1)
            if i >= 0
        ]
        keys = Keys(self.base.seed, "multilevel", (self.number,))
        self.tasks = [replace(task_of(grid, "multilevel", None), keys=keys) for grid in self.grids]
        self.cost = sum(grid.steps for grid in self.grids)

    @property
    def variance(self) -> NDArray[np.float64]:
        """Variance of a difference and of a finer value."""
        return self.squares / (self.count - 1)

    @property
    def error2(self) -> float:
        """Variance of the mean difference."""
        return float(self.variance[0]) / self.count

    def grow(self, target: int, pool: ThreadPoolExecutor) -> None:
        """Add samples until there are `target`.

        Blocks are merged in their order (Chan, Golub and LeVeque, Am. Statistician 37, 1983).
        """
        size = max(LANES, min(_BLOCK, _BLOCK_ENTRIES // self.base.tokens**2 // LANES * LANES))
        firsts = range(self.count, target, size)
        counts = [min(size, target - first) for first in firsts]
        for count, (mean, squares, stopped) in zip(
            counts, pool.map(self._block, firsts, counts), strict=True
        ):
            total, apart = self.count + count, mean - self.mean
            self.mean = self.mean + apart * (count / total)
            self.squares = self.squares + squares + apart**2 * (self.count * count / total)
            self.count, self.stopped = total, self.stopped + stopped

    def _block(
        self, first: int, count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """Return means, sums of squared deviations and the number stopped of some samples."""
        both = [
            starting_paths(grid, stepper_of(grid, task), first, count)
            for grid, task in zip(self.grids, self.tasks, strict=True)
        ]
        half: Any = 0.0
        for step in range(self.grids[0].steps):
            increment = both[0].increments(step)
            both[0].euler(increment)
            if step % 2:
                for coarse in both[1:]:
                    coarse.euler(half + increment)
            else:
                half = 1.0 * increment  # The next call overwrites it.
        for paths in both:
            paths.finish()
        values = [self.f(paths.covariances()) for paths in both]
        stopped = np.any([np.isfinite(paths.stopping_times()) for paths in both], axis=0)
        pair = np.stack([values[0] - values[1] if len(values) == 2 else values[0], values[0]])
        mean = pair.mean(axis=1)
        return mean, ((pair - mean[:, None]) ** 2).sum(axis=1), int(stopped.sum())
