"""Large matrices or large layers on the CPU: library routines move one path at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.functions import log
from shaped_attention.compiler.text import Real
from shaped_attention.numerics.array_code import Run, on_entries
from shaped_attention.numerics.operations.hidden import FEWEST_LARGE_TOKENS
from shaped_attention.numerics.threads import Team, one_thread
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    Array,
    Batch,
    Brownian,
    Clocked,
    HostStepper,
    SingleStepper,
    threads_of_a_chunk,
)
from shaped_attention.samplers.task import Task

if TYPE_CHECKING:
    from shaped_attention.numerics.plan import Plan

FEWEST_LARGE_NUMBERS = 2**15
"""Least random numbers of a layer and sample at which models run one path at a time.

Compiled code moves a vector of paths at once. If a single one fills the caches, that takes no
longer for each of many samples, and far less for a few.
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
        task, state = self.task, batch.state.copy()
        for k in np.flatnonzero(moving).tolist():
            if self.clock:
                (state[k, 0],) = self._by_clock(task.clock_plans.step, batch, k, lengths[k], point)
            elif task.width is None:
                drift, noise = self._run(task.plans[0], batch, k, point)
                state[k, 0] += drift
                state[k, 0] += noise
            else:
                results = self._run(task.plans[point % len(task.plans)], batch, k, point)
                state[k] = results[: task.groups]
                if task.weights:
                    batch.work.keep_entropies(k, batch.count, results[task.groups :])
        return state

    def drift_and_noise(
        self, batch: Batch, moving: Any, increments: Any, point: int
    ) -> tuple[Array, Array]:
        """Return drift times step, and noise, zero for paths that do not move."""
        both = np.zeros((2, *batch.state.shape))
        for k in np.flatnonzero(moving).tolist():
            both[:, k, 0] = self._run(self.task.plans[0], batch, k, point, normals=increments[k])
        return both[0], both[1]

    def _run(self, plan: Plan, batch: Batch, k: int, point: int, **given: Any) -> list[Array]:
        """Return the results of a program for path k."""
        with one_thread(), np.errstate(all="ignore"):
            return plan.run(batch.state[k], batch.first + k, point, team=batch.work.team, **given)

    def brownian_shape(self, batch: Batch) -> tuple[int, int]:
        """Return the rows and entries of the increments of a step."""
        return batch.count, self.task.plans[0].normals

    def increments(self, batch: Batch, step: int) -> Array:
        """Return the Brownian increments of a step (count, entries)."""
        (plan,) = self.task.plans
        return np.stack([plan.draw(batch.first + k, step) for k in range(batch.count)])

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
            for k in np.flatnonzero(moving).tolist():
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
        rates = np.zeros(batch.count)
        for k in np.flatnonzero(moving).tolist():
            rates[k] = self._by_clock(plan, batch, k, 0.0, point)[0].item()
        return rates

    def _by_clock(self, plan: Plan, batch: Batch, k: int, length: float, point: int) -> list[Array]:
        """Return the value of a program of the clock for path k."""
        inputs = [batch.state[k, 0], np.full((1, 1), length)]
        with one_thread(), np.errstate(all="ignore"):
            return plan.run(
                inputs, batch.first + k, int(batch.taken[k]), row=point, team=batch.work.team
            )


class Workspace:
    """Threads of a batch, and the entropies of the attention of the last layer (rows, heads, m)."""

    def __init__(self, threads: int) -> None:
        self.team, self.entropies = Team(threads), np.zeros((0, 0, 0))

    def keep_entropies(self, k: int, count: int, weights: list[Array]) -> None:
        """Keep the entropies of the rows of the attention weights of each head (m, m)."""
        if len(self.entropies) != count:
            self.entropies = np.zeros((count, len(weights), len(weights[0])))
        left = iter(enumerate(weights))

        def work() -> None:
            for head, matrix in left:
                terms = np.empty_like(matrix)
                _terms()(terms, np.zeros(0), matrix)
                self.entropies[k, head] = -terms.sum(axis=1)

        many = len(weights) * weights[0].size >= _ENTRIES_FOR_THREADS
        self.team.together([work] * (self.team.threads if many else 1))


@cache
def _terms() -> Run:
    """Return code for p log p."""

    def entry(e: Emitter, _: Sequence[Real], values: Sequence[Real]) -> Real:
        (p,) = values
        # The logarithm of a smaller double is not defined, and p log p is at rounding level.
        return e.fmul(p, log(e, e.select(e.compare("ogt", p, 1e-300), p, 1.0)))

    return on_entries(entry, 1, 0)
