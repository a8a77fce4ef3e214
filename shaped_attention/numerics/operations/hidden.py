"""Gram matrices of activated hidden units, made a few units at a time.

With many samples, a path is in each lane. With few, a unit is: its normals, its products with the
factor, the values of the activation and the sums stay in registers and the first cache, which
separate passes by library routines would leave. For many tokens these are faster.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, Zeros, copy, entries, multiply
from shaped_attention.compiler.random import SLOT_SHIFT, keys, normal_pair, threefry
from shaped_attention.compiler.text import Int, Real
from shaped_attention.numerics.array_code import on_entries
from shaped_attention.numerics.fills import Array, fill_normals
from shaped_attention.numerics.graph import Graph, Node, needed
from shaped_attention.numerics.operations.random import emit_normals
from shaped_attention.numerics.operations.registry import OPERATIONS, Alone, Call, Here, operation
from shaped_attention.numerics.routines import add_cogram, multiply_triangular
from shaped_attention.numerics.scalars import Number

_UNITS = 8
"""Hidden units of a path that are drawn at once; a multiple of 4, to keep blocks together."""

_CARRIED = 6
"""Most tokens for which the sums stay in registers while units come and go."""

_VECTORS = 8
"""Vectors of units at once, where a unit is in each lane."""

COLUMNS = 256
"""Hidden units at once by library routines; fixed, since it determines the order of a sum."""

FEWEST_LARGE_TOKENS = 96
"""Least tokens at which library routines are faster than emitted code, for one path (measured)."""

_LARGEST_PARTS = 16
_FEWEST_NUMBERS = 2**15
"""Random numbers of a part for few tokens, which take ten times as long as a call."""
_PART_UNITS = 64
"""Hidden units of a part are a multiple of this number."""
_PART_ENTRIES = 2**24
"""Entries of all partial sums together."""

Units: TypeAlias = tuple[int, int, int]
"""Slot, first unit, and the one after the last."""

Activation = Callable[[Sequence[Real]], Real]


def scalars_inside(node: Node) -> list[Number]:
    """Return the scalars of an activation, in the order in which they are emitted."""
    if node.inside is None:
        return []
    graph, result = node.inside
    return [x for inner in needed([result], graph.nodes) for x in inner.scalars]


def _activation(e: Emitter, inside: tuple[Graph, Node], scalars: Sequence[Real]) -> Activation:
    """Return the emission of an activation of one or several arguments."""
    graph, result = inside
    arguments = [node for node in graph.nodes if node.kind == "input"]

    def emit(values: Sequence[Real]) -> Real:
        known = {id(x): value for x, value in zip(arguments, values, strict=False)}
        left = iter(scalars)
        for node in needed([result], graph.nodes):
            own = [next(left) for _ in node.scalars]
            if node.data is not None:
                known[id(node)] = float(node.data.flat[0])
            elif node.kind != "input":
                entry = OPERATIONS[node.kind].entry
                assert entry is not None
                known[id(node)] = entry(e, own, *(known[id(x)] for x in node.inputs))
        return known[id(result)]

    return emit


def _emit(e: Emitter, here: Here) -> None:
    """Emit the sum of s(h) s(h)^T over hidden units h = F g.

    If s has several arguments, the columns of all of them are made from consecutive normals.
    """
    node = here.node
    (slot, count, copies), (rows, inner) = node.integers, here.sizes(0)
    assert node.inside is not None
    act = _activation(e, node.inside, here.scalars)
    each, lower = copies * inner, node.inputs[0].lower
    factor, unrolled = here.inputs[0], not e.rolled
    if unrolled:  # what is in registers is not seen in loops
        there = View("%work", e.take(rows * inner), inner)
        for i in range(rows):
            for j in range(inner):
                e.write_row(factor.load(e, i, j), there.base, there.row(e, i, j))
        factor = there
    normals = View("%work", e.take(each * _UNITS + 4), each)
    places = [(i, j) for i in range(rows) for j in range(i + 1)]

    def chunks(
        body: Callable[[int, Sequence[Real]], Sequence[Real]], start: list[Real]
    ) -> list[Real]:
        """Draw some units at a time; `body(units, sums)` adds them."""

        def chunk(units: int) -> Callable[[Int, Sequence[Real]], Sequence[Real]]:
            def draw_and_add(k: Int, sums: Sequence[Real]) -> Sequence[Real]:
                first = e.mul(k, _UNITS * each)
                emit_normals(e, here, normals, units * each, slot, first=first)
                return body(units, sums)

            return draw_and_add

        sums: list[Real] = e.loop(0, count // _UNITS, 1, chunk(_UNITS), start)
        if count % _UNITS:
            sums = list(chunk(count % _UNITS)(count // _UNITS, sums))
        return sums

    def column(u: Int, argument: int) -> list[Real]:
        g = [normals.load(e, u, argument * inner + k) for k in range(inner)]
        hidden = []
        for i in range(rows):
            x: Real = 0.0
            for k in range(i + 1 if lower else inner):
                x = e.fma(factor.load(e, i, k), g[k], x)
            hidden.append(x)
        return hidden

    def carried(units: int, sums: Sequence[Real]) -> Sequence[Real]:
        def unit(u: Int, sums: Sequence[Real]) -> list[Real]:
            columns = [column(u, k) for k in range(copies)]
            s = [act(values) for values in zip(*columns, strict=True)]
            return [e.fma(s[i], s[j], x) for (i, j), x in zip(places, sums, strict=True)]

        return e.loop(0, units, 1, unit, sums)

    if rows <= _CARRIED:
        with e.in_loops():
            totals = chunks(carried, [0.0] * len(places))
        for (i, j), x in zip(places, totals, strict=True):
            here.out.store(e, x, i, j)
            here.out.store(e, x, j, i)
        return
    total = View("%work", e.take(rows * rows), rows) if unrolled else here.out
    hidden = [View("%work", e.take(rows * _UNITS), _UNITS) for _ in range(copies)]

    def blocked(units: int, _: object) -> list[Real]:
        parts, shape = [normals.columns(k * inner).mT for k in range(copies)], (rows, inner, units)
        _add_units(e, total, factor, parts, hidden, shape, lower, lambda values, _: act(values))
        return []

    with e.in_loops():
        entries(e, (rows, rows), lambda i, j: total.store(e, 0.0, i, j))
        chunks(blocked, [])
    if unrolled:
        copy(e, here.out, total, (rows, rows))


def _add_units(
    e: Emitter, total: View, factor: View, normals: Sequence[View], hidden: Sequence[View],
    shape: tuple[int, int, int], lower: bool, act: Callable[[Sequence[Real], Int], Real],
) -> None:  # fmt: skip
    """Emit adding the Gram matrix of some units; `act` also gets the place of a unit.

    The arguments of the activation are products of the factor with normals, written to `hidden`.
    """
    rows, _, units = shape
    for h, g in zip(hidden, normals, strict=True):
        multiply(e, h, factor, g, shape, Zeros(lower=lower))
    entries(
        e, (rows, units),
        lambda i, j: hidden[0].store(e, act([h.load(e, i, j) for h in hidden], j), i, j),
    )  # fmt: skip
    multiply(e, total, hidden[0], hidden[0].mT, (rows, units, rows), half=True, adding=True)


class HiddenUnits:
    """Code for the hidden units of a node, with a unit in each lane."""

    def __init__(self, node: Node) -> None:
        self._node = node
        e = Emitter()
        self._lanes = e.lanes
        parameters = [("ptr", x) for x in ("factor", "out", "numbers", "work")]
        parameters += [("i64", x) for x in ("k0", "k1", "path", "slot", "first", "last")]
        e.function(parameters, lambda: self._emit(e), name="gram")
        self._work = e.most_work * e.lanes
        types = [ctypes.c_void_p] * 4 + [ctypes.c_uint64] * 3 + [ctypes.c_int64] * 3
        self._run = e.compiled().function("gram", *types)

    def _emit(self, e: Emitter) -> None:
        node = self._node
        assert node.inside is not None
        count = len(scalars_inside(node))
        act = _activation(e, node.inside, [e.number("%numbers", k) for k in range(count)])
        copies, (rows, inner) = node.integers[-1], node.inputs[0].shape
        each = copies * inner
        normals = View("%work", e.take((each + 1) * _VECTORS), _VECTORS)
        hidden = [View("%work", e.take(rows * _VECTORS), _VECTORS) for _ in range(copies)]
        total = View("%work", e.take(rows * rows), rows)
        draw = _draw_function(e, each)
        lanes = e.lane_numbers()

        factor = View("%factor", 0, inner, shared=True)
        entries(e, (rows, rows), lambda i, j: total.store(e, 0.0, i, j), True)

        def chunk(unit: Int, _: object) -> None:
            inside = []
            for v in range(_VECTORS):
                first = e.add(unit, v * e.lanes)
                out = e.at("%work", e.add(normals.offset, v))
                e.call(
                    draw, ("ptr", out), ("i64", first), ("i64", "%k0"), ("i64", "%k1"),
                    ("i64", "%path"), ("i64", "%slot"),
                )  # fmt: skip
                units = e.new(f"add {e.of('i64')} {e.splat(str(first), 'i64')}, {lanes}")
                end = e.splat("%last", "i64")
                inside.append(e.new(f"icmp ult {e.of('i64')} {units}, {end}"))
            parts = [normals.rows(k * inner) for k in range(copies)]

            def masked(values: Sequence[Real], v: Int) -> Real:
                assert isinstance(v, int)
                return e.select(inside[v], act(values), 0.0)

            shape, lower = (rows, inner, _VECTORS), node.inputs[0].lower
            _add_units(e, total, factor, parts, hidden, shape, lower, masked)

        e.loop("%first", "%last", _VECTORS * e.lanes, chunk)

        def total_row(i: Int, _: object) -> None:
            def entry(j: Int, _: object) -> None:
                x = total.load(e, i, j)
                to = e.at("%out", e.add(e.mul(i, rows), j), "double")
                e.put(f"store double {e.total(x)}, ptr {to}, align 8")

            def zero(j: Int, _: object) -> None:
                to = e.at("%out", e.add(e.mul(i, rows), j), "double")
                e.put(f"store double 0.0, ptr {to}, align 8")

            e.loop(0, e.add(i, 1), 1, entry)
            e.loop(e.add(i, 1), rows, 1, zero, may_be_empty=True)

        e.loop(0, rows, 1, total_row)

    def add(self, call: Call, units: Units, factor: Array, out: Array) -> None:
        """Write the lower half of the sum over some units."""
        slot, first, last = units
        assert call.key is not None
        work = np.empty(self._work + 8)
        start = work.ctypes.data + -work.ctypes.data % 64
        self._run(
            factor.ctypes.data, out.ctypes.data, call.scalars.ctypes.data, start,
            int(call.key[0]), int(call.key[1]), int(call.path[0]), slot, first, last,
        )  # fmt: skip


def _draw_function(e: Emitter, each: int) -> str:
    """Return the function (out, unit, k0, k1, path, slot) that draws the normals of some units.

    Lane p has unit `unit` + p, whose normals are those from `each` (unit + p) on. If that number is
    odd, the first of a pair may be that of the unit before.
    """

    def body() -> None:
        key, c1 = keys(e), e.splat("%path", "i64")
        kind = e.of("i64")
        lanes = e.lane_numbers()
        units = e.new(f"add {kind} {e.splat('%unit', 'i64')}, {lanes}")
        start = e.new(f"mul {kind} {units}, {e.word(each, 64)}")
        first = e.new(f"lshr {kind} {start}, {e.word(1, 64)}")
        slot = e.splat(e.new(f"shl i64 %slot, {SLOT_SHIFT}"), "i64")
        base = e.new(f"or {kind} {first}, {slot}")
        odd = e.new(f"and {kind} {start}, {e.word(1, 64)}")
        second = e.new(f"icmp ne {kind} {odd}, {e.word(0, 64)}")

        def pair(k: Int, _: object) -> list[Real]:
            c0 = e.new(f"add {kind} {base}, {e.splat(str(k), 'i64')}")
            a, b = normal_pair(e, *threefry(e, key, c0, c1))
            row = e.mul(k, 2 * _VECTORS)
            e.write_row(a, "%out", row)
            if each % 2 == 0:
                e.write_row(b, "%out", e.add(row, _VECTORS))
                return []
            # Where the first number is the second of its pair, all move up by one.
            with e.when(e.new(f"icmp ugt i64 {k}, 0")):
                above = e.add(row, -_VECTORS)
                e.write_row(e.select(second, a, e.load_row("%out", above)), "%out", above)
            e.write_row(e.select(second, b, a), "%out", row)
            with e.when(e.new(f"icmp ult i64 {e.add(e.mul(k, 2), 1)}, {each}")):
                e.write_row(b, "%out", e.add(row, _VECTORS))
            return []

        e.loop(0, each // 2 + 1 if each % 2 else each // 2, 1, pair)

    parameters = [("ptr", "out"), ("i64", "unit"), ("i64", "k0"), ("i64", "k1"), ("i64", "path"),
                  ("i64", "slot")]  # fmt: skip
    return e.function(parameters, body, ("units", each))


class _ByLibrary:
    """The same by library routines, for many tokens."""

    def __init__(self, node: Node) -> None:
        assert node.inside is not None
        inside, self._copies = node.inside, node.integers[-1]
        self._triangular = node.inputs[0].lower

        def entry(e: Emitter, scalars: Sequence[Real], values: Sequence[Real]) -> Real:
            return _activation(e, inside, scalars)(values)

        self._activate = on_entries(entry, self._copies, len(scalars_inside(node)))

    def add(self, call: Call, units: Units, factor: Array, out: Array) -> None:
        """Write the lower half of the sum over some units."""
        slot, first, last = units
        assert call.key is not None
        columns = factor.shape[1]
        each, turned = self._copies * columns, np.ascontiguousarray(factor.T)
        out.fill(0.0)
        for start in range(first, last, COLUMNS):
            here = min(COLUMNS, last - start)
            normals = np.empty((here, each))
            fill_normals(normals.reshape(1, -1), call.key, call.path, slot, start * each // 2)
            hidden = []
            for k in range(self._copies):
                part = np.ascontiguousarray(normals[:, k * columns : (k + 1) * columns])
                if self._triangular:
                    multiply_triangular(factor, part, left=False, transposed=True)
                else:
                    part = np.matmul(part, turned)
                hidden.append(part)
            self._activate(hidden[0], call.scalars, *hidden)
            add_cogram(hidden[0], out)


def _alone(node: Node) -> Alone:
    """Return the sum in parts that threads share; sizes alone decide on the order of the sum."""
    slot, count, copies = node.integers
    rows, columns = node.inputs[0].shape
    large = rows >= FEWEST_LARGE_TOKENS
    if large:
        units, most = COLUMNS, _PART_ENTRIES // rows**2
    else:
        units, most = _PART_UNITS, count * copies * columns // _FEWEST_NUMBERS
    blocks = -(-count // units)
    parts = max(1, min(_LARGEST_PARTS, blocks, most))
    ends = [min(count, blocks * k // parts * units) for k in range(parts + 1)]
    code = _ByLibrary(node) if large else HiddenUnits(node)

    def run(call: Call, out: Array, factor: Array) -> None:
        totals = np.empty((parts, *out.shape))
        call.team.together([
            partial(code.add, call, (slot, first, last), factor, total)
            for (first, last), total in zip(pairwise(ends), totals, strict=True)
        ])  # fmt: skip
        out[...] = totals[0]
        for total in totals[1:]:
            out += total
        out += np.tril(out, -1).T

    return run


operation("activated_gram", emit=_emit, routine=_alone, growth=2.0)
