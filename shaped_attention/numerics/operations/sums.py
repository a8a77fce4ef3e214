"""Sums over rows and columns, and rows of length 1."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shaped_attention.libraries import torch
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.jit import LANES, compiled_once, kernel, scalar
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.entrywise import sign, sqrt
from shaped_attention.numerics.operations.registry import M, linear, operation, primitive, tensor
from shaped_attention.numerics.operations.stacks import Place, Step, plain

Array = NDArray[np.float64]


@primitive(
    trace=lambda matrix: matrix.plain().linear("row_sums", lambda rows, _: (rows, 1)),
    rule=linear,
)
def row_sums(matrix: M) -> M:
    """Sum each row: a column (m, 1)."""
    return tensor(matrix).sum(-1, keepdim=True)


@primitive(
    trace=lambda matrix: matrix.plain().linear("column_sums", lambda _, columns: (1, columns)),
    rule=linear,
)
def column_sums(matrix: M) -> M:
    """Sum each column: a row (1, c)."""
    return tensor(matrix).sum(-2, keepdim=True)


def _traced_row_squares(matrix: Matrix) -> Matrix:
    flat = matrix.plain()
    result = flat.graph.node("row_squares", (flat.node,), (flat.shape[0], 1))
    return Matrix(flat.graph, result.node, flat.coefficient * flat.coefficient)


def _squares_with_tangents(x: Dual) -> Dual:
    return x.through(row_squares(x.value), lambda d: 2.0 * row_sums(x.value * d))


@primitive(trace=_traced_row_squares, tangent=_squares_with_tangents)
def row_squares(matrix: M) -> M:
    """Sum the squares of each row: the squared lengths, a column (m, 1)."""
    return tensor(matrix * matrix).sum(-1, keepdim=True)


def _traced_unit_rows(matrix: Matrix) -> Matrix:
    number = matrix.coefficient
    known = isinstance(number, float | int) and number != 0.0
    flat = matrix.plain() if known else matrix.value()
    unit = flat.graph.node("unit_rows", (flat.node,), flat.shape, lower=flat.node.lower)
    return -unit if known and number < 0.0 else unit


def _unit_rows_with_tangents(x: Dual) -> Dual:
    """Project orthogonally to the row and divide by its length; 0 for a row of zeros."""
    unit = unit_rows(x.value)
    length = row_sums(unit * x.value)
    some = sign(length)
    inverse = some / (length + (1.0 - some))
    return x.through(unit, lambda d: inverse * (d - unit * row_sums(unit * d)))


@primitive(trace=_traced_unit_rows, tangent=_unit_rows_with_tangents)
def unit_rows(matrix: M) -> M:
    """Divide each row by its length; a row of zeros is unchanged."""
    length = torch.linalg.vector_norm(tensor(matrix), dim=-1, keepdim=True)
    return tensor(matrix) / torch.where(length > 0.0, length, 1.0)


def by_length(rows: M, eps: float) -> M:
    """Divide rows by sqrt(squared length + eps); with eps = 0 a row of zeros is unchanged."""
    if hasattr(rows, "by_length"):  # rows of revealed spaces, which wait
        return rows.by_length(eps)
    return unit_rows(rows) if eps == 0.0 else rows / sqrt(row_squares(rows) + eps)


def by_mean_square(rows: M, eps: float) -> M:
    """Divide rows by sqrt(mean square of the entries + eps), as RMSNorm does."""
    size = rows.shape[-1]
    return math.sqrt(size) * by_length(rows, size * eps)


@kernel
def _sums(buf, out, a, rows, columns, step, following):  # type: ignore[no-untyped-def]
    """Sum `columns` entries, `following` rows apart, from row a + i step on."""
    for i in range(rows):
        y = out + i
        for p in range(LANES):
            buf[y, p] = 0.0
        j = 0
        while j + 3 < columns:
            x = a + i * step + j * following
            for p in range(LANES):
                total = buf[y, p] + buf[x, p]
                total += buf[x + following, p]
                total += buf[x + 2 * following, p]
                buf[y, p] = total + buf[x + 3 * following, p]
            j += 4
        while j < columns:
            x = a + i * step + j * following
            for p in range(LANES):
                buf[y, p] += buf[x, p]
            j += 1


@kernel
def squares(buf, out, a, rows, columns):  # type: ignore[no-untyped-def]
    """Sum the squares of each row."""
    for i in range(rows):
        y = out + i
        for p in range(LANES):
            buf[y, p] = 0.0
        j = 0
        while j + 3 < columns:
            x = a + i * columns + j
            for p in range(LANES):
                total = buf[y, p] + buf[x, p] * buf[x, p]
                total += buf[x + 1, p] * buf[x + 1, p]
                total += buf[x + 2, p] * buf[x + 2, p]
                buf[y, p] = total + buf[x + 3, p] * buf[x + 3, p]
            j += 4
        while j < columns:
            x = a + i * columns + j
            for p in range(LANES):
                buf[y, p] += buf[x, p] * buf[x, p]
            j += 1


@scalar
def _row_sums(line, numbers, buf):  # type: ignore[no-untyped-def]
    inner = line[at.A_COLUMNS]
    _sums(buf, line[at.OUT], line[at.A], line[at.ROWS], inner, inner, 1)


@scalar
def _column_sums(line, numbers, buf):  # type: ignore[no-untyped-def]
    columns = line[at.COLUMNS]
    _sums(buf, line[at.OUT], line[at.A], columns, line[at.A_ROWS], 1, columns)


@scalar
def _row_squares(line, numbers, buf):  # type: ignore[no-untyped-def]
    squares(buf, line[at.OUT], line[at.A], line[at.ROWS], line[at.A_COLUMNS])


@kernel
def _unit_rows(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Divide each row of A by its length; the work row has the inverse."""
    out, a, work, columns = line[at.OUT], line[at.A], line[at.WORK], line[at.COLUMNS]
    for i in range(line[at.ROWS]):
        squares(buf, work, a + i * columns, compiled_once(1), columns)
        for p in range(LANES):
            square = buf[work, p]
            buf[work, p] = 1.0 / math.sqrt(square) if square > 0.0 else 1.0
        for j in range(columns):
            for p in range(LANES):
                buf[out + i * columns + j, p] = buf[a + i * columns + j, p] * buf[work, p]


def _square_stacks(a: Array, out: Array) -> None:
    rows = a.reshape(-1, a.shape[-1])
    np.einsum("ij,ij->i", rows, rows, out=out.reshape(-1))


def _unit_stacks(step: Step, place: Place, out: Array, a: Array) -> None:
    square = np.empty((*a.shape[:-1], 1))
    _square_stacks(a, square)
    np.multiply(a, np.where(square > 0.0, 1.0 / np.sqrt(square), 1.0), out=out)


operation(
    "row_sums", tile=_row_sums, growth=1.0,
    blas=plain(lambda a, out: a.sum(axis=-1, keepdims=True, out=out)),
)  # fmt: skip
operation(
    "column_sums", tile=_column_sums, growth=1.0,
    blas=plain(lambda a, out: a.sum(axis=-2, keepdims=True, out=out)),
)  # fmt: skip
operation("row_squares", tile=_row_squares, blas=plain(_square_stacks), growth=2.0)
operation("unit_rows", tile=_unit_rows, blas=_unit_stacks, growth=0.0, scratch=lambda node: 1)
