"""Paths of the limit with their own clocks that begin where others were."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shaped_attention.samplers.branches import Branches, Indices
from shaped_attention.samplers.clock_run import clock_process
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.run_result import check_stopping_times
from shaped_attention.samplers.task import Task

Array = NDArray[np.float64]

_MORE_STEPS = 1.25
"""Steps of a path for which room is reserved, over the points of the grid."""


@dataclass(frozen=True)
class ClockBranching:
    """The limit by the clock."""

    request: Request
    task: Task

    @property
    def usual_steps(self) -> int:
        """Number of steps of a path for which room is reserved at first."""
        return int(_MORE_STEPS * self.task.steps) + 1

    @property
    def horizon(self) -> float:
        """Time at which paths end."""
        return self.task.steps * self.task.dt

    def first(self, count: int) -> tuple[Array, Array]:
        """Return factors (count, 1, m, m) and marks (count, 2) of paths at time 0."""
        start = self.request.start_factors(0, count, 1, self.task.tokens)
        return start, np.tile([0.0, self.task.dt], (count, 1))

    def begin(self, first: int, factors: Array, steps: Indices, marks: Array) -> Branches:
        """Return paths with the sample numbers first, first + 1, ..., where others were."""
        return ClockBranches(self, first, factors, steps, marks)


class ClockBranches:
    """Paths with their own clocks; marks are the last grid point and the time left to the next."""

    def __init__(
        self, branching: ClockBranching, first: int, factors: Array, steps: Indices, marks: Array
    ) -> None:
        paths = clock_process(branching.request, branching.task, first, len(factors))
        paths.state[:] = factors[:, 0]
        paths.grid[:], paths.left[:], paths.taken[:] = marks[:, 0], marks[:, 1], steps
        self._paths, self._last = paths, branching.task.steps

    @property
    def steps(self) -> Indices:
        """Number of steps of each path (count,), including those before it branched off."""
        return self._paths.taken

    @property
    def times(self) -> Array:
        """Time of each path (count,)."""
        return self._paths.times

    @property
    def marks(self) -> Array:
        """Last grid point, and time left to the next (count, 2)."""
        return np.stack([self._paths.grid.astype(np.float64), self._paths.left], axis=1)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether a path is at the horizon, has stopped, or was ended (count,)."""
        ended: NDArray[np.bool_] = (self._paths.alive < 0.5) | (self._paths.grid >= self._last)
        return ended

    def advance(self) -> Indices:
        """Take one step of each path that has not ended, and return which."""
        if self.ended.all():
            return np.zeros(0, dtype=np.int64)
        before = self._paths.taken.copy()
        while True:
            # A schedule lets only the last paths move, and an overflowing path stops where it is.
            self._paths.step()
            check_stopping_times(self._paths.stopping_times())
            moved = np.flatnonzero(self._paths.taken > before)
            if len(moved) or self.ended.all():
                return moved

    def end(self, paths: Indices) -> None:
        """End some paths: they do not move from here."""
        self._paths.alive[paths] = 0.0

    def factors(self) -> Array:
        """Return the state (count, 1, m, m)."""
        return self._paths.factors()

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        return self._paths.covariances()
