"""Triangular roots: of R R^T for a root R, and of a Gram matrix.

Everywhere the same rule applies to singular matrices: a pivot below 64 eps of its row is zero, and
so is its column. Equal tokens then remain equal, and all executors follow the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, copy, dots, sums
from shaped_attention.compiler.text import EPSILON, Int, Real
from shaped_attention.libraries import torch
from shaped_attention.numerics import routines
from shaped_attention.numerics.array_code import alone
from shaped_attention.numerics.graph import Matrix, Node
from shaped_attention.numerics.operations.parts import concatenate
from shaped_attention.numerics.operations.registry import (
    Alone,
    Call,
    Here,
    M,
    check_square,
    operation,
    primitive,
    tensor,
)
from shaped_attention.numerics.routines import PIVOT_EPSILONS, Array


def _traced_lower(root: Matrix) -> Matrix:
    number = root.coefficient
    sums = root.node.kind in ("combine", "concatenate")  # whose numbers take the coefficient in
    known = isinstance(number, float | int) and number > 0.0 and not sums
    flat = root.plain() if known else root.value()
    rows = flat.shape[0]
    result = flat.graph.node("lower", (flat.node,), (rows, rows), lower=True)
    return number * result if known else result


def stacked(parts: Sequence[M]) -> M:
    """Stack matrices with the same number of columns."""
    return concatenate([part.mT for part in parts]).mT


@primitive(trace=_traced_lower)
def lower(root: M) -> M:
    """Return the lower triangular L (m, m) with diagonal >= 0 and L L^T = root root^T.

    Modified Gram-Schmidt on the rows, for the whole batch at once: small singular values keep the
    relative accuracy that forming root root^T would lose. If the part of a row orthogonal to the
    previous rows is at most 64 eps of its length, the column is zero.
    """
    rest: Any = root
    m = rest.shape[-2]
    level = PIVOT_EPSILONS * torch.finfo(rest.dtype).eps
    original = torch.linalg.vector_norm(rest, dim=-1)
    parts = []
    for j in range(m):
        row = rest[..., 0, :]
        length = torch.linalg.vector_norm(row, dim=-1)
        # Tested as a difference, so that a non-finite pivot does not count as zero.
        zero = length - level * original[..., j] <= 0.0
        unit = torch.where(zero[..., None], 0.0, row / torch.where(zero, 1.0, length)[..., None])
        below = (rest[..., 1:, :] @ unit[..., None])[..., 0]
        head = rest.new_zeros(*rest.shape[:-2], j)
        diagonal = torch.where(zero, 0.0, length)[..., None]
        parts.append(torch.cat([head, diagonal, below], dim=-1))
        rest = rest[..., 1:, :] - below[..., None] * unit[..., None, :]
    return tensor(torch.stack(parts, dim=-1))


def _traced_cholesky(gram: Matrix) -> Matrix:
    flat = gram.value()
    return flat.graph.node("cholesky", (flat.node,), flat.shape, lower=True)


@primitive(trace=_traced_cholesky, check=check_square)
def cholesky(gram: M) -> M:
    """Return the lower triangular L with L L^T = `gram`, positive semidefinite.

    A pivot at rounding level counts as a zero eigenvalue and has a zero column, so singular
    matrices are allowed (Higham, *Accuracy and Stability*, 2002, section 10.3).
    """
    v: Any = gram
    level = PIVOT_EPSILONS * torch.finfo(v.dtype).eps
    done: list[Any] = []
    for j in range(v.shape[-1]):
        column = v[..., j:, j]
        for k, before in enumerate(done):
            column = column - before[..., j - k :] * before[..., j - k, None]
        pivot = column[..., 0]
        zero = pivot - level * v[..., j, j] <= 0.0
        root = torch.where(zero, 1.0, pivot).sqrt()
        done.append(torch.where(zero[..., None], 0.0, column / root[..., None]))
    padded = [torch.nn.functional.pad(column, (k, 0)) for k, column in enumerate(done)]
    return tensor(torch.stack(padded, dim=-1))


_BLOCK = 4
"""Rows and columns of a block of a factor."""


def _pivot(e: Emitter, square: Real, level: float, original: Real) -> tuple[Real, Real]:
    """Emit the root of a pivot and its inverse, both 0 for one at rounding level."""
    # Tested as a difference, so that a non-finite pivot does not count as zero.
    some = e.compare("ugt", e.fma(-level, original, square), 0.0)
    length = e.select(some, e.sqrt(square), 0.0)
    return length, e.select(some, e.fdiv(1.0, length), 0.0)


def _level(e: Emitter) -> float:
    return PIVOT_EPSILONS * EPSILON[e.real]


def _emit_cholesky(e: Emitter, here: Here) -> None:
    (v,), out, rows = here.inputs, here.out, here.node.shape[0]
    level = _level(e)

    def columns(first: Int, wide: int) -> None:
        inner = (0, first)

        def start(i: Int, high: int) -> list[Real]:
            return [
                v.load(e, e.add(i, x), e.add(first, y)) for x in range(high) for y in range(wide)
            ]

        sums = dots(
            e, out, out.mT, (first, first), (wide, wide), inner, start(first, wide), minus=True,
            may_be_empty=True,
        )  # fmt: skip
        factor: dict[tuple[int, int], Real] = {}
        inverses = []
        for y in range(wide):
            pivot = sums[y * wide + y]
            for k in range(y):
                pivot = e.fma(e.neg(factor[y, k]), factor[y, k], pivot)
            there = e.add(first, y)
            factor[y, y], inverse = _pivot(e, pivot, level, v.load(e, there, there))
            inverses.append(inverse)
            for x in range(y + 1, wide):
                rest = sums[x * wide + y]
                for k in range(y):
                    rest = e.fma(e.neg(factor[x, k]), factor[y, k], rest)
                factor[x, y] = e.fmul(rest, inverse)
        for x in range(wide):
            for y in range(wide):
                out.store(e, factor.get((x, y), 0.0), e.add(first, x), e.add(first, y))

        def below(i: Int, high: int) -> None:
            sums = dots(
                e, out, out.mT, (i, first), (high, wide), inner, start(i, high), minus=True,
                may_be_empty=True,
            )  # fmt: skip
            for x in range(high):
                row: list[Real] = []
                for y in range(wide):
                    rest = sums[x * wide + y]
                    for k in range(y):
                        rest = e.fma(e.neg(row[k]), factor[y, k], rest)
                    row.append(e.fmul(rest, inverses[y]))
                    out.store(e, row[y], e.add(i, x), e.add(first, y))
                    out.store(e, 0.0, e.add(first, y), e.add(i, x))

        e.pieces(rows, _BLOCK, below, e.add(first, wide))

    e.pieces(rows, _BLOCK, columns)


def _emit_lower(e: Emitter, here: Here) -> None:
    """Emit modified Gram-Schmidt on the rows, a few at a time."""
    (root,), out, (rows, columns) = here.inputs, here.out, here.sizes(0)
    rest, lengths = View("%work", e.take(rows * columns), columns), View("%work", e.take(rows), 1)
    copy(e, rest, root, (rows, columns))
    sums(e, rest, rows, columns, True, lambda x, i: lengths.store(e, x, i, 0))
    level = _level(e) ** 2

    def products(i: Int, others: Sequence[Int]) -> list[Real]:
        """Emit the products of row i with itself and with others."""

        def add(k: Int, totals: Sequence[Real]) -> list[Real]:
            x = rest.load(e, i, k)
            terms = [x, *(rest.load(e, j, k) for j in others)]
            return [e.fma(x, z, total) for z, total in zip(terms, totals, strict=True)]

        return e.loop(0, columns, 1, add, [0.0] * (1 + len(others)))

    def divide(i: Int, inverse: Real, others: Sequence[tuple[Int, Real]]) -> None:
        """Emit dividing row i by its length, and taking it off from others."""

        def entry(k: Int, _: object) -> None:
            unit = e.fmul(rest.load(e, i, k), inverse)
            rest.store(e, unit, i, k)
            for j, part in others:
                rest.store(e, e.fma(e.neg(part), unit, rest.load(e, j, k)), j, k)

        e.loop(0, columns, 1, entry)

    def block(first: Int, wide: int) -> None:
        for y in range(wide):
            here, others = e.add(first, y), range(y + 1, wide)

            square, *along = products(here, [e.add(first, z) for z in others])
            length, inverse = _pivot(e, square, level, lengths.load(e, here, 0))
            out.store(e, length, here, here)
            parts = [e.fmul(x, inverse) for x in along]
            for z, part in zip(others, parts, strict=True):
                out.store(e, part, e.add(first, z), here)
                out.store(e, 0.0, here, e.add(first, z))

            below_it = [(e.add(first, z), x) for z, x in zip(others, parts, strict=True)]
            divide(here, inverse, below_it)

        # Rows of a small pivot are not quite orthogonal to those before. What is taken off along
        # one of them changes the parts along the next.
        angles: dict[tuple[int, int], Real] = {}
        if first != rows - wide:
            for y in range(1, wide):
                along = products(e.add(first, y), [e.add(first, z) for z in range(y)])[1:]
                angles.update({(z, y): x for z, x in enumerate(along)})

        def below(i: Int, high: int) -> None:
            sums = dots(e, rest, rest.mT, (i, first), (high, wide), (0, columns))
            parts: list[Real] = []
            for x in range(high):
                for y in range(wide):
                    part = sums[x * wide + y]
                    for z in range(y):
                        part = e.fma(e.neg(parts[x * wide + z]), angles[z, y], part)
                    parts.append(part)
                    out.store(e, part, e.add(i, x), e.add(first, y))
                    out.store(e, 0.0, e.add(first, y), e.add(i, x))

            def take_off(k: Int, _: object) -> None:
                units = [rest.load(e, e.add(first, y), k) for y in range(wide)]
                for x in range(high):
                    left = rest.load(e, e.add(i, x), k)
                    for y in range(wide):
                        left = e.fma(e.neg(parts[x * wide + y]), units[y], left)
                    rest.store(e, left, e.add(i, x), k)

            e.loop(0, columns, 1, take_off)

        e.pieces(rows, _BLOCK, below, e.add(first, wide))

    e.pieces(rows, _BLOCK, block)


_FEWEST_ROWS = 16
"""Least rows at which LAPACK is faster than emitted code."""


def _by_lapack(routine: Callable[[Array, Array], bool]) -> Callable[[Node], Alone | None]:
    """Return LAPACK's factor, or the exact rule's if a pivot is near rounding level."""

    def of(node: Node) -> Alone | None:
        def run(call: Call, out: Array, a: Array) -> None:
            if not routine(a, out):
                alone(node)(out, call.scalars, a)

        return run if node.shape[0] >= _FEWEST_ROWS else None

    return of


operation("lower", emit=_emit_lower, routine=_by_lapack(routines.lower_factor), growth=1.0)
operation("cholesky", emit=_emit_cholesky, routine=_by_lapack(routines.cholesky), growth=0.5)
