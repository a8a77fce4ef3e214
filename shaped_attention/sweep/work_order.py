"""Which units come next, and when a cell has enough samples.

Without a target, every cell gets all its blocks, block by block over the whole grid. With a target,
a cell has rounds: its first blocks, then twice as many, and so on. After each complete round its
confidence interval decides whether it stops. The decision uses only complete rounds, so it does not
depend on the order in which units return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from shaped_attention.sweep.grid import STOPPED, Target, Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.summaries import Floats, half_width, merged

Key = tuple[int, int]
"""Cell and sampler."""

Moments = Callable[[Unit], Floats]


class Schedule:
    """Units of a sweep that are still to do, the most expensive first within each block.

    `done` has the finished units and the seconds that each took, `moments` their moments. The
    attribute `keys` has cells and samplers, the most expensive first, and `reasons` says why they
    stopped.
    """

    def __init__(self, sweep: Sweep, done: Mapping[Unit, float], moments: Moments) -> None:
        self._sweep, self._moments = sweep, moments
        # The last minute of several workers must not be the longest unit.
        dearest = np.argsort(-sweep.costs, axis=None, kind="stable")
        samplers = len(sweep.samplers)
        self.keys: list[Key] = [(int(k) // samplers, int(k) % samplers) for k in dearest]
        samples = [sweep.block_samples(block) for block in range(sweep.blocks)]
        # Cells, samplers and blocks are the axes of these arrays.
        self._costs = sweep.costs[:, :, None] * np.array(samples, dtype=float)
        self._wanted, self._done, self._out = np.zeros((3, *self._costs.shape), dtype=bool)
        self._taken, self._drawn = np.zeros((2, samplers))
        self.reasons: dict[Key, str] = {}
        for unit, seconds in done.items():
            self._done[_place(unit)] = True
            self.took(unit, seconds)
        first = sweep.blocks if sweep.target is None else min(sweep.target.first, sweep.blocks)
        self._wanted[:, :, :first] = True
        for key in self.keys:
            self._look(key)

    @property
    def total(self) -> int:
        """Number of units wanted, as now known."""
        return int(self._wanted.sum())

    @property
    def left(self) -> int:
        """Number of units wanted that are neither finished nor given up."""
        return int((self._wanted & ~self._done).sum())

    def next_units(self) -> Iterator[Unit]:
        """Yield units not yet handed out, early blocks first, for all rounds as now known."""
        for block in range(self._sweep.blocks):
            for key in self.keys:
                place = (*key, block)
                if self._wanted[place] and not self._done[place] and not self._out[place]:
                    self._out[place] = True
                    yield Unit(block, *key)

    def took(self, unit: Unit, seconds: float) -> None:
        """Record how long a unit took, which may not be in the store yet."""
        self._taken[unit.sampler] += seconds
        self._drawn[unit.sampler] += self._costs[_place(unit)]

    def finish(self, unit: Unit) -> None:
        """Record a finished unit."""
        self._done[_place(unit)] = True
        self._look((unit.cell, unit.sampler))

    def fail(self, unit: Unit) -> None:
        """Record a unit that was given up; its cell gets no further rounds."""
        self.reasons[(unit.cell, unit.sampler)] = "failed"
        self._done[_place(unit)] = True

    def seconds_of(self, unit: Unit) -> float:
        """Return the seconds that a unit will take, from those of finished ones; NaN without."""
        return float(self._rates()[unit.sampler] * self._costs[_place(unit)])

    def seconds_left(self) -> float:
        """Return the seconds that one worker needs for the rest, by cost; NaN if unknown."""
        wanted = np.where(self._wanted & ~self._done, self._costs, 0.0).sum(axis=(0, 2))
        return float(self._rates()[wanted > 0.0] @ wanted[wanted > 0.0])

    def _rates(self) -> Floats:
        """Return the seconds per cost of each sampler; of all for a sampler without units."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = self._taken / self._drawn
            return np.where(self._drawn > 0.0, rates, self._taken.sum() / self._drawn.sum())

    def _look(self, key: Key) -> None:
        """Close a cell or widen its round, as long as its rounds are complete."""
        sweep = self._sweep
        while key not in self.reasons:
            wanted = int(self._wanted[key].sum())
            if not self._done[key][:wanted].all():
                return
            if sweep.target is not None and self._reached(key, wanted, sweep.target):
                self.reasons[key] = "target"
            elif wanted == sweep.blocks:
                self.reasons[key] = "samples"
            else:
                self._wanted[key][: 2 * wanted] = True

    def _reached(self, key: Key, blocks: int, target: Target) -> bool:
        units = [Unit(block, *key) for block in range(blocks)]
        column = self._sweep.observed.index(target.observable)
        counts = np.array([self._sweep.block_samples(unit.block) for unit in units])
        parts = np.array([self._moments(unit)[-1, column] for unit in units])
        mean, variance = merged(counts, parts[:, 0], parts[:, 1])
        frequency = target.observable == STOPPED
        half = half_width(counts.sum(), mean, variance, target.level, frequency)
        return bool(half <= target.half_width)


def _place(unit: Unit) -> tuple[int, int, int]:
    return unit.cell, unit.sampler, unit.block
