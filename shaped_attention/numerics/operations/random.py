"""Normals, and roots of Wishart matrices."""

from __future__ import annotations

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View
from shaped_attention.compiler.random import (
    SLOT_SHIFT,
    chi_function,
    normals_function,
    per_block,
)
from shaped_attention.compiler.text import Int, Real, hexadecimal
from shaped_attention.numerics.fills import Array, fill_normals, fill_wishart
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.operations.registry import Alone, Call, Here, operation


def emit_normals(
    e: Emitter, here: Here, out: View, count: int, slot: Int, scale: Real = 1.0, first: Int = 0
) -> None:
    """Emit normals in consecutive rows, whole blocks of them, from the normal `first` on."""
    each = per_block(e)
    blocks = -(-count // each)
    row = e.at(out.base, out.offset)
    counter = e.add(_counter(e, slot), e.new(f"udiv i64 {first}, {each}") if first else 0)
    number = scale if isinstance(scale, str) else hexadecimal(scale)
    e.call(
        normals_function(e), ("ptr", row), ("i64", blocks), ("double", number),
        ("i64", here.key[0]), ("i64", here.key[1]), ("ptr", "%paths"), ("i64", counter),
    )  # fmt: skip
    if isinstance(out.offset, int):
        e.forget(out.base, out.offset, blocks * each)


def _counter(e: Emitter, slot: Int) -> Int:
    return e.new(f"shl i64 {slot}, {SLOT_SHIFT}") if isinstance(slot, str) else slot << SLOT_SHIFT


def _normal(e: Emitter, here: Here) -> None:
    rows, columns = here.node.shape
    emit_normals(e, here, here.out, rows * columns, here.node.integers[0], here.scalars[0])


def _wishart(e: Emitter, here: Here) -> None:
    """Emit Bartlett's lower triangular factor of a Wishart_rows(dof, I) matrix.

    The diagonal has chi variables with dof, dof - 1, ... degrees of freedom (slot + 1), and below
    it are normals (slot), row by row (Bartlett 1933; Muirhead, *Aspects of Multivariate
    Statistical Theory*, thm 3.2.14). It requires dof >= rows + 2.
    """
    rows, (slot,), (dof,) = here.node.shape[0], here.node.integers, here.scalars
    count = rows * (rows - 1) // 2
    below = View("%work", e.take(count + 4), 1)
    emit_normals(e, here, below, count, slot)
    diagonal = View("%work", e.take(rows + 1), 1)
    e.call(
        chi_function(e), ("ptr", e.at("%work", diagonal.offset)), ("i64", rows),
        ("double", dof), ("i64", here.key[0]), ("i64", here.key[1]),
        ("ptr", "%paths"), ("i64", _counter(e, slot + 1)),
    )  # fmt: skip

    def row(i: Int, _: object) -> None:
        # Row i begins after i (i - 1) / 2 normals.
        if isinstance(i, int):
            start: Int = i * (i - 1) // 2
        else:
            start = e.new(f"lshr i64 {e.mul(i, e.new(f'sub i64 {i}, 1'))}, 1")
        e.loop(
            0, i, 1, lambda j, _: here.out.store(e, below.load(e, e.add(start, j), 0), i, j),
            may_be_empty=True,
        )  # fmt: skip
        here.out.store(e, diagonal.load(e, i, 0), i, i)
        e.loop(e.add(i, 1), rows, 1, lambda j, _: here.out.store(e, 0.0, i, j), may_be_empty=True)

    e.loop(0, rows, 1, row)


def _normal_alone(node: Node) -> Alone:
    def run(call: Call, out: Array) -> None:
        assert call.key is not None
        fill_normals(out.reshape(1, -1), call.key, call.path, node.integers[0])
        if call.scalars[0] != 1.0:
            out *= call.scalars[0]

    return run


def _wishart_alone(node: Node) -> Alone:
    (slot,) = node.integers

    def run(call: Call, out: Array) -> None:
        assert call.key is not None
        fill_wishart(out[None], int(call.scalars[0]), call.key, call.path, (slot, slot + 1))

    return run


operation("normal", emit=_normal, routine=_normal_alone, growth=0.0)
operation("wishart", emit=_wishart, routine=_wishart_alone, growth=0.0)
