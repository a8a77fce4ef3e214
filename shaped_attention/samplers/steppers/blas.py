"""Large matrices or large layers on the CPU: library routines move one path at a time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from shaped_attention.numerics.operations.hidden import FEWEST_LARGE_TOKENS
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.threads import Team, one_thread
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    Array,
    HostStepper,
    Numpy,
    Rate,
    SingleStepper,
    SplitStepper,
)

if TYPE_CHECKING:
    from shaped_attention.numerics.plan import Plan
    from shaped_attention.samplers.clock_step import ByClock
    from shaped_attention.samplers.paths import Paths

FEWEST_LARGE_NUMBERS = 2**15
"""Least random numbers of a layer and sample at which models run one path at a time.

Compiled code moves a vector of paths at once. If a single one fills the caches, that takes no
longer for each of many samples, and far less for a few.
"""

_PREFERRED_ENTRIES = 2**17
"""Entries of V in a chunk of large matrices: samples share its start and calls (measured)."""

_TINY = 1e-300
"""A weight whose part of an entropy is at rounding level."""


def is_large(spec: Specification) -> bool:
    """Return whether library routines move the paths.

    Only the number of tokens decides and, in models, that of random numbers in a layer.
    """
    return spec.tokens >= FEWEST_LARGE_TOKENS or (
        spec.sampler == "model"
        and max(program.numbers for program in spec.programs) >= FEWEST_LARGE_NUMBERS
    )


class BlasStepper(HostStepper, SingleStepper[Numpy], SplitStepper[Numpy]):
    """Paths of large matrices or large layers.

    If `weights` are asked for, a step of the chain also writes the entropies (rows, heads, m) of
    its attention into the workspace.
    """

    name: ClassVar[str] = "BLAS and LAPACK"
    gives_entropies: ClassVar[bool] = True
    together = 1

    def __init__(self, spec: Specification) -> None:
        super().__init__(spec)
        self.preferred_chunk = max(1, _PREFERRED_ENTRIES // spec.tokens**2)

    @cached_property
    def plans(self) -> list[Plan]:
        """The programs of a step, ready to run."""
        return [self._plan(program) for program in self.spec.programs]

    @cached_property
    def _clock(self) -> ByClock[Plan]:
        from shaped_attention.samplers.clock_step import ByClock, traced_clock

        return ByClock(*map(self._plan, traced_clock(self.spec.pattern, self.spec.tokens)))

    def _plan(self, program: Program) -> Plan:
        from shaped_attention.numerics.plan import Plan  # most runs need neither

        return Plan(program, self.spec.keys.key, self.spec.depths)

    def workspace(self) -> Workspace:
        """Return threads that share the work of a step, and a place for entropies."""
        return Workspace(self.threads)

    def moved(self, paths: Paths, moving: Numpy, lengths: Array, point: int) -> Array:
        """Return the states after a step; those of paths that do not move stay."""
        spec, state = self.spec, paths.state.copy()
        for k in np.flatnonzero(moving).tolist():
            if self.clock:
                (state[k, 0],) = self._run(self._clock.step, paths, k, point, lengths[k])
            elif spec.width is None:
                drift, noise = self._run(self.plans[0], paths, k, point)
                state[k, 0] += drift
                state[k, 0] += noise
            else:
                results = self._run(self.plans[point % len(self.plans)], paths, k, point)
                state[k] = results[: spec.groups]
                if spec.weights:
                    paths.work.keep_entropies(k, paths.count, results[spec.groups :])
        return state

    def drift_and_noise(self, paths: Paths, moving: Numpy, point: int) -> tuple[Array, Array]:
        """Return drift times step, and noise, zero for paths that do not move."""
        both = np.zeros((2, *paths.state.shape))
        for k in np.flatnonzero(moving).tolist():
            both[:, k, 0] = self._run(self.plans[0], paths, k, point)
        return both[0], both[1]

    def _run(
        self, plan: Plan, paths: Paths, k: int, point: int, length: float | None = None
    ) -> list[Array]:
        """Return the results of a program for path k; those of the clock also have a length."""
        inputs, step = paths.state[k], point
        if length is not None:
            inputs, step = [inputs[0], np.full((1, 1), length)], int(paths.taken[k])
        with one_thread(), np.errstate(all="ignore"):
            return plan.run(inputs, paths.first + k, step, row=point, team=paths.work.team)

    def rate(self, name: Rate, paths: Paths, moving: Numpy, point: int) -> Array:
        """Return the speed or the spread (rows,); 0 for paths that do not move."""
        rates, plan = np.zeros(paths.count), getattr(self._clock, name)
        for k in np.flatnonzero(moving).tolist():
            rates[k] = self._run(plan, paths, k, point, 0.0)[0].item()
        return rates

    def norms(self, paths: Paths, moving: Numpy, least: float) -> Array:
        """Return |V| (rows,), or 0 where the trace, which is larger, is below `least`."""
        norms, weight = np.zeros(paths.count), 1.0 / self.spec.groups
        with one_thread(), np.errstate(all="ignore"):
            for k in np.flatnonzero(moving).tolist():
                factors = paths.state[k]
                if weight * float(np.vdot(factors, factors)) >= least:
                    total = sum(factor @ factor.T for factor in factors)
                    norms[k] = weight * float(np.linalg.norm(total))
        return norms


class Workspace:
    """Threads that share a step, and the entropies of its attention (rows, heads, m)."""

    def __init__(self, threads: int) -> None:
        self.team, self.entropies = Team(threads), np.zeros((0, 0, 0))

    def keep_entropies(self, k: int, count: int, weights: list[Array]) -> None:
        """Keep the entropies of the rows of the attention weights of each head (m, m)."""
        if len(self.entropies) != count:
            self.entropies = np.zeros((count, len(weights), len(weights[0])))
        for head, p in enumerate(weights):
            self.entropies[k, head] = -np.einsum("ij,ij->i", p, np.log(np.maximum(p, _TINY)))
