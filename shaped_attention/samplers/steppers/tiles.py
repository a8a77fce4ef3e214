"""Small matrices on the CPU: compiled code moves 64 paths at once, many steps in a call."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from shaped_attention.numerics import tile_interpreter, tiles
from shaped_attention.numerics.jit import LANES
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
"""Steps of a tile by the clock before paths that still move are gathered anew."""


def stepper_of(spec: Specification, task: Task) -> CompiledStepper | None:
    """Return compiled code on the CPU in double precision, unless torch was requested."""
    if not spec.compiled_device:
        return None
    return TileClock(task) if task.method == "clock" else TileStepper(task)


class TileStepper(HostStepper, CompiledStepper, Brownian):
    """The chain, and the limit with a fixed step; a state is (tiles, entries of a path, LANES)."""

    name: ClassVar[str] = "compiled code on tiles"

    def rows(self, count: int) -> int:
        """Return the rows of whole tiles."""
        return -(-count // LANES) * LANES

    def arranged(self, factors: Array) -> Array:
        """Return factors with the paths of a tile next to each other."""
        by_tile = factors.reshape(-1, LANES, factors[0].size)
        return np.array(by_tile.swapaxes(1, 2), dtype=np.float64, order="C")

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
        ends = min(begin + budget, end)
        mode = tiles.ADD if self.task.width is None else tiles.REPLACE
        nothing = np.zeros((len(batch.state), 1, LANES)), np.zeros((2, 1, 1, LANES))
        self._run(batch, moves, begin, ends, mode, *nothing)
        batch.grid[moves] = batch.taken[moves] = ends
        return ends == begin + budget

    def _run(
        self, batch: Batch, moves: Mask, begin: int, end: int, mode: int, given: Array,
        reported: Array,
    ) -> None:  # fmt: skip
        task = self.task
        moving = batch.alive & moves
        alive = moving.astype(np.float64).reshape(-1, LANES)
        tiles.advance(
            task.compiled, batch.state, alive, batch.stopped_at.reshape(-1, LANES), task.radius,
            task.dt, batch.first, begin, end, mode, given, reported,
        )  # fmt: skip
        batch.alive &= (alive.reshape(-1) > 0.5) | ~moving

    def brownian_shape(self, batch: Batch) -> tuple[int, int]:
        """Return the tiles and entries of the increments of a step."""
        return len(batch.state), (self.task.compiled.normals + 1) * LANES

    def increments(self, batch: Batch, step: int) -> Array:
        """Return the Brownian increments of a step (tiles, entries, LANES)."""
        x = self.task.compiled
        if "increments" not in batch.work:
            # The last row is never drawn where the number is even, but may be added to another.
            batch.work["increments"] = np.zeros((len(batch.state), x.normals + 1, LANES))
        increments: Array = batch.work["increments"]
        tile_interpreter.draw(x, batch.first, step, increments)
        return increments

    def drift_and_noise(
        self, batch: Batch, moving: Any, increments: Any, point: int
    ) -> tuple[Array, Array]:
        """Stop paths that are outside or would overflow; return drift times step, and noise.

        Both are zero for paths that do not move, and valid until the next call.
        """
        work = batch.work
        if "reported" not in work:
            work["reported"] = np.empty((2, *batch.state.shape))
            work["drift"], work["noise"] = work["reported"]
        given = increments.reshape(len(batch.state), -1, LANES)
        self._run(batch, moving, point, point + 1, tiles.REPORT, given, work["reported"])
        return work["drift"], work["noise"]

    def norms(self, batch: Batch, moving: Any, least: float) -> Array:
        """Return |V| (rows,)."""
        factors = self.factors(batch.state)
        norms: Array = np.linalg.norm((factors @ factors.mT).mean(axis=1), axis=(1, 2))
        return norms


class TileClock(HostStepper, CompiledStepper):
    """The limit by the clock; paths that still move are gathered into tiles again and again."""

    name: ClassVar[str] = TileStepper.name

    def advance(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        """Move paths to a grid point, in tiles whose steps are counted against the budget."""
        from shaped_attention.numerics.clock_tiles import advance_clock

        task = self.task
        alive, flat = batch.alive.astype(np.float64), batch.state.reshape(len(batch.state), -1)
        samples = np.arange(batch.first, batch.first + batch.count)
        more: bool = advance_clock(
            task.compiled_clock, flat, batch.left, batch.grid, batch.taken, alive,
            batch.stopped_at, batch.largest, samples, task.radius, task.dt, SHIFT, NEAR,
            end, batch.slots, batch.stored.reshape(*batch.stored.shape[:2], -1), _BURST, budget,
        )  # fmt: skip
        batch.alive[:] = alive > 0.5
        return more
