"""Code that moves paths: steps, counters of random numbers, stopping, overflow, and the clock.

The entries of a vector of paths are in a row of memory. All bookkeeping is arithmetic on vectors,
and only what is rare, such as a path that stops, is done lane by lane. `Mover` has the functions
that are called from Python; they release the interpreter lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.numerics.emission import OWN, TYPES, Emission, Parameters
from shaped_attention.numerics.fixed_steps import (
    APPLY,
    REPORT,
    STEP,
    write_apply,
    write_report,
    write_steps,
)
from shaped_attention.numerics.program import Layout, Program
from shaped_attention.numerics.scalars import Depths, value
from shaped_attention.numerics.step import emitted

Array = NDArray[Any]


def table_of(numbers: Sequence[Any], depths: Depths) -> NDArray[np.float64]:
    """Return scalars (steps, count), or (1, count) if they are those of all steps."""
    columns = [np.broadcast_to(value(x, depths), depths.shape) for x in numbers]
    table = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
    return np.ascontiguousarray(table[:1] if (table == table[0]).all() else table)


_known: dict[tuple[Any, ...], tuple[Callable[..., None], list[int]]] = {}
"""Code by what it depends on, which is shorter to write than its text."""


class Mover:
    """The code of the programs of a run: one for each layer of a pattern, or those of the clock.

    `key` is a function from an address to its key, and `depths` are the relative depths of the
    steps. Numbers have the type `dtype`; `factors` is the number of inputs F_g that make V = mean
    of F_g F_g^T.
    """

    def __init__(
        self, programs: Sequence[Program], key: Callable[[Any], NDArray[np.uint64]],
        depths: Depths, dtype: Any = np.float64, factors: int = 1,
    ) -> None:  # fmt: skip
        self.dtype, self._programs, self._factors = np.dtype(dtype), list(programs), factors
        self._real = "double" if self.dtype == np.float64 else "float"
        scalars = [x for program in programs for x in program.scalars]
        self.table = table_of(scalars, depths)
        keys = [key(address) for program in programs for address in program.addresses]
        self.keys = np.concatenate([np.zeros(0, np.uint64), *keys])
        self._functions: dict[tuple[Hashable, ...], Callable[..., None]] = {}
        self._lock = threading.Lock()
        self.lanes = self._emitter(rolled=True, limit=np.inf).lanes

    def _emitter(self, rolled: bool, limit: float) -> Emitter:
        return Emitter(self._real, rolled=rolled, limit=limit)

    @cached_property
    def rows(self) -> int:
        """Rows of the values of a step."""
        return max(Layout(program).rows for program in self._programs)

    # Functions for Python.

    def advance(
        self, state: Array, alive: Array, stopped: Array, radius: float, dt: float, first: int,
        begin: int, end: int, adding: bool,
    ) -> None:  # fmt: skip
        """Take the paths of all blocks through the steps begin, ..., end - 1, of length dt.

        States (blocks, size, lanes), `alive` and the stopping times (blocks, lanes) are changed in
        place; a time is NaN after a step that is not a number. The first path has the number
        `first`. Results are drift and noise if `adding`, and otherwise the new state.
        """
        self._function(write_steps, STEP, adding=adding)(
            state, alive, stopped, radius, dt, first, begin, end, len(state), self.stride
        )

    def report(
        self, state: Array, alive: Array, stopped: Array, radius: float, dt: float, first: int,
        point: int, reported: Array,
    ) -> None:  # fmt: skip
        """Write drift and noise of a step to `reported` (2, blocks, size, lanes), 0 if stopped.

        Paths that are outside or would overflow stop before.
        """
        self._function(write_report, REPORT)(
            state, alive, stopped, reported, radius, dt, first, point, len(state), self.stride
        )

    def apply(self, which: int, states: Array, first: int, step: int, results: Array) -> None:
        """Write the results of one of the programs in a step, for all blocks.

        `states` (blocks, entries of the inputs, lanes) and `results` (blocks, entries, lanes).
        """
        # The program decides whether its step is unrolled.
        run = self._function(write_apply, APPLY, self._programs[which], which=which)
        run(states, results, first, step, len(states), self.stride)

    def burst(
        self, active: Array, moving: Sequence[Array], first: int, radius: float, dt: float,
        shift: float, near: float, target: int, count: int, steps: int,
    ) -> None:  # fmt: skip
        """Take at most `steps` steps by the clock of the paths `active`, towards a grid point.

        The programs are the speed, a step, and the variance rate of log |V|. `moving` are state
        (count, size), time left to the next grid point, number of the last one, steps taken, alive,
        stopping time, largest speed (count,), slots of grid points, and the copies (slots, count,
        size) of the states there.
        """
        from shaped_attention.numerics.clock_bursts import BURST, write_burst  # few runs need it

        row = (target - 1) * self.stride
        self._function(write_burst, BURST)(
            active, *moving, radius, dt, shift, near, first, target, len(active), count, steps, row
        )

    def _emit(
        self,
        write: Callable[[Emission, Emitter], None],
        arguments: Parameters,
        program: Program | None,
    ) -> tuple[Callable[..., None], list[int]]:
        """Return the code, and where its memory begins, in bytes."""
        emission = Emission(self._programs, self.dtype, self._factors)
        largest = max(self._programs, key=lambda p: max(rows for rows, _ in p.input_shapes))
        e = emitted(program or largest, self._emitter, partial(write, emission))
        run = e.compiled().function("run", *(TYPES[kind] for kind, _ in (*OWN, *arguments)))
        # Values, work, counter words, times, radii, and one more vector.
        vector = 8 * e.lanes
        item = self.dtype.itemsize * e.lanes
        sizes = [emission.rows * item, e.most_work * item, *[vector] * 4]
        starts: list[int] = np.cumsum([0, *(-(-size // 64) * 64 for size in sizes)]).tolist()
        return run, starts

    @property
    def stride(self) -> int:
        """Entries of the table from one step to the next."""
        return self.table.shape[1] if len(self.table) > 1 else 0

    def _function(
        self, write: Callable[..., None], arguments: Parameters, program: Program | None = None,
        **how: Hashable,
    ) -> Callable[..., None]:  # fmt: skip
        """Return the function of arrays and numbers that `write(emission, emitter, **how)` emits.

        Besides the arguments it gets the table, the keys, and memory for the values of a step. The
        largest program, or the one that is given, decides whether steps are unrolled.
        """
        name = (write, *how.items())
        with self._lock:
            if name in self._functions:
                return self._functions[name]
            signatures = tuple(p.signature for p in self._programs)
            code = (*name, signatures, self._real, self._factors)
            if code not in _known:
                _known[code] = self._emit(partial(write, **how), arguments, program)
            run, starts = _known[code]

            def call(*values: Any) -> None:
                memory = np.empty(starts[-1] + 64, np.uint8)
                first = memory.ctypes.data + -memory.ctypes.data % 64
                places = [first + start for start in starts[:-1]]
                here = [x.ctypes.data if isinstance(x, np.ndarray) else x for x in values]
                run(self.table.ctypes.data, self.keys.ctypes.data, *places, *here)

            self._functions[name] = call
            return call
