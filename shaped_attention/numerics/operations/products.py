"""Products of matrices; on tiles a block of entries at a time in vector registers.

Numba turns a loop over lanes into vector instructions, but keeps each sum in memory: two loads for
each multiplication. Here a block of up to 4 x 4 sums stays in registers while the inner index runs,
which is three times as fast (measured at 4, 8 and 16 tokens). A block fills the registers: there
are 32 of 512 bits, and only 16 of 256. Each sum runs in the order of its index, as in a plain loop,
so the rounding of an entry does not depend on its block.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from shaped_attention.numerics import lapack
from shaped_attention.numerics.jit import (
    LANES,
    STRIDE,
    WIDE,
    intrinsic,
    kernel,
    piece,
    scalar,
    sizes,
)
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.registry import operation
from shaped_attention.numerics.operations.stacks import Place, Step, each, plain
from shaped_attention.numerics.vector_products import Vectors

Array = NDArray[np.float64]

FEWEST_TRIANGULAR = 32
"""Least rows at which a library product that skips zeros is faster (measured)."""

_LEFT, _RIGHT = 1, 2
"""Flags of products with a transposed matrix."""

_VECTOR = 8 if WIDE else 4
"""Lanes in a vector, which fills a register."""

_HIGHEST = 4 if WIDE else 2
"""Rows of the largest block."""


@intrinsic
def _block(  # type: ignore[no-untyped-def]
    typing, buf, out, out_row, a, a_row, a_inner, b, b_column, b_inner, high, wide, count, adding
):  # fmt: skip
    """Write rows out + i out_row + j = sum over k < count of A_ik B_kj, i < high, j < wide.

    A_ik is in row a + i a_row + k a_inner of `buf` (rows, STRIDE), and B_kj in row
    b + j b_column + k b_inner. With `adding` the sums are added to the present values.
    """
    signature = types.void(buf, *([types.intp] * 11), types.boolean)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        out, out_row, a, a_row, a_inner, b, b_column, b_inner = arguments[1:9]
        high_value, wide_value, count, adding = arguments[9:]
        v = Vectors(context, builder, signature.args[:1], arguments[:1], out.type, _VECTOR)

        def row(lane: Any, start: Any, *terms: tuple[Any, Any]) -> Any:
            return v.entry(lane, (v.entry(start, *terms), STRIDE))

        for high, wide in sizes(builder, high_value, wide_value):
            entries = [(i, j) for i in range(high) for j in range(wide)]
            sums = v.sums(high * wide)
            first, end, step = (v.entry(number) for number in (0, LANES, _VECTOR))
            with cgutils.for_range_slice(builder, first, end, step, out.type) as (lane, _):
                for place, (i, j) in zip(sums, entries, strict=True):
                    before = v.load(0, row(lane, out, (out_row, i), (j, 1)))
                    builder.store(builder.select(adding, before, v.zero), place)
                with cgutils.for_range(builder, count, intp=out.type) as loop:
                    k = loop.index
                    rows = [v.load(0, row(lane, a, (a_inner, k), (a_row, i))) for i in range(high)]
                    for j in range(wide):
                        column = v.load(0, row(lane, b, (b_inner, k), (b_column, j)))
                        for i in range(high):
                            v.add_product(rows[i], column, sums[i * wide + j])
                for place, (i, j) in zip(sums, entries, strict=True):
                    v.store(builder.load(place), 0, row(lane, out, (out_row, i), (j, 1)))
        return context.get_dummy_value()

    return signature, generate


@kernel
def multiply(  # type: ignore[no-untyped-def]
    buf, out, out_columns, a, a_row, a_inner, b, b_column, b_inner, rows, inner, columns,
    a_from, a_to, b_from, b_to, half, adding,
):  # fmt: skip
    """Write the product of A (rows, inner) and B (inner, columns), with given strides, or add it.

    The inner index starts at the row with `a_from` and ends after it with `a_to`; likewise for the
    column with `b_from` and `b_to`. The omitted entries are zero, as in triangular matrices. With
    `half`, for a symmetric product, entries above the diagonal are undefined: `mirror` writes them.
    """
    i = 0
    while i < rows:
        high = min(piece(rows - i), _HIGHEST)
        first_i = i if a_from else 0
        stop_i = min(i + high, inner) if a_to else inner
        j = 0
        while j < (i + 1 if half else columns):
            wide = piece(columns - j)
            first = max(first_i, j if b_from else 0)
            stop = min(stop_i, j + wide) if b_to else stop_i
            _block(
                buf, out + i * out_columns + j, out_columns, a + i * a_row + first * a_inner, a_row,
                a_inner, b + j * b_column + first * b_inner, b_column, b_inner, high, wide,
                max(stop - first, 0), adding,
            )  # fmt: skip
            j += wide
        i += high


@kernel
def mirror(buf, out, rows):  # type: ignore[no-untyped-def]
    """Copy the lower half of a square matrix to the upper one."""
    for i in range(rows):
        for j in range(i):
            for p in range(LANES):
                buf[out + j * rows + i, p] = buf[out + i * rows + j, p]


# Inlined: passing the arrays on twice takes time that shows for small matrices.
@scalar
def _multiply(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Write A B, A B^T or A^T B; zeros of triangular matrices are skipped."""
    turned_a, turned_b = line[at.FLAG] == _LEFT, line[at.FLAG] == _RIGHT
    a_lower, b_lower, no = line[at.A_LOWER] > 0, line[at.B_LOWER] > 0, line[at.ROWS] < 0
    rows, columns = line[at.ROWS], line[at.COLUMNS]
    inner = line[at.A_ROWS] if turned_a else line[at.A_COLUMNS]
    multiply(
        buf, line[at.OUT], line[at.OUT_COLUMNS], line[at.A], 1 if turned_a else inner,
        rows if turned_a else 1, line[at.B], inner if turned_b else 1, 1 if turned_b else columns,
        rows, inner, columns, a_lower and turned_a, a_lower and not turned_a,
        b_lower and not turned_b, b_lower and turned_b, no, no,
    )  # fmt: skip


@scalar
def _gram(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Write A A^T or A^T A."""
    turned, rows = line[at.FLAG] == _LEFT, line[at.ROWS]
    inner = line[at.A_ROWS] if turned else line[at.A_COLUMNS]
    a, row, following = line[at.A], 1 if turned else inner, rows if turned else 1
    lower, yes, no = line[at.A_LOWER] > 0 and not turned, rows > 0, rows < 0
    multiply(
        buf, line[at.OUT], rows, a, row, following, a, row, following, rows, inner, rows,
        no, lower, no, lower, yes, no,
    )  # fmt: skip
    mirror(buf, line[at.OUT], rows)


def _multiply_stacks(step: Step, place: Place, out: Array, a: Array, b: Array) -> None:
    """Write the product; a large one with a triangular matrix costs half."""
    left, right = step.node.inputs
    kind = step.node.kind
    a_here = a.mT if kind == "multiply_tn" else a
    b_here = b.mT if kind == "multiply_nt" else b
    triangular = lapack.multiply_triangular
    if left.lower and left.shape[0] >= FEWEST_TRIANGULAR:
        out[...] = b_here
        each(partial(triangular, left=True, transposed=kind == "multiply_tn"))(a, out)
    elif right.lower and right.shape[0] >= FEWEST_TRIANGULAR:
        out[...] = a_here
        each(partial(triangular, left=False, transposed=kind == "multiply_nt"))(b, out)
    else:
        np.matmul(a_here, b_here, out=out)


for _kind, _flag in (("multiply_nn", 0), ("multiply_nt", _RIGHT), ("multiply_tn", _LEFT)):
    operation(_kind, tile=_multiply, blas=_multiply_stacks, flag=_flag, growth=sum, in_place=True)
operation("gram", tile=_gram, blas=plain(lambda a, out: np.matmul(a, a.mT, out=out)), growth=2.0)
operation(
    "cogram", tile=_gram, blas=plain(lambda a, out: np.matmul(a.mT, a, out=out)), flag=_LEFT,
    growth=2.0,
)  # fmt: skip
