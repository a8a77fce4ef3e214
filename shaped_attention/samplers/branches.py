"""Paths that begin at different steps, each with its own factor of V.

A path with a new sample number continues another from any of its steps: the increments from there
on have a new address, so they are independent of those of the first path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shaped_attention.samplers.executors import process_of
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.run_result import check_stopping_times
from shaped_attention.samplers.start_states import start_states
from shaped_attention.samplers.task import Task

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Branches(Protocol):
    """Paths with their own times and numbers of steps taken."""

    @property
    def steps(self) -> Indices:
        """Number of steps of each path (count,), including those before it branched off."""

    @property
    def times(self) -> Array:
        """Time of each path (count,)."""

    @property
    def marks(self) -> Array:
        """Numbers (count, k) on which the future of a path depends besides its factor and steps."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether a path is at the horizon, has stopped, or was ended (count,)."""

    def advance(self) -> Indices:
        """Take one step of some paths, and return which; none moves once all have ended."""

    def end(self, paths: Indices) -> None:
        """End some paths: they do not move from here."""

    def factors(self) -> Array:
        """Return the state (count, groups, m, c)."""

    def covariances(self) -> Array:
        """Return V (count, m, m)."""


class Branching(Protocol):
    """A sampler whose paths can begin anywhere."""

    @property
    def usual_steps(self) -> int:
        """Number of steps of a path for which room is reserved at first."""

    @property
    def horizon(self) -> float:
        """Time at which paths end."""

    def first(self, count: int) -> tuple[Array, Array]:
        """Return factors (count, groups, m, c) and marks (count, k) of paths at time 0."""

    def begin(self, first: int, factors: Array, steps: Indices, marks: Array) -> Branches:
        """Return paths with the sample numbers first, first + 1, ..., where others were."""


@dataclass(frozen=True)
class GridBranching:
    """The chain, or the limit with a fixed step."""

    request: Request
    task: Task

    @property
    def usual_steps(self) -> int:
        """Number of steps of a path."""
        return self.task.steps

    @property
    def horizon(self) -> float:
        """Time at which paths end."""
        return self.task.steps * self.task.dt

    def first(self, count: int) -> tuple[Array, Array]:
        """Return factors (count, groups, m, c) of paths at time 0, and no marks."""
        start = start_states(self.request, self.task, 0, count)
        return start, np.empty((count, 0))

    def begin(self, first: int, factors: Array, steps: Indices, marks: Array) -> Branches:
        """Return paths with the sample numbers first, first + 1, ..., where others were."""
        return GridBranches(self, first, factors, steps)


class GridBranches:
    """Paths on a grid of steps; a path that begins later waits until the others are there."""

    def __init__(
        self, branching: GridBranching, first: int, factors: Array, steps: Indices
    ) -> None:
        task = branching.task
        self._process = process_of(branching.request, task, first, len(factors), factors)
        self._last, self._dt = task.steps, task.dt
        self.steps: Indices = steps.copy()
        self.ended: NDArray[np.bool_] = self.steps >= self._last
        self._moving = np.ones(len(steps), dtype=bool)

    @property
    def times(self) -> Array:
        """Time of each path (count,)."""
        return self.steps.astype(np.float64) * self._dt

    @property
    def marks(self) -> Array:
        """Nothing: the number of steps gives the time."""
        return np.empty((len(self.steps), 0))

    def advance(self) -> Indices:
        """Take one step of the paths that are furthest behind, and return which."""
        living = ~self.ended
        if not living.any():
            return np.empty(0, dtype=np.int64)
        now = int(self.steps[living].min())
        moving = living & (self.steps == now)
        if not np.array_equal(moving, self._moving):
            self._process.stop(np.where(moving, np.inf, 0.0))
            self._moving = moving
        self._process.advance(now, now + 1)
        self.steps[moving] += 1
        stopping_times = self._process.stopping_times()
        check_stopping_times(stopping_times)
        stopped = np.isfinite(stopping_times)
        self.ended |= moving & (stopped | (self.steps >= self._last))
        return np.flatnonzero(moving)

    def end(self, paths: Indices) -> None:
        """End some paths: they do not move from here."""
        self.ended[paths] = True

    def factors(self) -> Array:
        """Return the state (count, groups, m, c)."""
        return self._process.factors()

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        return self._process.covariances()
