"""Sums over rows and columns, and rows of length 1."""

from __future__ import annotations

from dataclasses import replace

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import sums
from shaped_attention.compiler.text import Int, Real
from shaped_attention.libraries import torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.operations.entrywise import sqrt
from shaped_attention.numerics.operations.registry import (
    Here,
    M,
    operation,
    primitive,
    tensor,
)


@primitive(
    trace=lambda matrix: matrix.plain().linear("row_sums", lambda rows, _: (rows, 1)),
)
def row_sums(matrix: M) -> M:
    """Sum each row: a column (m, 1)."""
    return tensor(matrix).sum(-1, keepdim=True)


@primitive(
    trace=lambda matrix: matrix.plain().linear("column_sums", lambda _, columns: (1, columns)),
)
def column_sums(matrix: M) -> M:
    """Sum each column: a row (1, c)."""
    return tensor(matrix).sum(-2, keepdim=True)


def _traced_row_squares(matrix: Matrix) -> Matrix:
    flat = matrix.plain()
    result = flat.graph.node("row_squares", (flat.node,), (flat.shape[0], 1))
    return Matrix(flat.graph, result.node, flat.coefficient * flat.coefficient)


@primitive(trace=_traced_row_squares)
def row_squares(matrix: M) -> M:
    """Sum the squares of each row: the squared lengths, a column (m, 1)."""
    return tensor(matrix * matrix).sum(-1, keepdim=True)


def _traced_unit_rows(matrix: Matrix) -> Matrix:
    number = matrix.coefficient
    known = isinstance(number, float | int) and number != 0.0
    flat = matrix.plain() if known else matrix.value()
    unit = flat.graph.node("unit_rows", (flat.node,), flat.shape, lower=flat.node.lower)
    return -unit if known and number < 0.0 else unit


@primitive(trace=_traced_unit_rows)
def unit_rows(matrix: M) -> M:
    """Divide each row by its length; a row of zeros is unchanged."""
    length = torch.linalg.vector_norm(tensor(matrix), dim=-1, keepdim=True)
    return tensor(matrix) / torch.where(length > 0.0, length, 1.0)


def by_length(rows: M, eps: float) -> M:
    """Divide rows by sqrt(squared length + eps); with eps = 0 a row of zeros is unchanged."""
    zero = isinstance(eps, float | int) and eps == 0.0
    return unit_rows(rows) if zero else rows / sqrt(row_squares(rows) + eps)


def by_mean_square(rows: M, eps: float) -> M:
    """Divide rows by sqrt(mean square of the entries + eps), as RMSNorm does."""
    size = rows.shape[-1]
    if eps == 0.0:
        return size**0.5 * unit_rows(rows)
    return size**0.5 * by_length(rows, size * eps)


def _sums(e: Emitter, here: Here) -> None:
    """Emit sums of rows, of columns, or of the squares of rows."""
    (a,), (rows, columns), kind = here.inputs, here.sizes(0), here.node.kind
    if kind == "column_sums":
        a, rows, columns = a.mT, columns, rows
    out = replace(here.out, down=1)
    sums(e, a, rows, columns, kind == "row_squares", lambda x, i: out.store(e, x, i, 0))


def _unit_rows(e: Emitter, here: Here) -> None:
    """Emit each row divided by its length."""
    (a,), (rows, columns) = here.inputs, here.sizes(0)

    def divide(square: Real, i: Int) -> None:
        positive = e.compare("ogt", square, 0.0)
        inverse = e.select(positive, e.fdiv(1.0, e.sqrt(square)), 1.0)

        def put(j: Int, _: object) -> None:
            here.out.store(e, e.fmul(a.load(e, i, j), inverse), i, j)

        e.loop(0, columns, 1, put)

    sums(e, a, rows, columns, True, divide)


operation("row_sums", emit=_sums, growth=1.0)
operation("column_sums", emit=_sums, growth=1.0)
operation("row_squares", emit=_sums, growth=2.0)
operation("unit_rows", emit=_unit_rows, growth=0.0)
