"""The interpreter of programs on one tile, with one branch for each operation of a graph.

A step is data (`program.Program`); the functions that it calls are in `tile_algebra`, `products`
and `wishart`.
"""

from __future__ import annotations

import numpy as np

from shaped_attention.numerics import operation_codes as codes
from shaped_attention.numerics import program as pr
from shaped_attention.numerics import tile_algebra as al
from shaped_attention.numerics.jit import LANES, compiled_once, kernel, scalar
from shaped_attention.numerics.products import lower_half, mirror, multiply
from shaped_attention.numerics.threefry import count_paths, fill_normals
from shaped_attention.numerics.wishart import fill_bartlett

_OP, _OUT, _OUT_COLUMNS, _A, _B = pr.OP, pr.OUT, pr.OUT_COLUMNS, pr.A, pr.B
_ROWS, _INNER, _WIDE, _A_LOWER, _B_LOWER = pr.ROWS, pr.INNER, pr.COLUMNS, pr.A_LOWER, pr.B_LOWER
_B_ROWS, _B_COLUMNS, _S, _S2 = pr.B_ROWS, pr.B_COLUMNS, pr.SCALAR, pr.SCALAR_2
_KEY, _SLOT, _WORK, _COUNT, _FIRST, _LAST = (
    pr.KEY, pr.SLOT, pr.WORK, pr.COUNT, pr.FIRST, pr.LAST,
)  # fmt: skip
_HIDDEN, _COPIES = pr.HIDDEN_COLUMNS, pr.COPIES

SCALARS, JUMPS, KEYS = [_S, _S2], [_FIRST, _LAST], _KEY
"""Fields of an instruction that count from the start of its program."""


@kernel
def simple(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Run one instruction that needs no random numbers."""
    op, out, a, b = line[_OP], line[_OUT], line[_A], line[_B]
    rows, columns, inner = line[_ROWS], line[_WIDE], line[_INNER]
    s, t = numbers[line[_S]], numbers[line[_S2]]
    a_lower, b_lower = line[_A_LOWER] > 0, line[_B_LOWER] > 0
    out_columns = line[_OUT_COLUMNS]
    if op in (codes.MULTIPLY_NN, codes.MULTIPLY_NT, codes.MULTIPLY_TN):
        turned_a, turned_b = op == codes.MULTIPLY_TN, op == codes.MULTIPLY_NT
        multiply(
            buf, out, out_columns, a, 1 if turned_a else inner, rows if turned_a else 1,
            b, inner if turned_b else 1, 1 if turned_b else columns, rows, inner, columns,
            a_lower and turned_a, a_lower and not turned_a,
            b_lower and not turned_b, b_lower and turned_b,
        )  # fmt: skip
    elif op in (codes.GRAM, codes.COGRAM):
        turned_a = op == codes.COGRAM
        lower_half(
            buf, out, a, 1 if turned_a else inner, rows if turned_a else 1, rows, inner,
            a_lower and not turned_a, rows < 0,
        )  # fmt: skip
        mirror(buf, out, rows)
    elif op == codes.COMBINE:
        al.combine(
            buf, out, out_columns, a, b, rows, columns, line[_B_ROWS], line[_B_COLUMNS], s, t
        )
    elif op == codes.TIMES:
        al.times(buf, out, a, b, rows, columns, line[_B_ROWS], line[_B_COLUMNS], False)
    elif op == codes.OVER:
        al.times(buf, out, a, b, rows, columns, line[_B_ROWS], line[_B_COLUMNS], True)
    elif op in (codes.SCALE, codes.CONCATENATE):
        al.place(buf, out, out_columns, a, inner, rows, columns, s)
    elif op == codes.COLUMNS:
        al.place(buf, out, out_columns, a + line[_COUNT], inner, rows, columns, 1.0)
    elif op == codes.RESHAPE:
        al.place(buf, out, columns, a, columns, rows, columns, 1.0)
    elif op == codes.SHIFT:
        al.shift(buf, out, a, rows * columns, s, t)
    elif op == codes.TRANSPOSE:
        al.transpose(buf, out, a, rows, columns)
    elif op == codes.ROW_SUMS:
        al.row_sums(buf, out, a, rows, inner, inner, 1)
    elif op == codes.ROW_SQUARES:
        al.row_squares(buf, out, a, rows, inner)
    elif op == codes.COLUMN_SUMS:
        al.row_sums(buf, out, a, columns, line[_COUNT], 1, columns)
    elif op == codes.DIAGONAL:
        al.place(buf, out, 1, a, inner + 1, rows, 1, 1.0)
    elif op == codes.UNIT_ROWS:
        al.unit_rows(buf, out, a, rows, columns, line[_WORK])
    elif op == codes.ROTATE:
        al.rotate(buf, out, a, b, rows, columns, line[_B_COLUMNS] // 2)
    elif op == codes.SOFTMAX:
        al.softmax(buf, out, a, b, rows, columns, s, line[_WORK])
    elif op == codes.SYMMETRIC:
        al.symmetric(buf, out, a, rows)
    elif op == codes.LOWER:
        al.lower(buf, out, a, rows, inner, line[_WORK])
    elif op == codes.CHOLESKY:
        al.cholesky(buf, out, a, rows, line[_WORK])
    elif op == codes.ARC_COSINE:
        al.arc_cosine(buf, out, a, rows)
    else:
        al.elementwise(buf, out, a, rows * columns, op, s, t)


@scalar
def _activated_gram(code, at, numbers, key, buf, paths):  # type: ignore[no-untyped-def]
    """Sum s(h) s(h)^T over columns h = F g; the instructions that follow are those of s.

    If s has several arguments, the columns of all of them are made from consecutive normals.
    """
    line = code[at]
    out, factor, rows, inner = line[_OUT], line[_A], line[_ROWS], line[_INNER]
    normals, copies = line[_WORK], line[_COPIES]
    each = copies * inner
    hidden = normals + each * _HIDDEN + 1
    result, count = line[_B], line[_COUNT]
    one, width = compiled_once(1), compiled_once(_HIDDEN)
    yes, no = rows > 0, rows < 0
    for i in range(rows * rows):
        for p in range(LANES):
            buf[out + i, p] = 0.0
    for start in range(0, count, _HIDDEN):
        here = min(_HIDDEN, count - start)
        fill_normals(
            buf[normals : normals + each * _HIDDEN + 1], here * each, 1.0, key, paths,
            line[_SLOT], start * each // 2,
        )  # fmt: skip
        for copy in range(copies):
            multiply(
                buf, hidden + copy * rows * _HIDDEN, width, factor, inner, one,
                normals + copy * inner, each, one, rows, inner, here,
                no, line[_A_LOWER] > 0, no, no,
            )  # fmt: skip
        for k in range(line[_FIRST], line[_LAST]):
            simple(code[k], numbers, buf)
        lower_half(buf, out, result, width, one, rows, here, no, yes)
    mirror(buf, out, rows)


@scalar
def run(code, start, stop, numbers, keys, buf, paths, given, taking):  # type: ignore[no-untyped-def]
    """Run the instructions start, ..., stop - 1 for one tile in one step.

    `paths` (LANES,) are the counter words of its paths (`threefry.count_paths`). With `taking` the
    normals are rows of `given`, otherwise they are drawn.
    """
    k = start
    while k < stop:
        line = code[k]
        op = line[_OP]
        if op == codes.NORMAL:
            size = line[_ROWS] * line[_WIDE]
            out = line[_OUT]
            if taking:
                for i in range(size):
                    for p in range(LANES):
                        buf[out + i, p] = given[line[_COUNT] + i, p]
            else:
                fill_normals(
                    buf[out : out + size + 1], size, numbers[line[_S]], keys[line[_KEY]], paths,
                    line[_SLOT], compiled_once(0),
                )  # fmt: skip
        elif op == codes.WISHART:
            if line[_WORK] > 0:
                fill_bartlett(
                    buf, line[_OUT], line[_ROWS], line[_COUNT], line[_WORK], keys[line[_KEY]],
                    paths, line[_SLOT],
                )  # fmt: skip
            else:
                size = line[_ROWS] * line[_WIDE]
                out = line[_OUT]
                fill_normals(
                    buf[out : out + size + 1], size, 1.0, keys[line[_KEY]], paths,
                    line[_SLOT], compiled_once(0),
                )  # fmt: skip
        elif op == codes.ACTIVATED_GRAM:
            _activated_gram(code, k, numbers, keys[line[_KEY]], buf, paths)
            k = line[_LAST] - 1
        elif op > codes.ACTIVATED_GRAM:
            simple(line, numbers, buf)
        k += 1


@kernel
def draw(code, table, keys, ranges, first, step, out):  # type: ignore[no-untyped-def]
    """Write the normals of a step into `out` (tiles, count + 1, LANES)."""
    numbers = table[step if table.shape[0] > 1 else 0]
    paths = np.empty(LANES, np.uint64)
    for tile in range(out.shape[0]):
        count_paths(paths, first + tile * LANES, step)
        for k in range(ranges[0, 0], ranges[0, 1]):
            line = code[k]
            if line[_OP] == codes.NORMAL:
                size, start = line[_ROWS] * line[_WIDE], line[_COUNT]
                # An odd number writes one extra row, which the next normals overwrite.
                fill_normals(
                    out[tile, start : start + size + 1], size, numbers[line[_S]],
                    keys[line[_KEY]], paths, line[_SLOT], compiled_once(0),
                )  # fmt: skip
