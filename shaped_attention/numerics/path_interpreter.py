"""The interpreter of programs on one path, with one branch for each operation of a graph.

The instructions are those of tiles (`program.Program`): a row of a tile's buffer is an entry here.
The functions that it calls are in `path_algebra`.
"""

from __future__ import annotations

import numpy as np

from shaped_attention.numerics import operation_codes as codes
from shaped_attention.numerics import path_algebra as al
from shaped_attention.numerics import program as pr
from shaped_attention.numerics.jit import kernel
from shaped_attention.numerics.threefry import counter, fill_chi, fill_weights

_OP, _OUT, _OUT_COLUMNS, _A, _B = pr.OP, pr.OUT, pr.OUT_COLUMNS, pr.A, pr.B
_ROWS, _INNER, _WIDE, _A_LOWER = pr.ROWS, pr.INNER, pr.COLUMNS, pr.A_LOWER
_B_ROWS, _B_COLUMNS, _S, _S2 = pr.B_ROWS, pr.B_COLUMNS, pr.SCALAR, pr.SCALAR_2
_KEY, _SLOT, _WORK, _COUNT = pr.KEY, pr.SLOT, pr.WORK, pr.COUNT


@kernel
def _products(line, buf):  # type: ignore[no-untyped-def]
    """Run a product of matrices."""
    op, out, a, b = line[_OP], line[_OUT], line[_A], line[_B]
    rows, columns, inner = line[_ROWS], line[_WIDE], line[_INNER]
    if op in (codes.GRAM, codes.COGRAM):
        al.gram(buf, out, a, rows, inner, op == codes.COGRAM)
    else:
        al.multiply(
            buf, out, line[_OUT_COLUMNS], a, b, rows, inner, columns,
            op == codes.MULTIPLY_TN, op == codes.MULTIPLY_NT, line[_A_LOWER] > 0,
        )  # fmt: skip


@kernel
def _entries(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Run an instruction on entries."""
    op, out, a, b = line[_OP], line[_OUT], line[_A], line[_B]
    rows, columns, inner = line[_ROWS], line[_WIDE], line[_INNER]
    s, t = numbers[line[_S]], numbers[line[_S2]]
    out_columns, b_rows, b_columns = line[_OUT_COLUMNS], line[_B_ROWS], line[_B_COLUMNS]
    if op == codes.COMBINE:
        al.combine(buf, out, out_columns, a, b, rows, columns, b_rows, b_columns, s, t)
    elif op in (codes.TIMES, codes.OVER):
        al.times(buf, out, a, b, rows, columns, b_rows, b_columns, op == codes.OVER)
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
    elif op == codes.DIAGONAL:
        al.place(buf, out, 1, a, inner + 1, rows, 1, 1.0)
    elif op == codes.SYMMETRIC:
        al.symmetric(buf, out, a, rows)
    else:
        al.elementwise(buf, out, a, rows * columns, op, s, t)


@kernel
def _rows(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Run an instruction on rows, or on a whole matrix."""
    op, out, a, b = line[_OP], line[_OUT], line[_A], line[_B]
    rows, columns, inner = line[_ROWS], line[_WIDE], line[_INNER]
    if op == codes.ROW_SUMS:
        al.sums(buf, out, a, rows, inner, inner, 1)
    elif op == codes.COLUMN_SUMS:
        al.sums(buf, out, a, columns, line[_COUNT], 1, columns)
    elif op == codes.ROW_SQUARES:
        al.row_squares(buf, out, a, rows, inner)
    elif op == codes.UNIT_ROWS:
        al.unit_rows(buf, out, a, rows, columns)
    elif op == codes.ROTATE:
        al.rotate(buf, out, a, b, rows, columns, line[_B_COLUMNS] // 2)
    elif op == codes.SOFTMAX:
        al.softmax(buf, out, a, b, rows, columns, numbers[line[_S]])
    elif op == codes.LOWER:
        al.lower(buf, out, a, rows, inner, line[_WORK])
    elif op == codes.CHOLESKY:
        al.cholesky(buf, out, a, rows)
    elif op == codes.ARC_COSINE:
        al.arc_cosine(buf, out, a, rows)


@kernel
def _draw(line, scale, key, buf, sample, step, slot, out, count):  # type: ignore[no-untyped-def]
    """Write normals times `scale`."""
    entries = buf[out : out + count]
    fill_weights(entries.reshape(1, count), key, sample, step, slot, 0)
    if scale != 1.0:
        for i in range(count):
            entries[i] *= scale


@kernel
def _bartlett(line, key, buf, sample, step):  # type: ignore[no-untyped-def]
    """Write the factor of a Wishart matrix (see `wishart.fill_bartlett`)."""
    out, rows, dof, work = line[_OUT], line[_ROWS], line[_COUNT], line[_WORK]
    _draw(line, 1.0, key, buf, sample, step, line[_SLOT], work, rows * (rows - 1) // 2)
    degrees, chi = np.empty(rows), np.empty((rows, 1))
    for i in range(rows):
        degrees[i] = dof - i
    path = np.empty(1, np.uint64)
    _, path[0] = counter(0, 0, sample, step)
    fill_chi(chi, degrees, key, path, line[_SLOT] + 1)
    entry = work
    for i in range(rows):
        for j in range(i):
            buf[out + i * rows + j] = buf[entry]
            entry += 1
        buf[out + i * rows + i] = chi[i, 0]
        for j in range(i + 1, rows):
            buf[out + i * rows + j] = 0.0


@kernel
def run(code, numbers, keys, buf, sample, step):  # type: ignore[no-untyped-def]
    """Run instructions without activated Gram matrices for one path in one step."""
    for k in range(code.shape[0]):
        line = code[k]
        op = line[_OP]
        if op == codes.NORMAL or (op == codes.WISHART and line[_WORK] == 0):
            scale = numbers[line[_S]] if op == codes.NORMAL else 1.0
            size = line[_ROWS] * line[_WIDE]
            _draw(line, scale, keys[line[_KEY]], buf, sample, step, line[_SLOT], line[_OUT], size)
        elif op == codes.WISHART:
            _bartlett(line, keys[line[_KEY]], buf, sample, step)
        elif codes.MULTIPLY_NN <= op <= codes.COGRAM:
            _products(line, buf)
        elif op in (
            codes.ROW_SUMS, codes.COLUMN_SUMS, codes.ROW_SQUARES, codes.UNIT_ROWS, codes.ROTATE,
            codes.SOFTMAX, codes.LOWER, codes.CHOLESKY, codes.ARC_COSINE,
        ):  # fmt: skip
            _rows(line, numbers, buf)
        elif op > codes.COGRAM:
            _entries(line, numbers, buf)


@kernel
def copy(regions, source, target):  # type: ignore[no-untyped-def]
    """Copy regions (entry, rows, columns, entries from row to row) to the same entries."""
    for k in range(regions.shape[0]):
        for i in range(regions[k, 1]):
            start = regions[k, 0] + i * regions[k, 3]
            for j in range(start, start + regions[k, 2]):
                target[j] = source[j]


@kernel
def run_apart(code, numbers, keys, buf, own, before, sample, step):  # type: ignore[no-untyped-def]
    """Run instructions on the buffer `own`, after copying the regions `before` to it."""
    copy(before, buf, own)
    run(code, numbers, keys, own, sample, step)
