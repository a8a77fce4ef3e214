"""Compiled code on the CPU moves a vector of paths at once, many steps in a call."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from shaped_attention.numerics.mover import Mover
from shaped_attention.samplers.steppers import (
    NEAR,
    SHIFT,
    Array,
    HostStepper,
    Mask,
    Numpy,
    SplitStepper,
)

if TYPE_CHECKING:
    from shaped_attention.samplers.paths import Paths

_BURST = 16
"""Steps by the clock after which the paths that still move are gathered again."""


class BlockStepper(HostStepper, SplitStepper[Numpy]):
    """The chain, and the limit with a fixed step; a state is (blocks, entries of a path, lanes)."""

    name: ClassVar[str] = "compiled code"

    @cached_property
    def _code(self) -> Mover:
        spec = self.spec
        return Mover(spec.programs, spec.keys.key, spec.depths, spec.precision, spec.groups)

    def rows(self, count: int) -> int:
        """Return the rows of whole blocks."""
        lanes = self._code.lanes
        return -(-count // lanes) * lanes

    def arranged(self, factors: Array) -> Array:
        """Return factors with the paths of a block next to each other."""
        by_block = factors.reshape(-1, self._code.lanes, factors[0].size)
        return np.array(by_block.swapaxes(1, 2), dtype=self.spec.precision, order="C")

    def factors(self, state: Numpy) -> Array:
        """Return the factors (rows, groups, m, c)."""
        shape = (-1, self.spec.groups, self.spec.tokens, self.spec.columns)
        return state.swapaxes(1, 2).reshape(shape)

    def workspace(self) -> dict[str, Array]:
        """Return a place for arrays: allocating them costs more than writing to them."""
        return {}

    def advance(self, paths: Paths, moves: Mask, end: int, budget: int) -> bool:
        """Take at most `budget` steps of the paths `moves`, which are at one grid point."""
        begin = int(paths.grid[moves][0])
        ends, spec = min(begin + budget, end), self.spec
        moving = paths.alive & moves
        alive = moving.copy()
        self._code.advance(
            paths.state, alive, paths.stopped_at, spec.radius, spec.dt, paths.first, begin, ends,
            spec.width is None,
        )  # fmt: skip
        paths.alive &= alive | ~moving
        paths.grid[moves] = paths.taken[moves] = ends
        return ends == begin + budget

    def drift_and_noise(self, paths: Paths, moving: Numpy, point: int) -> tuple[Array, Array]:
        """Stop paths that are outside or would overflow; return drift times step, and noise.

        Both are zero for paths that do not move, and valid until the next call.
        """
        work, spec = paths.work, self.spec
        if "reported" not in work:
            work["reported"] = np.empty((2, *paths.state.shape), spec.precision)
            work["drift"], work["noise"] = work["reported"]
        moving = paths.alive & moving
        alive, state = moving.copy(), np.ascontiguousarray(paths.state)
        self._code.report(
            state, alive, paths.stopped_at, spec.radius, spec.dt, paths.first, point,
            work["reported"],
        )  # fmt: skip
        paths.alive &= alive | ~moving
        return work["drift"], work["noise"]


class ClockStepper(HostStepper):
    """The limit by the clock; paths that still move are gathered into blocks again and again.

    So the few paths near an explosion, which take many steps, do not hold up the others.
    """

    name: ClassVar[str] = BlockStepper.name

    @cached_property
    def _code(self) -> Mover:
        from shaped_attention.samplers.clock_step import traced_clock

        spec = self.spec
        programs = traced_clock(spec.pattern, spec.tokens)
        # Near an explosion products of entries overflow in single precision.
        return Mover(programs, spec.keys.key, spec.depths)

    def advance(self, paths: Paths, moves: Mask, end: int, budget: int) -> bool:
        """Move paths to a grid point; the steps of blocks are counted against the budget."""
        spec, code, spent = self.spec, self._code, 0
        count = len(paths.state)
        stored = paths.stored.reshape(*paths.stored.shape[:2], -1)
        moving = (
            paths.state, paths.left, paths.grid, paths.taken, paths.alive, paths.stopped_at,
            paths.largest, paths.slots, stored,
        )  # fmt: skip
        while True:
            behind = paths.alive & (paths.grid < end)
            if not behind.any():
                return False
            if spent >= budget:
                return True
            target = end
            if spec.scheduled:
                # The parameters of a block are those of one grid point.
                target = min(end, int(paths.grid[behind].min()) + 1)
            active = np.flatnonzero(paths.alive & (paths.grid < target))
            code.burst(
                active, moving, paths.first, spec.radius, spec.dt, SHIFT, NEAR, target, count,
                _BURST,
            )  # fmt: skip
            spent += _BURST * -(-len(active) // code.lanes)
