"""Compiled code on the CPU moves a vector of paths at once, many steps in a call."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from shaped_attention.numerics.emission import largest_factor
from shaped_attention.numerics.mover import Mover
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    NEAR,
    SHIFT,
    Array,
    Batch,
    Brownian,
    CompiledStepper,
    HostStepper,
    Mask,
)
from shaped_attention.samplers.task import Task

_BURST = 16
"""Steps by the clock after which the paths that still move are gathered again."""


def stepper_of(spec: Specification, task: Task) -> CompiledStepper | None:
    """Return compiled code on the CPU, unless torch was requested."""
    if not spec.compiled_device:
        return None
    return ClockStepper(task) if task.method == "clock" else BlockStepper(task)


class BlockStepper(HostStepper, CompiledStepper, Brownian):
    """The chain, and the limit with a fixed step; a state is (blocks, entries of a path, lanes)."""

    name: ClassVar[str] = "compiled code"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.largest_factor = largest_factor(task.dtype)

    @property
    def _code(self) -> Mover:
        return self.task.compiled

    def rows(self, count: int) -> int:
        """Return the rows of whole blocks."""
        lanes = self._code.lanes
        return -(-count // lanes) * lanes

    def arranged(self, factors: Array) -> Array:
        """Return factors with the paths of a block next to each other."""
        by_block = factors.reshape(-1, self._code.lanes, factors[0].size)
        return np.array(by_block.swapaxes(1, 2), dtype=self.task.dtype, order="C")

    def factors(self, state: Array) -> Array:
        """Return the factors (rows, groups, m, c)."""
        shape = (-1, self.task.groups, self.task.tokens, self.task.columns)
        return state.swapaxes(1, 2).reshape(shape)

    def workspace(self) -> dict[str, Array]:
        """Return a place for arrays: allocating them costs more than writing to them."""
        return {}

    def advance(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        """Take at most `budget` steps of the paths `moves`, which are at one grid point."""
        begin = int(batch.grid[moves][0])
        ends, task = min(begin + budget, end), self.task
        moving = batch.alive & moves
        alive = moving.copy()
        self._code.advance(
            batch.state, alive, batch.stopped_at, task.radius, task.dt, batch.first, begin, ends,
            task.width is None,
        )  # fmt: skip
        batch.alive &= alive | ~moving
        batch.grid[moves] = batch.taken[moves] = ends
        return ends == begin + budget

    def brownian_shape(self, batch: Batch) -> tuple[int, int]:
        """Return the blocks and entries of the increments of a step."""
        return len(batch.state), self._code.normals * self._code.lanes

    def increments(self, batch: Batch, step: int) -> Array:
        """Return the Brownian increments of a step (blocks, entries, lanes)."""
        shape = (len(batch.state), self._code.normals, self._code.lanes)
        if "increments" not in batch.work:
            batch.work["increments"] = np.zeros(shape, self.task.dtype)
        increments: Array = batch.work["increments"]
        self._code.draw(batch.first, step, increments)
        return increments

    def drift_and_noise(
        self, batch: Batch, moving: Any, increments: Any, point: int
    ) -> tuple[Array, Array]:
        """Stop paths that are outside or would overflow; return drift times step, and noise.

        Both are zero for paths that do not move, and valid until the next call.
        """
        work, task = batch.work, self.task
        if "reported" not in work:
            work["reported"] = np.empty((2, *batch.state.shape), task.dtype)
            work["drift"], work["noise"] = work["reported"]
        moving = batch.alive & moving
        alive, state = moving.copy(), np.ascontiguousarray(batch.state)
        given = np.ascontiguousarray(increments).reshape(len(state), -1, self._code.lanes)
        self._code.report(
            state, alive, batch.stopped_at, task.radius, task.dt, point, given, work["reported"]
        )
        batch.alive &= alive | ~moving
        return work["drift"], work["noise"]

    def norms(self, batch: Batch, moving: Any, least: float) -> Array:
        """Return |V| (rows,)."""
        factors = self.factors(batch.state)
        norms: Array = np.linalg.norm((factors @ factors.mT).mean(axis=1), axis=(1, 2))
        return norms


class ClockStepper(HostStepper, CompiledStepper):
    """The limit by the clock; paths that still move are gathered into blocks again and again.

    So the few paths near an explosion, which take many steps, do not hold up the others.
    """

    name: ClassVar[str] = BlockStepper.name

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.largest_factor = largest_factor(task.dtype)

    def arranged(self, factors: Array) -> Array:
        """Return a copy."""
        return np.array(factors, dtype=self.task.dtype, order="C")

    def advance(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        """Move paths to a grid point; the steps of blocks are counted against the budget."""
        task, code, spent = self.task, self.task.compiled_clock, 0
        count = len(batch.state)
        stored = batch.stored.reshape(*batch.stored.shape[:2], -1)
        moving = (
            batch.state, batch.left, batch.grid, batch.taken, batch.alive, batch.stopped_at,
            batch.largest, batch.slots, stored,
        )  # fmt: skip
        while True:
            behind = batch.alive & (batch.grid < end)
            if not behind.any():
                return False
            if spent >= budget:
                return True
            target = end
            if task.scheduled:
                # The parameters of a block are those of one grid point.
                target = min(end, int(batch.grid[behind].min()) + 1)
            active = np.flatnonzero(batch.alive & (batch.grid < target))
            code.burst(
                active, moving, batch.first, task.radius, task.dt, SHIFT, NEAR, target, count,
                _BURST,
            )  # fmt: skip
            spent += _BURST * -(-len(active) // code.lanes)
