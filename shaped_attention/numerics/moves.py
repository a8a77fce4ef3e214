"""Code that moves paths: steps, counters of random numbers, stopping, overflow, and the clock.

The entries of a vector of paths are in a row of memory. All bookkeeping is arithmetic on vectors,
and only what is rare, such as a path that stops, is done lane by lane. `Mover` has the functions
that are called from Python; they release the interpreter lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.functions import exp
from shaped_attention.compiler.llvm import Code, compiled
from shaped_attention.compiler.matrices import View, entries
from shaped_attention.compiler.text import Emitter, Int, Real
from shaped_attention.numerics.program import Layout, Program
from shaped_attention.numerics.scalars import Depths, value
from shaped_attention.numerics.step import Numbers, StepEmission, emitted, normal_rows, normals_of

Array = NDArray[Any]

LARGEST_FACTOR = 1e75
"""Sum of absolute entries up to which |F F^T|^2 cannot overflow."""

MODERATE_FACTOR = 1e30
"""Sum of absolute entries up to which a step that is not a number is an error of the block."""

_ROOM = 0.25
"""Power of the largest number up to which factors may grow in single precision."""


def largest_factor(dtype: Any) -> float:
    """Return the sum of absolute entries at which a path of the limit stops."""
    return float(min(LARGEST_FACTOR, float(np.finfo(dtype).max) ** _ROOM))


def table_of(numbers: Sequence[Any], depths: Depths) -> NDArray[np.float64]:
    """Return scalars (steps, count), or (1, count) if they are those of all steps."""
    columns = [np.broadcast_to(value(x, depths), depths.shape) for x in numbers]
    table = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
    return np.ascontiguousarray(table[:1] if (table == table[0]).all() else table)


class Mover:
    """The code of the programs of a run.

    Parameters
    ----------
    programs
        One for each layer of a pattern, or those of the clock.
    key, depths
        Function from an address to its key, and relative depths of the steps.
    dtype
        Type of the numbers.
    factors
        Number of inputs F_g that make V = mean of F_g F_g^T.
    """

    def __init__(
        self, programs: Sequence[Program], key: Callable[[Any], NDArray[np.uint64]],
        depths: Depths, dtype: Any = np.float64, factors: int = 1, rounded: bool = False,
        target: Any = None,
    ) -> None:  # fmt: skip
        self.dtype, self._programs, self._factors = np.dtype(dtype), list(programs), factors
        self._real = "double" if self.dtype == np.float64 else "float"
        self._rounded, self._target = rounded, target
        scalars = [x for program in programs for x in program.scalars]
        self._table = table_of(scalars, depths)
        keys = [key(address) for program in programs for address in program.addresses]
        self._keys = np.concatenate([np.zeros(0, np.uint64), *keys])
        self.lanes = self._emitter(rolled=True, limit=np.inf).lanes

    def _emitter(self, rolled: bool, limit: float) -> Emitter:
        return Emitter(self._real, rolled=rolled, limit=limit, target=self._target)

    @property
    def size(self) -> int:
        """Entries of the state of a path."""
        return sum(r * c for r, c in self._programs[0].input_shapes[: self._factors])

    @cached_property
    def rows(self) -> int:
        """Rows of the values of a step."""
        return max(Layout(program).rows for program in self._programs)

    @property
    def normals(self) -> int:
        """Rows of the normals of a step."""
        return normals_of(self._programs[0])

    # Functions for Python.

    def advance(
        self, state: Array, alive: Array, stopped: Array, radius: float, dt: float, first: int,
        begin: int, end: int, adding: bool,
    ) -> None:  # fmt: skip
        """Take the paths of all blocks through the steps begin, ..., end - 1.

        Parameters
        ----------
        state
            States (blocks, size, lanes), changed in place, as are the next two.
        alive, stopped
            Whether a path moves, and stopping times (blocks, lanes): NaN after a step that is not a
            number.
        radius, dt, first
            Stopping radius, length of a step, and number of the first path.
        adding
            Whether results are drift and noise to add, or the new state.
        """
        run = self._steps_adding if adding else self._steps
        run(state, alive, stopped, radius, dt, first, begin, end, len(state), self._stride)

    def report(
        self, state: Array, alive: Array, stopped: Array, radius: float, dt: float, point: int,
        given: Array, reported: Array,
    ) -> None:  # fmt: skip
        """Write drift and noise of a step to `reported` (2, blocks, size, lanes), 0 if stopped.

        `given` (blocks, normals, lanes) are the normals. Paths that are outside or would overflow
        stop before.
        """
        self._report(
            state, alive, stopped, given, reported, radius, dt, point, len(state), self._stride
        )

    def draw(self, first: int, step: int, out: Array) -> None:
        """Write the normals of a step into `out` (blocks, normals, lanes)."""
        self._draw(out, first, step, len(out))

    def apply(self, which: int, states: Array, first: int, step: int, results: Array) -> None:
        """Write the results of one of the programs in a step, for all blocks.

        `states` (blocks, entries of the inputs, lanes) and `results` (blocks, entries, lanes).
        """
        self._apply[which](states, results, first, step, len(states), self._stride)

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
        row = (target - 1) * self._stride
        self._burst(
            active, *moving, radius, dt, shift, near, first, target, len(active), count, steps, row
        )

    @property
    def _stride(self) -> int:
        """Entries of the table from one step to the next."""
        return self._table.shape[1] if len(self._table) > 1 else 0

    # Compilation.

    @cached_property
    def _steps(self) -> Callable[..., None]:
        return self._compiled(self._write_steps, _STEP_ARGUMENTS)

    @cached_property
    def _steps_adding(self) -> Callable[..., None]:
        return self._compiled(lambda e: self._write_steps(e, True), _STEP_ARGUMENTS)

    @cached_property
    def _report(self) -> Callable[..., None]:
        return self._compiled(self._write_report, _REPORT_ARGUMENTS)

    @cached_property
    def _draw(self) -> Callable[..., None]:
        return self._compiled(self._write_draw, _DRAW_ARGUMENTS)

    @cached_property
    def _burst(self) -> Callable[..., None]:
        return self._compiled(self._write_burst, _BURST_ARGUMENTS)

    @cached_property
    def _apply(self) -> Any:
        mover = self

        class Each(dict[int, Callable[..., None]]):
            def __missing__(self, which: int) -> Callable[..., None]:
                self[which] = mover._compiled(
                    lambda e: mover._write_apply(e, which), _APPLY_ARGUMENTS, [which]
                )
                return self[which]

        return Each()

    def _compiled(
        self, write: Callable[[Emitter], None], arguments: str, which: Sequence[int] = ()
    ) -> Callable[..., None]:
        """Return a function of arrays and numbers, whose types are letters of `arguments`.

        It also gets the table, the keys, and memory for the values of a step.
        """
        self._rows = 1
        programs = [self._programs[k] for k in which] or self._programs
        e = _emitted(programs, self._emitter, write)
        code: Code = compiled(e.module(), e.target)
        types = {"p": ctypes.c_void_p, "d": ctypes.c_double, "i": ctypes.c_int64}
        run = code.function("run", *(types[x] for x in "pppppppp" + arguments))
        rows, work, lanes, item = self._rows, e.most_work, e.lanes, self.dtype.itemsize
        wide = 64 * -(-lanes * 8 // 64)
        sizes = [rows * lanes * item, work * lanes * item, wide, wide, wide, wide]

        def call(*values: Any) -> None:
            memory = np.empty(sum(sizes) + 64 * (len(sizes) + 1), np.uint8)
            start = memory.ctypes.data
            places = []
            for size in sizes:
                start += -start % 64
                places.append(start)
                start += size
            given = [x.ctypes.data if isinstance(x, np.ndarray) else x for x in values]
            run(self._table.ctypes.data, self._keys.ctypes.data, *places, *given)

        call.code = code  # type: ignore[attr-defined]
        return call

    def _function(self, e: Emitter, arguments: str, names: str, body: Callable[[], None]) -> None:
        """Emit the function that is called from outside."""
        kinds = {"p": "ptr", "d": "double", "i": "i64"}
        own = ["table", "keys", "buf", "work", "paths", "times", "radii", "lane"]
        parameters = [("ptr", x) for x in own]
        parameters += [(kinds[k], x) for k, x in zip(arguments, names.split(), strict=True)]
        with e.in_loops():
            e.function(parameters, body, name="run")

    def _places(self, k: int) -> tuple[int, int]:
        """Return where the scalars and the keys of a program begin."""
        before = self._programs[:k]
        return sum(len(p.scalars) for p in before), 2 * sum(len(p.addresses) for p in before)

    def _call_step(self, e: Emitter, name: str, k: int, row: Int, *more: str) -> None:
        numbers, keys = self._places(k)
        e.call(
            name, ("ptr", "%buf"), ("ptr", "%work"),
            ("ptr", e.at("%table", e.add(row, numbers), "double")),
            ("ptr", e.at("%keys", keys, "i64")), ("ptr", "%paths"), *(("ptr", x) for x in more),
        )  # fmt: skip

    def _step(
        self, e: Emitter, k: int, finish: Callable[[list[View]], None], *more: str,
        given: bool = False,
    ) -> str:  # fmt: skip
        """Return the function of a program, which `finish` ends with its results."""

        def body() -> None:
            numbers = Numbers(given, self._rounded)
            step = StepEmission(e, self._programs[k], numbers)
            finish(step.results())
            self._rows = max(self._rows, step.layout.rows)

        names = ["buf", "work", "numbers", "keys", "paths", *more]
        return e.function([("ptr", x) for x in names], body)

    # Steps of equal length.

    def _write_steps(self, e: Emitter, adding: bool = False) -> None:
        finish = self._add if adding else self._replace
        more = ("alive", "stopped", "times")
        steps = [
            self._step(e, k, lambda results: finish(e, results), *more)
            for k in range(len(self._programs))
        ]
        outside = self._outside(e)

        def block(b: Int, _: object) -> None:
            alive, stopped, state = self._of_block(e, b)

            def step(number: Int, _: object) -> None:
                with e.when(e.some(_load_mask(e, alive))):
                    _count_paths(e, e.add("%first", e.mul(b, e.lanes)), number)
                    _store_time(e, number)
                    row = e.mul(number, "%stride")
                    which = [lambda k=k: self._call_step(e, steps[k], k, row, alive, stopped,
                                                         "%times") for k in range(len(steps))]  # fmt: skip
                    _one_of(e, number, which)
                    _store_time(e, e.add(number, 1))
                    _stop_outside(e, outside, alive, stopped)

            with e.when(e.some(_load_mask(e, alive))):
                _copy_rows(e, state, "%buf", self.size)
                e.loop("%begin", "%end", 1, step, may_be_empty=True)
                _copy_rows(e, "%buf", state, self.size)

        def body() -> None:
            _store_radius(e)
            e.loop(0, "%blocks", 1, block)

        names = "state alive stopped radius dt first begin end blocks stride"
        self._function(e, _STEP_ARGUMENTS, names, body)

    def _of_block(self, e: Emitter, b: Int) -> tuple[str, str, str]:
        lane = e.mul(b, e.lanes)
        state = e.at("%state", e.mul(b, self.size))
        return e.at("%alive", lane, "i8"), e.at("%stopped", lane, "double"), state

    def _replace(self, e: Emitter, results: list[View]) -> None:
        """Emit the new state of the paths that move."""
        mask, target = _load_mask(e, "%alive"), 0
        for view, (rows, columns) in zip(results, self._state_shapes(), strict=False):
            old = View("%buf", target, columns)
            target += rows * columns

            def put(i: Int, j: Int, view: View = view, old: View = old) -> None:
                new, before = view.load(e, i, j), old.load(e, i, j)
                if isinstance(new, str) or new != before:
                    e.write_row(e.select(mask, new, before), "%buf", old.row(e, i, j))

            entries(e, (rows, columns), put, view.contiguous(columns))

    def _state_shapes(self) -> list[tuple[int, int]]:
        return self._programs[0].input_shapes[: self._factors]

    def _add(self, e: Emitter, results: list[View]) -> None:
        """Emit adding drift and noise, unless that overflows."""
        drift, noise = results
        ((rows, columns),) = self._state_shapes()
        old, new = View("%buf", 0, columns), View("%work", e.take(rows * columns), columns)
        flat = all(x.contiguous(columns) for x in results)
        total = self._sum(e, (rows, columns), flat, lambda i, j: _kept(
            e, new, e.fadd(e.fadd(old.load(e, i, j), drift.load(e, i, j)), noise.load(e, i, j)),
            i, j,
        ))  # fmt: skip
        mask = _load_mask(e, "%alive")
        mask = self._stop_overflowing(e, total, mask, "%alive", "%stopped", "%times")

        def put(i: Int, j: Int) -> None:
            x = e.select(mask, new.load(e, i, j), old.load(e, i, j))
            e.write_row(x, "%buf", old.row(e, i, j))

        entries(e, (rows, columns), put, flat)

    def _sum(
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

    def _stop_overflowing(
        self, e: Emitter, total: Real, mask: str, alive: str, stopped: str, times: str
    ) -> str:
        """Emit stopping, before the step, of moving lanes whose next factor would overflow.

        The stopping time is NaN for a step that is not a number, from a factor far from an
        overflow. Returns the mask of those that still move.
        """
        most = largest_factor(self.dtype)
        fits = e.compare("olt", total, most)
        over = e.both(mask, e.no(fits))
        with e.when(e.some(over)), e.in_loops():
            now = self._sum(e, (1, self.size), True, lambda _, j: e.load_row("%buf", j))
            moderate = min(MODERATE_FACTOR, most**0.5)
            broken = e.both(e.compare("uno", total, total), e.compare("olt", now, moderate))
            with e.typed("double"):
                time = e.load_as("double", times)
                e.store_as("double", e.select(broken, float("nan"), time), times)
            e.call(_stop_function(e), ("ptr", alive), ("ptr", stopped), ("ptr", times),
                   (f"i{e.lanes}", _bits(e, over)))  # fmt: skip
        return e.both(mask, fits)

    def _outside(self, e: Emitter) -> str:
        """Return the function (alive, stopped, buf, radii, times): stop the moving lanes outside.

        V is the mean of F_g F_g^T. Since |V| <= tr V, the norm itself is computed only where the
        trace reaches the radius.
        """
        shapes = self._state_shapes()
        weight = 1.0 / len(shapes)

        def body() -> None:
            mask, radius = _load_mask(e, "%alive"), e.load_row("%radii", 0)
            trace = e.fmul(weight, _squares(e, "%buf", self.size))
            near = e.both(mask, e.compare("oge", trace, radius))
            with e.when(e.some(near)):
                norm = e.fmul(weight, e.sqrt(self._norm_square(e, shapes)))
                outside = e.both(near, e.compare("oge", norm, radius))
                e.call(_stop_function(e), ("ptr", "%alive"), ("ptr", "%stopped"),
                       ("ptr", "%times"), (f"i{e.lanes}", _bits(e, outside)))  # fmt: skip

        with e.in_loops():
            return e.function([("ptr", x) for x in _OUTSIDE], body)

    def _norm_square(self, e: Emitter, shapes: Sequence[tuple[int, int]]) -> Real:
        offsets = np.cumsum([0, *(r * c for r, c in shapes)]).tolist()

        def row(i: Int, sums: Sequence[Real]) -> list[Real]:
            def entry(j: Int, sums: Sequence[Real]) -> list[Real]:
                x: Real = 0.0
                for offset, (_, columns) in zip(offsets, shapes, strict=False):
                    f = View("%buf", offset, columns)
                    (x,) = e.loop(0, columns, 1, lambda k, s, f=f: [
                        e.fma(f.load(e, i, k), f.load(e, j, k), s[0])
                    ], [x])  # fmt: skip
                return [e.fma(x, x, sums[0])]

            return e.loop(0, shapes[0][0], 1, entry, sums)

        return e.loop(0, shapes[0][0], 1, row, [0.0])[0]

    # Steps apart.

    def _write_report(self, e: Emitter) -> None:
        shape = self._state_shapes()[0]

        def finish(results: list[View]) -> None:
            drift, noise = results
            old = View("%buf", 0, shape[1])
            total = self._sum(e, shape, False, lambda i, j: e.fadd(
                e.fadd(old.load(e, i, j), drift.load(e, i, j)), noise.load(e, i, j)
            ))  # fmt: skip
            mask = self._stop_overflowing(
                e, total, _load_mask(e, "%alive"), "%alive", "%stopped", "%times"
            )
            for view, base in ((drift, "%drift"), (noise, "%noise")):
                out = View(base, 0, shape[1])
                entries(e, shape, lambda i, j, view=view, out=out, base=base: e.write_row(
                    e.select(mask, view.load(e, i, j), 0.0), base, out.row(e, i, j)
                ))  # fmt: skip

        more = ("alive", "stopped", "times", "given", "drift", "noise")
        step = self._step(e, 0, finish, *more, given=True)
        outside = self._outside(e)

        def block(b: Int, _: object) -> None:
            alive, stopped, state = self._of_block(e, b)
            _copy_rows(e, state, "%buf", self.size)
            _store_time(e, "%point")
            _stop_outside(e, outside, alive, stopped)
            given = e.at("%given", e.mul(b, self.normals))
            drift = e.at("%reported", e.mul(b, self.size))
            noise = e.at("%reported", e.mul(e.add(b, "%blocks"), self.size))
            row = e.mul("%point", "%stride")
            self._call_step(e, step, 0, row, alive, stopped, "%times", given, drift, noise)

        def body() -> None:
            _store_radius(e)
            e.loop(0, "%blocks", 1, block)

        names = "state alive stopped given reported radius dt point blocks stride"
        self._function(e, _REPORT_ARGUMENTS, names, body)

    def _write_draw(self, e: Emitter) -> None:
        from shaped_attention.numerics.operations.random import emit_normals
        from shaped_attention.numerics.operations.registry import Here

        program = self._programs[0]
        rows = normal_rows(program)

        def block(b: Int, _: object) -> None:
            _count_paths(e, e.add("%first", e.mul(b, e.lanes)), "%step")
            out = e.at("%out", e.mul(b, self.normals))
            for node in program.nodes:
                if node.kind != "normal":
                    continue
                place = 2 * program.addresses.index(node.address)
                key = [e.new(f"load i64, ptr {e.at('%keys', place + k, 'i64')}, align 8")
                       for k in range(2)]  # fmt: skip
                view = View(out, rows[id(node)], node.shape[1])
                here = Here(node, view, (), (), (key[0], key[1]), self._rounded)
                count, scale = node.shape[0] * node.shape[1], float(node.scalars[0])  # type: ignore[arg-type]
                emit_normals(e, here, view, count, node.integers[0], scale)

        def body() -> None:
            e.loop(0, "%blocks", 1, block)

        self._function(e, _DRAW_ARGUMENTS, "out first step blocks", body)

    def _write_apply(self, e: Emitter, which: int) -> None:
        program = self._programs[which]
        inputs = sum(r * c for r, c in program.input_shapes)
        outputs = sum(r * c for r, c in program.result_shapes)

        def finish(results: list[View]) -> None:
            place = 0
            for view, (rows, columns) in zip(results, program.result_shapes, strict=True):
                out = View("%out", place, columns)
                place += rows * columns
                entries(e, (rows, columns), lambda i, j, view=view, out=out: e.write_row(
                    view.load(e, i, j), "%out", out.row(e, i, j)
                ))  # fmt: skip

        step = self._step(e, which, finish, "out")

        def block(b: Int, _: object) -> None:
            _copy_rows(e, e.at("%states", e.mul(b, inputs)), "%buf", inputs)
            _count_paths(e, e.add("%first", e.mul(b, e.lanes)), "%step")
            out = e.at("%results", e.mul(b, outputs))
            self._call_step(e, step, which, e.mul("%step", "%stride"), out)

        def body() -> None:
            e.loop(0, "%blocks", 1, block)

        self._function(e, _APPLY_ARGUMENTS, "states results first step blocks stride", body)

    # Steps by the clock.

    def _write_burst(self, e: Emitter) -> None:
        size, lanes = self.size, e.lanes

        def keep(results: list[View]) -> None:
            """Leave one number in %lane."""
            e.write_row(results[0].load(e, 0, 0), "%lane", 0)

        def replace(results: list[View]) -> None:
            """Take the step, unless it overflows; %lane has the mask of those that move."""
            shape = self._state_shapes()[0]
            old = View("%buf", 0, shape[1])
            total = self._sum(e, shape, False, lambda i, j: results[0].load(e, i, j))
            mask = self._stop_overflowing(
                e, total, _load_mask(e, "%moving"), "%moving", "%stops", "%times"
            )
            entries(e, shape, lambda i, j: e.write_row(
                e.select(mask, results[0].load(e, i, j), old.load(e, i, j)), "%buf",
                old.row(e, i, j),
            ))  # fmt: skip

        speed = self._step(e, 0, keep, "lane")
        step = self._step(e, 1, replace, "moving", "stops", "times")
        spread = self._step(e, 2, keep, "lane")
        outside = self._outside(e)

        def body() -> None:
            fields = {name: e.new(f"alloca [{lanes} x i64], align 64") for name in (
                "left", "grid", "taken", "largest", "stops", "numbers",
            )}  # fmt: skip
            moving = e.new(f"alloca [{lanes} x i8], align 64")
            arrived_at = e.new(f"alloca [{lanes} x i8], align 64")
            e.loop(0, "%found", lanes, lambda start, _: block(start, fields, moving, arrived_at))

        def each_lane(body_: Callable[[Int], None]) -> None:
            e.loop(0, lanes, 1, lambda p, _: body_(p))

        def load(kind: str, base: str, i: Int) -> str:
            size = 1 if kind == "i8" else 4 if kind == "float" else 8
            return e.new(f"load {kind}, ptr {e.at(base, i, kind)}, align {size}")

        def store(kind: str, x: str, base: str, i: Int) -> None:
            size = 1 if kind == "i8" else 4 if kind == "float" else 8
            e.put(f"store {kind} {x}, ptr {e.at(base, i, kind)}, align {size}")

        arrays = (("left", "double"), ("grid", "i64"), ("taken", "i64"), ("largest", "double"))

        def block(start: Int, lane: dict[str, str], moving: str, arrived_at: str) -> None:
            here = e.least(e.new(f"sub i64 %found, {start}"), lanes)

            def gather(p: Int) -> None:
                last = e.least(p, e.new(f"sub i64 {here}, 1"))
                i = load("i64", "%active", e.add(start, last))
                store("i64", i, lane["numbers"], p)
                inside = e.new(f"icmp ult i64 {p}, {here}")
                store("i8", e.new(f"zext i1 {inside} to i8"), moving, p)
                store("double", "0x7FF0000000000000", lane["stops"], p)
                for name, kind in arrays:
                    store(kind, load(kind, f"%{name}", i), lane[name], p)

                def entry(j: Int, _: object) -> None:
                    x = load(e.real, "%state", e.add(e.mul(i, size), j))
                    store(e.real, x, "%buf", e.add(e.mul(j, lanes), p))

                e.loop(0, size, 1, entry)

            def scatter(p: Int) -> None:
                with e.when(e.new(f"icmp ult i64 {p}, {here}")):
                    i = load("i64", lane["numbers"], p)
                    for name, kind in arrays:
                        store(kind, load(kind, lane[name], p), f"%{name}", i)

                    def entry(j: Int, _: object) -> None:
                        x = load(e.real, "%buf", e.add(e.mul(j, lanes), p))
                        store(e.real, x, "%state", e.add(e.mul(i, size), j))

                    e.loop(0, size, 1, entry)
                    stop = load("double", lane["stops"], p)
                    with e.when(e.new(f"fcmp une double {stop}, 0x7FF0000000000000")):
                        store("i8", "0", "%alive", i)
                        store("double", stop, "%stopped", i)

            each_lane(gather)
            e.loop(0, "%steps", 1, lambda _, __: one_step(lane, moving, arrived_at))
            each_lane(scatter)

        def one_step(lane: dict[str, str], moving: str, arrived_at: str) -> None:
            with e.when(e.some(_load_mask(e, moving))):
                take_step(lane, moving, arrived_at)

        def take_step(lane: dict[str, str], moving: str, arrived_at: str) -> None:
            self._call_step(e, speed, 0, "%row", "%lane")
            found = self._as_double(e, e.load_row("%lane", 0))
            mask = _load_mask(e, moving)
            with e.typed("double"):
                dt = e.splat("%dt")
                left, most = (e.load_as("double", lane[x]) for x in ("left", "largest"))
                most = e.select(e.both(mask, e.compare("ogt", found, most)), found, most)
                e.store_as("double", str(most), lane["largest"])
                pieces = e.floor(e.fadd(e.fdiv(e.fmul(left, e.fadd(1.0, found)), dt), 0.5))
                pieces = e.select(e.compare("ogt", pieces, 1.0), pieces, 1.0)
                length = e.fdiv(left, pieces)
                used = e.select(mask, length, 0.0)
                grid = e.load_as("i64", lane["grid"])
                at_grid = e.fmul(e.cast("sitofp", grid, "i64", "double"), dt)
                now = e.fadd(at_grid, e.fsub(dt, left))
                e.store_as("double", str(now), "%times")
            e.write_row(self._from_double(e, used), "%buf", size)
            taken = e.load_as("i64", lane["taken"])
            numbers = e.load_as("i64", lane["numbers"])
            _store_words(
                e, e.new(f"add {e.of('i64')} {numbers}, {e.splat('%first', 'i64')}"), taken
            )
            self._call_step(e, step, 1, "%row", moving, lane["stops"], "%times")
            mask = _load_mask(e, moving)
            one = e.new(f"zext {e.of('i1')} {mask} to {e.of('i64')}")
            e.store_as("i64", e.new(f"add {e.of('i64')} {taken}, {one}"), lane["taken"])
            with e.typed("double"):
                arrived = e.both(mask, e.compare("oeq", pieces, 1.0))
                step_of_grid = e.new(f"zext {e.of('i1')} {arrived} to {e.of('i64')}")
                grid = e.new(f"add {e.of('i64')} {grid}, {step_of_grid}")
                e.store_as("i64", grid, lane["grid"])
                rest = e.select(mask, e.fsub(left, length), left)
                e.store_as("double", str(e.select(arrived, dt, rest)), lane["left"])
                there = e.fmul(e.cast("sitofp", grid, "i64", "double"), dt)
                later = e.select(arrived, there, e.fadd(now, length))
                e.store_as("double", str(e.select(mask, later, now)), "%times")
            trace = _squares(e, "%buf", size)
            radius = e.splat(self._from_double_scalar(e, "%radius"))
            close_to = e.fmul(self._from_double_splat(e, "%near"), radius)
            close = e.both(mask, e.compare("oge", trace, close_to))
            with e.when(e.some(close)):
                self._call_step(e, spread, 2, "%row", "%lane")
                rate = self._as_double(e, e.load_row("%lane", 0))
                with e.typed("double"):
                    deviation = e.sqrt(e.fmul(rate, length))
                    power = exp(e, e.neg(e.fmul(e.splat("%shift"), deviation)))
                    lowered = e.fmul(e.splat("%radius"), power)
                lowered = self._from_double(e, lowered)
                # A path must not depend on those that share its vector.
                near = e.compare("oge", trace, close_to)
                e.write_row(e.select(near, lowered, radius), "%radii", 0)
                _stop_outside(e, outside, moving, lane["stops"])
            mask = _load_mask(e, moving)
            stored = e.both(mask, arrived)
            with e.when(e.some(stored)):
                e.store_as("i8", e.new(f"zext {e.of('i1')} {stored} to {e.of('i8')}"), arrived_at)

                def keep_state(p: Int) -> None:
                    with e.when(e.new(f"icmp ne i8 {load('i8', arrived_at, p)}, 0")):
                        slot = load("i64", "%slots", load("i64", lane["grid"], p))
                        with e.when(e.new(f"icmp sge i64 {slot}, 0")):
                            i = load("i64", lane["numbers"], p)
                            to = e.mul(e.add(e.mul(slot, "%count"), i), size)

                            def entry(j: Int, _: object) -> None:
                                x = load(e.real, "%buf", e.add(e.mul(j, lanes), p))
                                x = x if e.real == "double" else e.new(f"fpext float {x} to double")
                                store("double", x, "%stored", e.add(to, j))

                            e.loop(0, size, 1, entry)

                each_lane(keep_state)
            behind = e.new(f"icmp slt {e.of('i64')} {grid}, {e.splat('%target', 'i64')}")
            left_over = e.both(mask, behind)
            e.store_as("i8", e.new(f"zext {e.of('i1')} {left_over} to {e.of('i8')}"), moving)

        names = ("active state left grid taken alive stopped largest slots stored radius dt shift "
                 "near first target found count steps row")  # fmt: skip
        self._function(e, _BURST_ARGUMENTS, names, body)

    @staticmethod
    def _as_double(e: Emitter, x: Real) -> Real:
        return x if e.real == "double" else e.cast("fpext", str(x), "float", "double")

    @staticmethod
    def _from_double(e: Emitter, x: Real) -> Real:
        return x if e.real == "double" else e.cast("fptrunc", str(x), "double", "float")

    @staticmethod
    def _from_double_scalar(e: Emitter, x: str) -> str:
        return x if e.real == "double" else e.new(f"fptrunc double {x} to float")

    def _from_double_splat(self, e: Emitter, x: str) -> str:
        return e.splat(self._from_double_scalar(e, x))


_STEP_ARGUMENTS = "pppddiiiii"
_REPORT_ARGUMENTS = "pppppddiii"
_DRAW_ARGUMENTS = "piii"
_APPLY_ARGUMENTS = "ppiiii"
_BURST_ARGUMENTS = "pppppppp" + "pp" + "dddd" + "iiiiii"
_OUTSIDE = ("alive", "stopped", "buf", "radii", "times")


def _emitted(
    programs: Sequence[Program], emitter: Callable[..., Emitter], write: Callable[[Emitter], None]
) -> Emitter:
    largest = max(programs, key=lambda p: max(rows for rows, _ in p.input_shapes))
    return emitted(largest, emitter, write)


def _load_mask(e: Emitter, address: str) -> str:
    x = e.load_as("i8", address)
    return e.new(f"icmp ne {e.of('i8')} {x}, {e.word(0, 8)}")


def _bits(e: Emitter, mask: str) -> str:
    if e.lanes == 1:
        return mask
    return e.new(f"bitcast {e.of('i1')} {mask} to i{e.lanes}")


def _store_words(e: Emitter, samples: str, steps: str) -> None:
    """Store the second counter words of the paths: sample and step."""
    high = e.new(f"shl {e.of('i64')} {samples}, {e.word(32, 64)}")
    e.store_as("i64", e.new(f"or {e.of('i64')} {high}, {steps}"), "%paths")


def _count_paths(e: Emitter, first: Int, step: Int) -> None:
    samples = e.new(f"add {e.of('i64')} {e.splat(str(first), 'i64')}, {e.lane_numbers()}")
    _store_words(e, samples, e.splat(str(step), "i64"))


def _store_time(e: Emitter, step: Int) -> None:
    number = e.new(f"sitofp i64 {step} to double")
    time = e.splat(e.new(f"fmul double {number}, %dt"), "double")
    e.store_as("double", time, "%times")


def _store_radius(e: Emitter) -> None:
    x = "%radius" if e.real == "double" else e.new("fptrunc double %radius to float")
    e.write_row(e.splat(x), "%radii", 0)


def _stop_outside(e: Emitter, outside: str, alive: str, stopped: str) -> None:
    places = (alive, stopped, "%buf", "%radii", "%times")
    e.call(outside, *(("ptr", x) for x in places))


def _copy_rows(e: Emitter, a: str, b: str, rows: int) -> None:
    e.loop(0, rows, 1, lambda i, _: e.write_row(e.load_row(a, i), b, i))


def _squares(e: Emitter, base: str, rows: int) -> Real:
    """Emit the sum of squares of rows, as four sums."""
    most = rows - rows % 4

    def four(i: Int, sums: Sequence[Real]) -> list[Real]:
        values = [e.load_row(base, e.add(i, k)) for k in range(4)]
        return [e.fma(x, x, total) for x, total in zip(values, sums, strict=True)]

    a, b, c, d = e.loop(0, most, 4, four, [0.0] * 4)
    for i in range(most, rows):
        x = e.load_row(base, i)
        a = e.fma(x, x, a)
    return e.fadd(e.fadd(a, b), e.fadd(c, d))


def _kept(e: Emitter, out: View, x: Real, i: Int, j: Int) -> Real:
    out.store(e, x, i, j)
    return x


def _one_of(e: Emitter, number: Int, calls: Sequence[Callable[[], None]]) -> None:
    """Emit the call whose place is `number` modulo their count."""
    if len(calls) == 1:
        calls[0]()
        return
    which = e.new(f"urem i64 {number}, {len(calls)}")
    labels, after = [e.label() for _ in calls], e.label()
    cases = " ".join(f"i64 {k}, label %{label}" for k, label in enumerate(labels))
    e.put(f"switch i64 {which}, label %{after} [ {cases} ]")
    for label, call in zip(labels, calls, strict=True):
        e.start(label)
        call()
        e.put(f"br label %{after}")
    e.start(after)


def _stop_function(e: Emitter) -> str:
    """Return the function (alive, stopped, times, mask): lanes of the mask stop at their times."""

    def body() -> None:
        def lane(p: Int) -> None:
            bit = "%mask"
            if e.lanes > 1:
                place = e.new(f"trunc i64 {p} to i{e.lanes}")
                bit = e.new(f"lshr i{e.lanes} %mask, {place}")
                bit = e.new(f"trunc i{e.lanes} {bit} to i1")
            with e.when(bit):
                e.put(f"store i8 0, ptr {e.at('%alive', p, 'i8')}, align 1")
                time = e.new(f"load double, ptr {e.at('%times', p, 'double')}, align 8")
                e.put(f"store double {time}, ptr {e.at('%stopped', p, 'double')}, align 8")

        e.lanes_loop(lane)

    parameters = [("ptr", "alive"), ("ptr", "stopped"), ("ptr", "times"), (f"i{e.lanes}", "mask")]
    with e.in_loops():
        return e.function(parameters, body, ("stop", e.lanes))
