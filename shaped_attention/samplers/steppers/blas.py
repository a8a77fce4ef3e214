"""Large matrices or large layers on the CPU: library routines move stacks of paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shaped_attention.numerics.operations.softmax import entropies
from shaped_attention.numerics.operations.stacks import FEWEST_LARGE_TOKENS
from shaped_attention.numerics.threads import one_thread
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    Array,
    Batch,
    Brownian,
    Clocked,
    HostStepper,
    Indices,
    SingleStepper,
    threads_of_a_chunk,
)
from shaped_attention.samplers.task import Task

if TYPE_CHECKING:
    from shaped_attention.numerics.plan import Plan

FEWEST_LARGE_NUMBERS = 2**15
"""Least random numbers of a layer and sample at which models run by library routines.

Tiles move 64 samples at once. If a single one fills the caches, library routines take no longer for
each sample, and far less for a few.
"""

_PREFERRED_ENTRIES = 2**17
"""Entries of V in a chunk of large matrices: samples share its start and calls (measured)."""

_ENTRIES_FOR_THREADS = 2**18
"""Entries of attention weights whose entropies take longer than to start a thread."""


def stepper_of(spec: Specification, task: Task) -> BlasStepper | None:
    """Return library routines if they move the samples of a run."""
    if not by_library(spec, task):
        return None
    return BlasStepper(task, threads_of_a_chunk(spec, BlasStepper(task).chunk(spec)))


def by_library(spec: Specification, task: Task) -> bool:
    """Return whether library routines move the samples of a run.

    Only the specification decides: the number of tokens and, in models, of random numbers.
    """
    if not spec.compiled_device or spec.tokens >= FEWEST_LARGE_TOKENS:
        return spec.compiled_device
    return task.keys.stream == "model" and task.numbers >= FEWEST_LARGE_NUMBERS


class BlasStepper(HostStepper, SingleStepper, Brownian, Clocked):
    """Paths of large matrices or large layers.

    If the task has weights, a step of the chain also writes the entropies (rows, heads, m) of its
    attention into the workspace.
    """

    name: ClassVar[str] = "BLAS and LAPACK"
    gives_entropies: ClassVar[bool] = True
    together = 1

    def __init__(self, task: Task, threads: int = 1) -> None:
        """`threads` share the work of a step; the paths do not depend on it."""
        super().__init__(task)
        self._threads = threads
        self.preferred_chunk = max(1, _PREFERRED_ENTRIES // task.tokens**2)

    def workspace(self) -> Workspace:
        """Return threads, and a place for entropies."""
        return Workspace(self._threads)

    def moved(self, batch: Batch, moving: Any, lengths: Array, point: int) -> Array:
        """Return the states after a step; those of paths that do not move stay."""
        task, k, team = self.task, np.flatnonzero(moving), batch.work.team
        if not len(k):
            return batch.state
        if self.clock:
            new = self._by_clock(task.clock_plans.step, batch, k, lengths[k], point)[:, None]
        elif task.width is None:
            drift, noise = self._limit(batch, k, None, point)
            new = _rows(batch.state, k) + drift[:, None]
            new += noise[:, None]
        else:
            plan = task.plans[point % len(task.plans)]
            groups = _rows(batch.state, k).swapaxes(0, 1)
            inputs = [np.ascontiguousarray(factors) for factors in groups]
            with one_thread(), np.errstate(all="ignore"):
                results = plan.run(inputs, batch.first + k, point, team=team)
            new = np.stack(results[: task.groups], axis=1)
            if task.weights:
                batch.work.keep_entropies(k, batch.count, results[task.groups :])
        return _whole(new, k, batch.state)

    def drift_and_noise(
        self, batch: Batch, moving: Any, increments: Any, point: int
    ) -> tuple[Array, Array]:
        """Return drift times step, and noise, zero for paths that do not move."""
        k, zero = np.flatnonzero(moving), np.broadcast_to(0.0, batch.state.shape)
        drift, noise = self._limit(batch, k, increments, point)
        return _whole(drift[:, None], k, zero), _whole(noise[:, None], k, zero)

    def _limit(self, batch: Batch, k: Indices, increments: Any, point: int) -> Sequence[Array]:
        """Return drift times step, and noise, of the paths k."""
        (plan,), factors = self.task.plans, _rows(batch.state, k)[:, 0]
        if not len(k):
            return [factors, factors]
        normals = None if increments is None else _rows(increments, k)
        with one_thread(), np.errstate(all="ignore"):
            return plan.run(
                [factors], batch.first + k, point, normals=normals, team=batch.work.team
            )

    def brownian_shape(self, batch: Batch) -> tuple[int, int]:
        """Return the rows and entries of the increments of a step."""
        return batch.count, self.task.plans[0].normals

    def increments(self, batch: Batch, step: int) -> Array:
        """Return the Brownian increments of a step (count, entries)."""
        (plan,) = self.task.plans
        return plan.draw(batch.first + np.arange(batch.count), step)

    def speed(self, batch: Batch, moving: Any, point: int) -> Array:
        """Return by how much steps are shorter at a grid point (rows,)."""
        return self._rate(self.task.clock_plans.speed, batch, moving, point)

    def spread(self, batch: Batch, moving: Any, point: int) -> Array:
        """Return the variance rate of log |V| (rows,)."""
        return self._rate(self.task.clock_plans.spread, batch, moving, point)

    def norms(self, batch: Batch, moving: Any, least: float) -> Array:
        """Return |V| (rows,), or 0 where the trace, which is larger, is below `least`."""
        norms, weight = np.zeros(batch.count), 1.0 / self.task.groups
        with one_thread(), np.errstate(all="ignore"):
            for k in np.flatnonzero(moving):
                factors = batch.state[k]
                if weight * float(np.vdot(factors, factors)) >= least:
                    total = sum(factor @ factor.T for factor in factors)
                    norms[k] = weight * float(np.linalg.norm(total))
        return norms

    def absolute_sums(self, state: Array) -> Array:
        """Return the sums of absolute entries (rows,)."""
        sums: Array = np.abs(state).sum((-3, -2, -1))
        return sums

    def _rate(self, plan: Plan, batch: Batch, moving: Any, point: int) -> Array:
        rates, k = np.zeros(batch.count), np.flatnonzero(moving)
        rates[k] = self._by_clock(plan, batch, k, np.zeros(len(k)), point).reshape(len(k))
        return rates

    def _by_clock(self, plan: Plan, batch: Batch, k: Indices, lengths: Array, point: int) -> Array:
        """Return the value of a program of the clock for the paths k."""
        if not len(k):
            return np.zeros((0, 1, 1))
        inputs = [_rows(batch.state, k)[:, 0], lengths[:, None, None]]
        with one_thread(), np.errstate(all="ignore"):
            (value,) = plan.run(inputs, batch.first + k, batch.taken[k], row=point)
        return value


def _rows(array: Array, k: Indices) -> Array:
    """Return some rows, without a copy if these are all."""
    return array if len(k) == len(array) else array[k]


def _whole(rows: Array, k: Indices, others: Array) -> Array:
    """Return an array with some rows, and those of `others` where it has none."""
    if len(k) == len(others):
        return rows
    array = others.copy()
    array[k] = rows
    return array


class Workspace:
    """Threads of a batch, and the entropies of the attention of the last layer (rows, heads, m)."""

    def __init__(self, threads: int) -> None:
        from shaped_attention.numerics.threads import Team

        self.team, self.entropies = Team(threads), np.zeros((0, 0, 0))

    def keep_entropies(self, k: Indices, count: int, weights: list[Array]) -> None:
        """Keep the entropies of the rows of the attention weights of each head (paths, m, m)."""
        m = weights[0].shape[-1]
        values = np.empty((len(weights), len(k), m))
        left = iter(zip(weights, values, strict=True))

        def work() -> None:
            for matrices, rows in left:
                entropies(matrices.reshape(-1, m), rows.reshape(-1))

        many = values.size * m >= _ENTRIES_FOR_THREADS
        self.team.together([work] * (self.team.threads if many else 1))
        if len(self.entropies) != count:
            self.entropies = np.zeros((count, len(weights), m))
        self.entropies[k] = values.swapaxes(0, 1)
