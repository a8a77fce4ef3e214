"""Paths: their numbers, steps taken, times and states, and which of them still move.

A grid divides the time into intervals of equal length, and every path hits all of its points, so
stored times and schedules need no interpolation. With a fixed step a path takes one
step from point to point. By the clock it divides the rest of the way to the next point into equal
parts of about dt / (1 + speed), again after each step; a fixed step is a clock whose speed is 0.
The random numbers of a step have the address (number of the path, steps that it has taken), so a
path depends neither on those beside it nor on how far they are.

`Paths` owns times and which paths move, and a stepper gives the states. With torch and library
routines `Paths` also stops paths at an overflow and at the radius. Compiled code takes many steps
in a call, and applies both rules after each (`numerics.mover`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from shaped_attention.numerics.emission import MODERATE_FACTOR
from shaped_attention.rows.step import State, covariance
from shaped_attention.samplers.starts import start_states
from shaped_attention.samplers.steppers import (
    NEAR,
    SHIFT,
    AnyStepper,
    Array,
    Mask,
    SingleStepper,
    SplitStepper,
    completed,
)


class Paths:
    """Paths with consecutive numbers, which a stepper moves.

    Arrays have a row for each path, and further rows that complete what a stepper moves at once.
    `state`, `alive` and `stopped_at` are arrays of the stepper (numpy, or torch on a device), the
    others are numpy's.

    Attributes
    ----------
    first, count
        The numbers of the paths are first, ..., first + count - 1.
    state
        Factors of V, as the stepper arranges them.
    grid, left
        Number of the last grid point, and time left to the next one.
    taken
        Number of steps taken: with the number of the path it is the address of the next numbers.
    stopped_at
        Time at which a path stopped: infinite if it moves, NaN if a step was not a number.
    largest
        Largest speed before a step.
    slots, stored
        Where states of paths by the clock are copied at a grid point, or -1, and the copies.
    work
        What the stepper reuses from step to step.
    """

    def __init__(self, stepper: AnyStepper, first: int, count: int) -> None:
        """Create paths where they start."""
        self.stepper, self.spec, self.first, self.count = stepper, stepper.spec, first, count
        factors = stepper.starting(start_states(self.spec, first, count))
        rows = stepper.rows(count)
        self.state = stepper.arranged(completed(factors, rows))
        self.grid, self.left = np.zeros(rows, np.int64), np.full(rows, self.spec.dt)
        self.taken, self.largest = np.zeros(rows, np.int64), np.zeros(rows)
        self.alive = stepper.array(np.arange(rows) < count)
        self.stopped_at = stepper.array(np.full(rows, np.inf))
        self.slots = np.full(self.spec.steps + 1 if stepper.clock else 0, -1)
        self.stored = np.zeros((1, 1, *factors.shape[1:]))
        self.work = stepper.workspace()

    # What a run reads.

    def factors(self) -> Array:
        """Return the states (count, groups, m, c), with V = (1/g) sum of F_g F_g^T."""
        return self.stepper.factors(self.state)[: self.count]

    def covariances(self, point: int | None = None) -> Array:
        """Return V (count, m, m), exactly symmetric; of paths by the clock, at a stored point."""
        if point is None or not self.stepper.clock:
            return covariances(self.factors()) / self.stepper.divisor
        stored = self.stored[self.slots[point]]
        # A path that stops keeps its state.
        ended = ~self._living() & (point * self.spec.dt >= self._times())
        if ended.any():
            stored[ended] = self.stepper.factors(self.state)[ended]
        return covariances(stored[: self.count])

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,)."""
        return self.stepper.on_host(self.stopped_at)[: self.count]

    def reached(self) -> int:
        """Return the mean number of grid points reached; stopped paths count as arrived."""
        last = self.spec.steps
        return int(np.where(self._moving_to(last), self.grid, last)[: self.count].mean())

    def behind(self, end: int) -> bool:
        """Return whether some paths move and have not arrived at a grid point."""
        return bool(self._moving_to(end).any())

    def store(self, points: Sequence[int]) -> None:
        """Copy the states of paths by the clock, which are not there together, at grid points."""
        states = self.stepper.factors(self.state)
        self.stored = np.empty((len(points), *states.shape))
        self.slots[np.asarray(points)] = np.arange(len(points))
        for slot, point in enumerate(points):
            here = self.grid == point
            self.stored[slot, here] = states[here]

    # What moves paths.

    def advance(self, end: int, budget: int = 1) -> bool:
        """Move paths towards a grid point; return whether the whole budget was used."""
        if self.spec.method == "torchsde":
            from shaped_attention.samplers import torchsde_steps  # on first use: torchsde is slow

            return torchsde_steps.advance(self, end, budget)
        return self.stepper.advance(self, self._next(self._moving_to(end)), end, budget)

    def drift_and_noise(self, state: Any, point: int) -> tuple[Any, Any]:
        """Return drift times step, and noise, at a grid point and a state, for an integrator.

        Paths that are outside the radius, or would overflow, stop here; both are then zero.
        """
        stepper, self.state = self.stepper, state
        assert isinstance(stepper, SplitStepper)
        if not isinstance(stepper, SingleStepper):
            return stepper.drift_and_noise(self, self.alive, point)
        now, where = point * self.spec.dt, stepper.xp.where
        self._stop_outside(self.alive, now)
        drift, noise = stepper.drift_and_noise(self, self.alive, point)
        moving = self._stop_overflowing(state + drift + noise, self.alive, now)
        moving = moving[:, None, None, None]
        return where(moving, drift, 0.0), where(moving, noise, 0.0)

    def finish(self) -> None:
        """Stop the paths that are outside the radius after the last step of an integrator."""
        self._stop_outside(self.alive, int(self.grid[0]) * self.spec.dt)

    def _times(self) -> Array:
        return self.grid * self.spec.dt + (self.spec.dt - self.left)

    def _living(self) -> Mask:
        return self.stepper.on_host(self.alive)

    def _moving_to(self, end: int) -> Mask:
        """Return which paths have to move; without waiting for a device, also stopped ones."""
        behind = self.grid < end
        return behind & self._living() if self.stepper.host_waits else behind

    def _next(self, moves: Mask) -> Mask:
        """Return which of some paths move first: those furthest behind, or all by the clock.

        The parameters of a step with a schedule are those of one grid point.
        """
        if self.stepper.clock and not self.spec.scheduled:
            return moves
        return moves & (self.grid == self.grid[moves].min())

    def step(self, moved: Callable[[Paths, Any, Array, int], Any], moves: Mask) -> None:
        """Take one step of the paths `moves`, to the states that `moved` returns."""
        stepper, clock, dt = self.stepper, self.stepper.clock, self.spec.dt
        point = int(self.grid[moves].min()) if self.spec.scheduled or not clock else 0
        moving = self.alive if moves.all() else self.alive & stepper.array(moves)
        now = self._times()
        speed = stepper.rate("speed", self, moving, point) if clock else 0.0
        self.largest[moves] = np.maximum(self.largest, speed)[moves]
        pieces = np.maximum(np.floor(self.left * (1.0 + speed) / dt + 0.5), 1.0)
        lengths, arrived = self.left / pieces, moves & (pieces == 1.0)
        new = moved(self, moving, lengths, point)
        if self.spec.width is None:
            moving = self._stop_overflowing(new, moving, now)
            if stepper.host_waits:
                moves, arrived = moves & self._living(), arrived & self._living()
        if stepper.xp is np and moving.all():
            self.state = new
        else:
            self.state = stepper.xp.where(moving[:, None, None, None], new, self.state)
        self.taken[moves] += 1
        self.grid[arrived] += 1
        self.left = np.where(arrived, dt, np.where(moves, self.left - lengths, self.left))
        now = np.where(arrived, self.grid * dt, now + lengths)
        self._stop_outside(moving, now, lengths, point)
        if clock:
            there = np.flatnonzero(arrived & self._living() & (self.slots[self.grid] >= 0))
            self.stored[self.slots[self.grid[there]], there] = stepper.factors(self.state)[there]

    def _stop_overflowing(self, new: Any, moving: Any, now: Array | float) -> Any:
        """Stop paths before a step that overflows; return which of `moving` still move."""
        where, stepper = self.stepper.xp.where, self.stepper
        size = stepper.absolute_sums(new)
        overflowing = moving & ~(size < stepper.largest_factor)
        # On a device the question would make the host wait.
        if stepper.xp is np and not overflowing.any():
            return moving
        self.stopped_at = where(overflowing, stepper.shared(now), self.stopped_at)
        # A step that is not a number, far from an overflow, is an error of a block.
        moderate = min(MODERATE_FACTOR, stepper.largest_factor**0.5)
        broken = stepper.xp.isnan(size) & (stepper.absolute_sums(self.state) < moderate)
        self.stopped_at = where(overflowing & broken, float("nan"), self.stopped_at)
        self.alive = self.alive & ~overflowing
        return moving & ~overflowing

    def _stop_outside(
        self,
        moving: Any,
        time: Array | float,
        lengths: Array | float = 0.0,
        point: int = 0,
    ) -> None:
        """Stop paths with |V| >= radius at this time, after a step of given lengths.

        By the clock the radius is lowered to correct for crossings between steps.
        """
        stepper, clock, radius = self.stepper, self.stepper.clock, self.spec.radius
        norms = stepper.norms(self, moving, NEAR * radius if clock else radius)
        barrier: Any = radius
        if clock:
            near = stepper.on_host(norms) > 0.0
            if near.any():
                spread = stepper.rate("spread", self, stepper.array(near), point)
                lowered = radius * np.exp(-SHIFT * np.sqrt(spread * lengths))
                barrier = stepper.array(np.where(near, lowered, radius))
        outside = moving & (norms >= barrier)
        self.stopped_at = stepper.xp.where(outside, stepper.shared(time), self.stopped_at)
        self.alive = self.alive & ~outside


def covariances(factors: Float[Array, "B g m c"]) -> Float[Array, "B m m"]:
    """Return V = (1/g) sum of F_g F_g^T, exactly symmetric."""
    # In one layout: otherwise NumPy before 2.4 sums in an order that depends on the chunk.
    groups = np.ascontiguousarray(factors.swapaxes(0, 1))
    v: Array = covariance(State(tuple(groups)))
    return 0.5 * (v + np.swapaxes(v, -1, -2))
