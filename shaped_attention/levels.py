"""One level of multilevel Monte Carlo: pairs of Euler paths, moments of their difference.

The two paths have the steps h and 2 h and the same Brownian motion: a coarse increment is the sum
of two fine ones. `shaped_attention.multilevel` adds the levels up.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention import ensemble as en
from shaped_attention.draws import stream_key
from shaped_attention.euler import limit_system
from shaped_attention.kernels.jit import LANES

Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""An observable: V (samples, m, m) -> (samples,)."""

_BLOCK, _BLOCK_ENTRIES = 4096, 2**16
"""Paths, and entries of their factors, in a block: it bounds memory, and is in the cache."""


@dataclass
class Level:
    """A level: grids, random numbers, and moments of its samples.

    `mean` and `squares`, the sum of squared deviations from it, are (2,): of the difference and of
    the finer value.
    """

    base: en.Ensemble
    number: int
    f: Function
    count: int = 0
    stopped: int = 0
    mean: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    def __post_init__(self) -> None:
        self.key = stream_key(self.base.seed, "multilevel", self.number)
        self.grids = [
            replace(self.base, steps=self.base.steps * 2**i, dt=self.base.dt / 2**i)
            for i in (self.number, self.number - 1)
            if i >= 0
        ]
        self.cost = sum(grid.steps for grid in self.grids)

    @property
    def variance(self) -> NDArray[np.float64]:
        """Of a difference and of a finer value."""
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
        """Means, sums of squared deviations, and how many stopped, of some samples."""
        systems = [limit_system(grid, first, count) for grid in self.grids]
        for system in systems:
            system.key = self.key
        states = [system.initial() for system in systems]

        def advance(i: int, step: int, increment: Tensor) -> None:
            now = torch.tensor(float(step))
            drift, noise = systems[i].f_and_g_prod(now, states[i], increment)
            states[i] = states[i] + drift + noise

        half = torch.zeros(())
        for step in range(self.grids[0].steps):
            increment = systems[0].increments(step)
            advance(0, step, increment)
            if len(systems) == 2 and step % 2:
                advance(1, step // 2, half + increment)
            else:
                half = increment.clone()  # the system writes over its increments
        ends = list(zip(systems, states, strict=True))
        values = [self.f(en.gram(system.factors(y))) for system, y in ends]
        stopped = np.any([np.isfinite(system.stopping_times(y)) for system, y in ends], axis=0)
        pair = np.stack([values[0] - values[1] if len(values) == 2 else values[0], values[0]])
        mean = pair.mean(axis=1)
        return mean, ((pair - mean[:, None]) ** 2).sum(axis=1), int(stopped.sum())
