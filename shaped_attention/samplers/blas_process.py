"""Paths with large matrices or large layers, moved in stacks by library routines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics import entries
from shaped_attention.numerics.one_thread import one_thread
from shaped_attention.numerics.threads import Team
from shaped_attention.numerics.tiles import LARGEST_FACTOR, MODERATE_FACTOR
from shaped_attention.samplers.task import Task, covariances

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_ENTRIES_FOR_THREADS = 2**18
"""Entries of attention weights whose entropies take longer than to start a thread."""


class BlasProcess:
    """Paths that are moved by library routines on the CPU in double precision."""

    def __init__(self, task: Task, first: int, start: Array, threads: int = 1) -> None:
        """Create the paths with numbers first, ... and factors `start` (count, groups, m, c).

        `threads` share the work of a step; the paths do not depend on it.
        """
        self.task, self.first, self.count = task, first, len(start)
        self.state = np.array(start, dtype=np.float64, order="C")
        self.stopped_at = np.full(self.count, np.inf)
        self._team = Team(threads)
        self._entropies = np.zeros((0, self.count, task.tokens))

    def advance(self, begin: int, end: int) -> None:
        """Take the steps begin, ..., end - 1."""
        with one_thread(), np.errstate(all="ignore"):
            for step in range(begin, end):
                self._step(self._moving(), step)

    def entropies(self) -> Array:
        """Return the entropies (heads, count, m) of the attention of the last layer.

        The task has weights. A path that has stopped keeps those of its last layer.
        """
        return self._entropies.copy()

    def _step(self, k: Integers, step: int) -> None:
        """Take a step of the paths k, which have not stopped."""
        if not len(k):
            return
        task, plan = self.task, self.task.plans[step % len(self.task.plans)]
        inputs = [np.ascontiguousarray(self.state[k, g]) for g in range(task.groups)]
        results = plan.run(inputs, self.first + k, step, team=self._team)
        if task.width is None:
            drift, noise = results
            moves = self._moves(k, drift, noise, step)
            self.state[k[moves], 0] = (self.state[k[moves], 0] + drift[moves]) + noise[moves]
        else:
            self.state[k] = np.stack(results[: task.groups], axis=1)
            self._keep_entropies(k, results[task.groups :])
        self._stop_outside(k, (step + 1) * task.dt)

    def _keep_entropies(self, k: Integers, weights: list[Array]) -> None:
        """Keep the entropies of the rows of the attention weights of each head (paths, m, m)."""
        m = self.task.tokens
        entropies = np.empty((len(weights), len(k), m))
        left = iter(zip(weights, entropies, strict=True))

        def work() -> None:
            for matrices, rows in left:
                entries.entropies(matrices.reshape(-1, m), rows.reshape(-1))

        many = entropies.size * m >= _ENTRIES_FOR_THREADS
        self._team.together([work] * (self._team.threads if many else 1))
        if len(self._entropies) != len(weights):
            self._entropies = np.zeros((len(weights), self.count, m))
        self._entropies[:, k] = entropies

    def _moves(self, k: Integers, drift: Array, noise: Array, step: int) -> NDArray[np.bool_]:
        """Return whose next factors are finite; stop the other paths before the step."""
        size = np.abs((self.state[k, 0] + drift) + noise).sum((-2, -1))
        finite: NDArray[np.bool_] = size < LARGEST_FACTOR
        broken = np.isnan(size) & (np.abs(self.state[k]).sum((-3, -2, -1)) < MODERATE_FACTOR)
        stops = np.where(broken, np.nan, step * self.task.dt)
        self.stopped_at[k[~finite]] = stops[~finite]
        return finite

    def _moving(self) -> Integers:
        """Return the numbers of the paths that have not stopped."""
        return np.flatnonzero(np.isinf(self.stopped_at))

    def _stop_outside(self, k: Integers, time: float) -> None:
        """Stop paths with |V| >= radius; since |V| <= tr V, the trace often suffices."""
        weight, radius = 1.0 / self.task.groups, self.task.radius
        for j in k[np.isinf(self.stopped_at[k])]:
            factors = self.state[j]
            if weight * float(np.vdot(factors, factors)) >= radius:
                total = sum(factor @ factor.T for factor in factors)
                if weight * float(np.linalg.norm(total)) >= radius:
                    self.stopped_at[j] = time

    def finish(self, time: float) -> None:
        """Stop the paths that are outside the radius at this time."""
        with one_thread(), np.errstate(all="ignore"):
            self._stop_outside(self._moving(), time)

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
        return torch.from_numpy(plan.draw(self.first + np.arange(self.count), step))

    def drift_and_noise(self, y: Tensor, increments: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise; both zero for stopped paths."""
        self.set_state(y)
        self.finish(step * self.task.dt)
        (plan,), k = self.task.plans, self._moving()
        reported = np.zeros((2, *self.state[:, 0].shape))
        if len(k):
            given = increments.numpy()[k]
            with one_thread(), np.errstate(all="ignore"):
                parts = plan.run([self.state[k, 0]], self.first + k, step, given=given)
            moves = self._moves(k, parts[0], parts[1], step)
            reported[:, k[moves]] = np.stack(parts)[:, moves]
        drift, noise = torch.from_numpy(reported).flatten(2)
        return drift, noise
