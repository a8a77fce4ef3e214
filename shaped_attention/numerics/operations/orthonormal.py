"""Orthonormal directions of rows: the triangular factor, and the directions themselves.

The value on rows C (r, k), a column of lengths (r, 1) and known directions P (p, k), to which C is
orthogonal, is ``[L, E, d]`` (r, r + k + 1) with C = L E: L is lower triangular, E has orthonormal
rows that are orthogonal to those of P, and d is 1 where a direction is new. In a trace P is above C
in one matrix. A pivot counts as zero if it is at most eps^(3/4) times the given length of its row
(1.8e-12 in float64): the row of E and the column of L are then zero, and d is 0. What is left out
so small that no result shows it, and well above what rounding leaves of dependent rows, whose last
bits differ between processors. Each row is orthogonalised twice, so that |E E^T - I| stays at
rounding level (Giraud, Langou and Rozloznik, Comput. Math. Appl. 50, 2005).

On the CPU many rows are orthogonalised by reflections if no pivot is small, which is faster.

A small pivot enlarges what rounding has left of C along P, to at most 1e-4 of a direction, or 0.02
in float32. It is taken off before a later row uses the direction.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, dots
from shaped_attention.compiler.text import EPSILON, Int, Real
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.operations.factorisations import stacked
from shaped_attention.numerics.operations.registry import Here, M, operation, primitive, tensor

_FEWEST_ROWS = 8
"""Rows from which reflections are faster than one row after another."""

_SOUND = 1e-2
"""A pivot above this share of its row leaves rounding errors as small as they are."""


def _level(eps: float) -> float:
    return float(eps**0.75)


def _traced(rows: Matrix, lengths: Matrix, known: Matrix | None = None) -> Matrix:
    both = rows if known is None else stacked([known, rows])
    a, b = both.value(), lengths.value()
    number, data = rows.coefficient, rows.plain().node.data
    if data is not None and known is None and isinstance(number, float | int):
        entries = torch.from_numpy(number * data)[None]  # as of a bias
        lengths_of = torch.linalg.vector_norm(entries, dim=-1, keepdim=True)
        return a.graph.constant(_orthonormal(entries, lengths_of, None)[0].numpy())
    shape = (rows.shape[0], rows.shape[0] + rows.shape[1] + 1)
    return a.graph.node("orthonormal", (a.node, b.node), shape)


@primitive(trace=_traced)
def orthonormal(rows: M, lengths: M, known: M | None = None) -> M:
    """Return [L, E, d] (r, r + k + 1) of rows (r, k) with lengths (r, 1), k >= 1.

    `known` (p, k) are the known directions. No gradient is recorded.
    """
    x, scale = tensor(rows).detach(), tensor(lengths).detach()
    if x.device.type != "cpu" or x.shape[-1] < x.shape[-2] or x.shape[-2] < _FEWEST_ROWS:
        return tensor(_orthonormal(x, scale, tensor(known)))
    whole, sound = _reflected(x, scale)
    if bool(sound.all()):
        return tensor(whole)
    exact = _orthonormal(x, scale, tensor(known))
    return tensor(torch.where(sound[:, None, None], whole, exact))


def _reflected(rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value by Householder's QR, and for which samples (B,) no pivot is small."""
    q, r = torch.linalg.qr(rows.mT)
    pivots = torch.diagonal(r, dim1=-2, dim2=-1)[..., None]
    signs = torch.where(pivots < 0.0, -1.0, 1.0).to(rows.dtype)
    whole = torch.cat([(signs * r).mT, signs * q.mT, torch.ones_like(pivots)], dim=-1)
    return whole, (pivots.abs() > _SOUND * lengths).all(dim=-2)[:, 0]


def _orthonormal(rows: Tensor, lengths: Tensor, known: Tensor | None) -> Tensor:
    known = rows[:, :0] if known is None else known.detach()
    level = _level(torch.finfo(rows.dtype).eps)
    samples, count, columns = rows.shape
    out = rows.new_zeros(samples, count, count + columns + 1)
    for i in range(count):
        row, done = rows[:, i : i + 1], out[:, :i, count : count + columns]
        for _ in range(2 if i else 0):
            along = row @ done.mT
            row = row - along @ done
            out[:, i : i + 1, :i] += along
        pivot = torch.linalg.vector_norm(row, dim=-1)
        # Tested as a difference, so that a non-finite pivot does not count as zero.
        zero = pivot - level * lengths[:, i] <= 0.0
        out[:, i, i] = torch.where(zero, 0.0, pivot)[:, 0]
        unit = row / torch.where(zero, 1.0, pivot)[..., None]
        if known.shape[1]:
            unit = unit - (unit @ known.mT) @ known
            left = torch.linalg.vector_norm(unit, dim=-1)
            unit = unit / torch.where(zero, 1.0, left)[..., None]
            out[:, i, i] = torch.where(zero, 0.0, pivot * left)[:, 0]
        out[:, i : i + 1, count:-1] = torch.where(zero[..., None], 0.0, unit)
        out[:, i, -1] = torch.where(zero, 0.0, 1.0)[:, 0]
    return out


def _emit(e: Emitter, here: Here) -> None:
    """Emit the work on one row after another."""
    (both, lengths), out, rows = here.inputs, here.out, here.node.shape[0]
    (stack, columns) = here.sizes(0)
    given = stack - rows
    known, a = both, both.rows(given)
    units, new = out.columns(rows), out.columns(rows + columns)
    along = View("%work", e.take(max(rows, given)), 1)

    def take_off(i: Int, directions: View, count: Int, keep: bool) -> None:
        """Take off the parts of row i along some directions, and add them to L."""

        def part(j: Int, _: object) -> None:
            (x,) = dots(e, units, directions.mT, (i, j), (1, 1), (0, columns))
            along.store(e, x, j, 0)
            if keep:
                out.store(e, e.fadd(out.load(e, i, j), x), i, j)

        def entry(c: Int, _: object) -> None:
            def less(j: Int, left: Sequence[Real]) -> list[Real]:
                x = e.neg(along.load(e, j, 0))
                return [e.fma(x, directions.load(e, j, c), left[0])]

            (left,) = e.loop(0, count, 1, less, [units.load(e, i, c)], may_be_empty=True)
            units.store(e, left, i, c)

        e.loop(0, count, 1, part, may_be_empty=True)
        e.loop(0, columns, 1, entry)

    def length(i: Int) -> Real:
        (square,) = dots(e, units, units.mT, (i, i), (1, 1), (0, columns))
        return e.sqrt(square)

    def times(i: Int, factor: Real) -> None:
        def entry(c: Int, _: object) -> None:
            units.store(e, e.fmul(units.load(e, i, c), factor), i, c)

        e.loop(0, columns, 1, entry)

    def row(i: Int, _: object) -> None:
        e.loop(0, rows, 1, lambda j, _: out.store(e, 0.0, i, j))
        e.loop(0, columns, 1, lambda c, _: units.store(e, a.load(e, i, c), i, c))
        for _ in range(2):
            take_off(i, units, i, True)
        pivot = length(i)
        limit = e.fma(-_level(EPSILON[e.real]), lengths.load(e, i, 0), pivot)
        # Tested as a difference, so that a non-finite pivot does not count as zero.
        some = e.compare("ugt", limit, 0.0)
        pivot = e.select(some, pivot, 0.0)
        times(i, e.select(some, e.fdiv(1.0, pivot), 0.0))
        if given:
            take_off(i, known, given, False)
            left = length(i)
            pivot = e.fmul(pivot, left)
            times(i, e.select(some, e.fdiv(1.0, left), 0.0))
        out.store(e, pivot, i, i)
        new.store(e, e.select(some, 1.0, 0.0), i, 0)

    e.loop(0, rows, 1, row)


operation("orthonormal", emit=_emit, growth=1.0)
