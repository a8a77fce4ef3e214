"""Paths with large matrices, moved one by one by library routines."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics import entries
from shaped_attention.numerics.blas_plan import Plan
from shaped_attention.numerics.blas_values import Memory
from shaped_attention.numerics.one_thread import one_thread
from shaped_attention.numerics.path_plan import PathPlan
from shaped_attention.numerics.path_team import Team
from shaped_attention.numerics.tiles import LARGEST_FACTOR, MODERATE_FACTOR
from shaped_attention.samplers.task import Task, covariances

Array = NDArray[np.float64]

_ENTRIES_FOR_THREADS = 2**18
"""Entries of attention weights whose entropies take longer than to start a thread."""


class BlasProcess:
    """Paths that are moved one by one on the CPU in double precision."""

    def __init__(self, task: Task, first: int, start: Array, threads: int = 1) -> None:
        """Create the paths with numbers first, ... and factors `start` (count, groups, m, c).

        `threads` share the work of a path; the paths do not depend on it.
        """
        self.task, self.first, self.count = task, first, len(start)
        self.state = np.array(start, dtype=np.float64, order="C")
        self.stopped_at = np.full(self.count, np.inf)
        self._memory, self._team = Memory(), Team(threads)
        self._entropies: list[Array] = [np.zeros((0, 0))] * self.count

    def advance(self, begin: int, end: int) -> None:
        """Take the steps begin, ..., end - 1."""
        with one_thread(), np.errstate(all="ignore"):
            for k in range(self.count):
                for step in range(begin, end):
                    if not np.isinf(self.stopped_at[k]):
                        break
                    self._step(k, step)

    def entropies(self) -> Array:
        """Return the entropies (heads, count, m) of the attention of the last layer.

        The task has weights. A path that has stopped keeps those of its last layer.
        """
        return np.stack(self._entropies, axis=1)

    def _plan(self, step: int) -> Plan | PathPlan:
        plans = self.task.plans
        return plans[step % len(plans)]

    def _step(self, k: int, step: int) -> None:
        """Take a step of one path that has not stopped."""
        task, plan = self.task, self._plan(step)
        results = plan.run(self.state[k], self.first + k, step, self._memory, team=self._team)
        if task.width is None:
            if self._moves(k, results, step):
                self.state[k, 0] += results[0]
                self.state[k, 0] += results[1]
        else:
            self.state[k] = results[: task.groups]
            self._entropies[k] = self._entropies_of(results[task.groups :])
        plan.give_back(results, self._memory)
        if np.isinf(self.stopped_at[k]):
            self._stop_outside(k, (step + 1) * task.dt)

    def _entropies_of(self, weights: list[Array]) -> Array:
        """Return the entropies of the rows of attention weights (heads, m)."""
        found = np.empty((len(weights), self.task.tokens))
        left = iter(zip(weights, found, strict=True))

        def work() -> None:
            for matrix, row in left:
                entries.entropies(matrix, row)

        many = len(weights) * self.task.tokens**2 >= _ENTRIES_FOR_THREADS
        self._team.together([work] * (self._team.threads if many else 1))
        return found

    def _moves(self, k: int, increments: list[Array], step: int) -> bool:
        """Return whether the next factor is finite; if not, stop the path before the step."""
        drift, noise = increments
        moved = self._memory.take((drift.shape[0], drift.shape[1]))
        np.add(self.state[k, 0], drift, out=moved)
        moved += noise
        size = float(np.abs(moved, out=moved).sum())
        finite = size < LARGEST_FACTOR
        self._memory.give_back(moved)
        if not finite:
            broken = math.isnan(size) and np.abs(self.state[k]).sum() < MODERATE_FACTOR
            self.stopped_at[k] = math.nan if broken else step * self.task.dt
        return finite

    def _moving(self) -> list[int]:
        """Return the numbers of the paths that have not stopped."""
        numbers: list[int] = np.flatnonzero(np.isinf(self.stopped_at)).tolist()
        return numbers

    def _stop_outside(self, k: int, time: float) -> None:
        """Stop a path with |V| >= radius; since |V| <= tr V, the trace often suffices."""
        factors, weight = self.state[k], 1.0 / self.task.groups
        if weight * float(np.vdot(factors, factors)) < self.task.radius:
            return
        total = sum(factor @ factor.T for factor in factors)
        if weight * float(np.linalg.norm(total)) >= self.task.radius:
            self.stopped_at[k] = time

    def finish(self, time: float) -> None:
        """Stop the paths that are outside the radius at this time."""
        with one_thread(), np.errstate(all="ignore"):
            for k in self._moving():
                self._stop_outside(k, time)

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        with one_thread():
            return covariances(self.state)

    def factors(self) -> Array:
        """Return the state (count, groups, m, c)."""
        return self.state

    def stop(self, stopping_times: Array) -> None:
        """Mark the paths that have stopped already; they do not move."""
        self.stopped_at[:] = stopping_times

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,)."""
        return self.stopped_at

    # The interface for torchsde.

    def flat_state(self) -> Tensor:
        """Return the state as torchsde's (count, entries)."""
        return torch.from_numpy(self.state).flatten(1)

    def set_state(self, y: Tensor) -> None:
        """Set the state from torchsde's (count, entries)."""
        self.state = np.ascontiguousarray(y.numpy().reshape(self.state.shape))

    def brownian_shape(self) -> tuple[int, int]:
        """Return the shape of the increments of a step."""
        return self.count, self.task.plans[0].normals

    def increments(self, step: int) -> Tensor:
        """Return the Brownian increments of a step (count, entries)."""
        (plan,) = self.task.plans
        out = np.empty((self.count, plan.normals))
        for k in range(self.count):
            plan.draw(self.first + k, step, out[k])
        return torch.from_numpy(out)

    def drift_and_noise(self, y: Tensor, increments: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise; both zero for stopped paths."""
        self.set_state(y)
        self.finish(step * self.task.dt)
        (plan,), given = self.task.plans, increments.numpy()
        reported = np.zeros((2, self.count, self.state[0].size))
        with one_thread(), np.errstate(all="ignore"):
            for k in self._moving():
                results = plan.run(self.state[k], 0, step, self._memory, given[k])
                if self._moves(k, results, step):
                    reported[0, k], reported[1, k] = (x.reshape(-1) for x in results)
                plan.give_back(results, self._memory)
        drift, noise = torch.from_numpy(reported)
        return drift, noise
