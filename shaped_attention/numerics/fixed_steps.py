"""Emission of steps of equal length: many in a call, one with its parts apart, or a program."""

from __future__ import annotations

from functools import partial

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, entries, write
from shaped_attention.compiler.text import Int, Real
from shaped_attention.numerics.bookkeeping import (
    copy_rows,
    count_paths,
    load_mask,
    one_of,
    stop_outside,
    store_radius,
    store_time,
)
from shaped_attention.numerics.emission import Emission, typed

STEP = typed("state alive stopped", "radius dt", "first begin end blocks stride")
REPORT = typed("state alive stopped reported", "radius dt", "first point blocks stride")
APPLY = typed("states results", "", "first step blocks stride")
"""Arguments of `Mover.advance`, `report` and `apply`: arrays, numbers and integers."""


def write_steps(m: Emission, e: Emitter, adding: bool) -> None:
    """Emit `Mover.advance`."""
    finish = _add if adding else _replace
    more = ("alive", "stopped", "times")
    steps = [
        m.step(e, k, lambda results: finish(m, e, results), *more) for k in range(len(m.programs))
    ]
    outside = m.outside(e)

    def block(b: Int, _: object) -> None:
        alive, stopped, state = m.of_block(e, b)

        def step(number: Int, _: object) -> None:
            with e.when(e.some(load_mask(e, alive))):
                count_paths(e, e.add("%first", e.mul(b, e.lanes)), number)
                store_time(e, number)
                row = e.mul(number, "%stride")
                more = (alive, stopped, "%times")
                calls = [
                    partial(m.call_step, e, step, k, row, *more) for k, step in enumerate(steps)
                ]
                one_of(e, number, calls)
                store_time(e, e.add(number, 1))
                stop_outside(e, outside, alive, stopped)

        with e.when(e.some(load_mask(e, alive))):
            copy_rows(e, state, "%buf", m.size)
            e.loop("%begin", "%end", 1, step, may_be_empty=True)
            copy_rows(e, "%buf", state, m.size)

    def body() -> None:
        store_radius(e)
        e.loop(0, "%blocks", 1, block)

    m.function(e, STEP, body)


def _replace(m: Emission, e: Emitter, results: list[View]) -> None:
    """Emit the new state of the paths that move."""
    mask, target = load_mask(e, "%alive"), 0
    for view, (rows, columns) in zip(results, m.state_shapes, strict=False):
        old = View("%buf", target, columns)
        target += rows * columns

        def put(i: Int, j: Int, view: View = view, old: View = old) -> None:
            new, before = view.load(e, i, j), old.load(e, i, j)
            if isinstance(new, str) or new != before:
                e.write_row(e.select(mask, new, before), "%buf", old.row(e, i, j))

        entries(e, (rows, columns), put, view.contiguous(columns))


def _moved(m: Emission, e: Emitter, results: list[View]) -> tuple[View, str]:
    """Emit the state after drift and noise, and which paths move: those that do not overflow."""
    drift, noise = results
    ((rows, columns),) = m.state_shapes
    old, new = View("%buf", 0, columns), View("%work", e.take(rows * columns), columns)

    def entry(i: Int, j: Int) -> Real:
        x = e.fadd(e.fadd(old.load(e, i, j), drift.load(e, i, j)), noise.load(e, i, j))
        new.store(e, x, i, j)
        return x

    total = m.sum(e, (rows, columns), all(x.contiguous(columns) for x in results), entry)
    mask = load_mask(e, "%alive")
    return new, m.stop_overflowing(e, total, mask, "%alive", "%stopped", "%times")


def _add(m: Emission, e: Emitter, results: list[View]) -> None:
    """Emit adding drift and noise."""
    new, mask = _moved(m, e, results)
    ((rows, columns),) = m.state_shapes
    old = View("%buf", 0, columns)

    def put(i: Int, j: Int) -> None:
        x = e.select(mask, new.load(e, i, j), old.load(e, i, j))
        e.write_row(x, "%buf", old.row(e, i, j))

    entries(e, (rows, columns), put, all(x.contiguous(columns) for x in results))


def write_report(m: Emission, e: Emitter) -> None:
    """Emit `Mover.report`."""
    shape = m.state_shapes[0]

    def finish(results: list[View]) -> None:
        _, mask = _moved(m, e, results)
        for view, base in zip(results, ("%drift", "%noise"), strict=True):
            write(e, View(base, 0, shape[1]), view, shape, lambda x: e.select(mask, x, 0.0))

    step = m.step(e, 0, finish, "alive", "stopped", "times", "drift", "noise")
    outside = m.outside(e)

    def block(b: Int, _: object) -> None:
        alive, stopped, state = m.of_block(e, b)
        copy_rows(e, state, "%buf", m.size)
        count_paths(e, e.add("%first", e.mul(b, e.lanes)), "%point")
        store_time(e, "%point")
        stop_outside(e, outside, alive, stopped)
        drift = e.at("%reported", e.mul(b, m.size))
        noise = e.at("%reported", e.mul(e.add(b, "%blocks"), m.size))
        row = e.mul("%point", "%stride")
        m.call_step(e, step, 0, row, alive, stopped, "%times", drift, noise)

    def body() -> None:
        store_radius(e)
        e.loop(0, "%blocks", 1, block)

    m.function(e, REPORT, body)


def write_apply(m: Emission, e: Emitter, which: int) -> None:
    """Emit `Mover.apply` of a program."""
    program = m.programs[which]
    inputs = sum(r * c for r, c in program.input_shapes)
    outputs = sum(r * c for r, c in program.result_shapes)

    def finish(results: list[View]) -> None:
        place = 0
        for view, (rows, columns) in zip(results, program.result_shapes, strict=True):
            write(e, View("%out", place, columns), view, (rows, columns))
            place += rows * columns

    step = m.step(e, which, finish, "out")

    def block(b: Int, _: object) -> None:
        copy_rows(e, e.at("%states", e.mul(b, inputs)), "%buf", inputs)
        count_paths(e, e.add("%first", e.mul(b, e.lanes)), "%step")
        out = e.at("%results", e.mul(b, outputs))
        m.call_step(e, step, which, e.mul("%step", "%stride"), out)

    def body() -> None:
        e.loop(0, "%blocks", 1, block)

    m.function(e, APPLY, body)
