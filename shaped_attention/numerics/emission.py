"""What all functions that move paths are emitted with: their steps, and where paths stop."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, dots
from shaped_attention.compiler.text import Int, Real
from shaped_attention.numerics.bookkeeping import load_mask, squares, stop
from shaped_attention.numerics.graph import Shape
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.step import StepEmission

LARGEST_FACTOR = 1e75
"""Sum of absolute entries up to which |F F^T|^2 cannot overflow."""

MODERATE_FACTOR = 1e30
"""Sum of absolute entries up to which a step that is not a number is an error of the block."""

_ROOM = 0.25
"""Power of the largest number up to which factors may grow in single precision."""

_OUTSIDE = ("alive", "stopped", "buf", "radii", "times")

Parameters: TypeAlias = Sequence[tuple[str, str]]
"""Types and names of the arguments of a function."""

TYPES = {"ptr": ctypes.c_void_p, "double": ctypes.c_double, "i64": ctypes.c_int64}


def typed(pointers: str, doubles: str, integers: str) -> list[tuple[str, str]]:
    """Return the types and names of arguments, in this order."""
    kinds = ("ptr", pointers), ("double", doubles), ("i64", integers)
    return [(kind, name) for kind, names in kinds for name in names.split()]


OWN = typed("table keys buf work paths times radii lane", "", "")
"""What every function that is called from outside has besides its own arguments."""


def largest_factor(dtype: Any) -> float:
    """Return the sum of absolute entries at which a path of the limit stops."""
    return float(min(LARGEST_FACTOR, float(np.finfo(dtype).max) ** _ROOM))


class Emission:
    """Programs of the layers of a pattern or of the clock, and the parts of their functions.

    The `rows` of the buffer are known once the steps are emitted.
    """

    def __init__(self, programs: Sequence[Program], real_dtype: Any, factors: int) -> None:
        self.programs, self.real_dtype = list(programs), real_dtype
        self._factors, self.rows = factors, 1

    def function(self, e: Emitter, arguments: Parameters, body: Callable[[], None]) -> None:
        """Emit the function that is called from outside."""
        with e.in_loops():
            e.function([*OWN, *arguments], body, name="run")

    def _places(self, k: int) -> tuple[int, int]:
        """Return where the scalars and the keys of a program begin."""
        before = self.programs[:k]
        return sum(len(p.scalars) for p in before), 2 * sum(len(p.addresses) for p in before)

    def call_step(self, e: Emitter, name: str, k: int, row: Int, *more: str) -> None:
        """Emit the call of the step of a program, whose scalars are in a row of the table."""
        numbers, keys = self._places(k)
        e.call(
            name, ("ptr", "%buf"), ("ptr", "%work"),
            ("ptr", e.at("%table", e.add(row, numbers), "double")),
            ("ptr", e.at("%keys", keys, "i64")), ("ptr", "%paths"), *(("ptr", x) for x in more),
        )  # fmt: skip

    def step(self, e: Emitter, k: int, finish: Callable[[list[View]], None], *more: str) -> str:
        """Return the function of a program, which `finish` ends with its results."""

        def body() -> None:
            step = StepEmission(e, self.programs[k])
            finish(step.results())
            self.rows = max(self.rows, step.layout.rows)

        names = ["buf", "work", "numbers", "keys", "paths", *more]
        return e.function([("ptr", x) for x in names], body)

    def of_block(self, e: Emitter, b: Int) -> tuple[str, str, str]:
        """Return where a vector of paths has its flags, stopping times and state."""
        lane = e.mul(b, e.lanes)
        state = e.at("%state", e.mul(b, self.size))
        return e.at("%alive", lane, "i8"), e.at("%stopped", lane, "double"), state

    @property
    def state_shapes(self) -> list[Shape]:
        """Shapes of the factors of V."""
        return self.programs[0].input_shapes[: self._factors]

    @property
    def size(self) -> int:
        """Entries of the state of a path."""
        return sum(r * c for r, c in self.state_shapes)

    def sum(
        self, e: Emitter, shape: tuple[int, int], flat: bool, value: Callable[[Int, Int], Real]
    ) -> Real:
        """Emit the sum of absolute values of entries."""
        rows, columns = (1, shape[0] * shape[1]) if flat and e.rolled else shape

        def row(i: Int, sums: Sequence[Real]) -> list[Real]:
            def entry(j: Int, sums: Sequence[Real]) -> list[Real]:
                return [e.fadd(e.absolute(value(i, j)), sums[0])]

            return e.loop(0, columns, 1, entry, sums)

        (total,) = e.loop(0, rows, 1, row, [0.0])
        return total

    def stop_overflowing(
        self, e: Emitter, total: Real, mask: str, alive: str, stopped: str, times: str
    ) -> str:
        """Emit stopping, before the step, of moving lanes whose next factor would overflow.

        The stopping time is NaN for a step that is not a number, from a factor far from an
        overflow. Returns the mask of those that still move.
        """
        most = largest_factor(self.real_dtype)
        fits = e.compare("olt", total, most)
        over = e.both(mask, e.no(fits))
        with e.when(e.some(over)), e.in_loops():
            now = self.sum(e, (1, self.size), True, lambda _, j: e.load_row("%buf", j))
            moderate = min(MODERATE_FACTOR, most**0.5)
            broken = e.both(e.compare("uno", total, total), e.compare("olt", now, moderate))
            with e.typed("double"):
                time = e.load_as("double", times)
                e.store_as("double", e.select(broken, float("nan"), time), times)
            stop(e, alive, stopped, times, over)
        return e.both(mask, fits)

    def outside(self, e: Emitter) -> str:
        """Return the function (alive, stopped, buf, radii, times): stop the moving lanes outside.

        V is the mean of F_g F_g^T. Since |V| <= tr V, the norm itself is computed only where the
        trace reaches the radius.
        """
        shapes = self.state_shapes
        weight = 1.0 / len(shapes)

        def body() -> None:
            mask, radius = load_mask(e, "%alive"), e.load_row("%radii", 0)
            trace = e.fmul(weight, squares(e, "%buf", self.size))
            near = e.both(mask, e.compare("oge", trace, radius))
            with e.when(e.some(near)):
                norm = e.fmul(weight, e.sqrt(self._norm_square(e, shapes)))
                outside = e.both(near, e.compare("oge", norm, radius))
                stop(e, "%alive", "%stopped", "%times", outside)

        with e.in_loops():
            return e.function([("ptr", x) for x in _OUTSIDE], body)

    def _norm_square(self, e: Emitter, shapes: Sequence[tuple[int, int]]) -> Real:
        offsets = np.cumsum([0, *(r * c for r, c in shapes)]).tolist()

        def row(i: Int, sums: Sequence[Real]) -> list[Real]:
            def entry(j: Int, sums: Sequence[Real]) -> list[Real]:
                x: Real = 0.0
                for offset, (_, columns) in zip(offsets, shapes, strict=False):
                    f = View("%buf", offset, columns)
                    (x,) = dots(e, f, f.mT, (i, j), (1, 1), (0, columns), [x])
                return [e.fma(x, x, sums[0])]

            return e.loop(0, shapes[0][0], 1, entry, sums)

        return e.loop(0, shapes[0][0], 1, row, [0.0])[0]
