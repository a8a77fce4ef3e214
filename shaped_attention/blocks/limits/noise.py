"""Noise: sums of terms that are linear in Gaussian matrices.

A term is c P core Q, where the core is S or the diagonal matrix of the row sums of S, and
S = a o (L Z R^T), with Z or Z^T. Z has independent N(0, 1) entries, or is symmetric with variance 1
off the diagonal and 2 on it. `covariations` has their quadratic covariations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shaped_attention.blocks.limits.algebra import Algebra
from shaped_attention.blocks.limits.numbers import (
    Coefficient,
    LimitError,
    Point,
    identity_of,
    is_zero,
    number_at,
    times,
)
from shaped_attention.blocks.limits.small import Matrix, Small
from shaped_attention.numerics.primitives import row_sums

MIXED = (
    "a function of the entries of scores that were weighted and mixed over tokens has no formula "
    "in products of matrices"
)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian matrix (rows, columns)."""

    rows: int
    columns: int
    symmetric: bool = False


@dataclass(frozen=True, eq=False)
class Term:
    """number formula left core right (see the module); None for a factor is the identity.

    Attributes
    ----------
    z, L, R, flipped
        S = weight o (L Z R^T), with Z^T if it is flipped.
    weight
        Weight of the entries, or None.
    summed
        Whether the core is the diagonal matrix of the row sums of S.
    number, formula
        The coefficient; numbers are kept apart, so that they can be added.
    """

    z: Gaussian
    L: Small
    R: Small
    shape: tuple[int, int]
    flipped: bool = False
    weight: Small | None = None
    summed: bool = False
    left: Small | None = None
    right: Small | None = None
    number: float = 1.0
    formula: Any = 1.0

    def scaled(self, c: Coefficient) -> Term:
        """Return a multiple."""
        if isinstance(c, float | int):
            return replace(self, number=self.number * c)
        return replace(self, formula=c if _is_one(self.formula) else self.formula * c)

    @property
    def coefficient(self) -> Any:
        """The number times the formula."""
        return times(self.number, self.formula)

    @property
    def form(self) -> tuple[Any, ...]:
        """What distinguishes it from others, besides Gaussian and coefficient."""
        parts = (self.L, self.R, self.weight, self.left, self.right)
        return self.flipped, self.summed, *(x and x.number for x in parts)


def _is_one(c: Any) -> bool:
    return isinstance(c, float | int) and c == 1.0


class Noise:
    """A sum of terms of one shape."""

    def __init__(self, algebra: Algebra, terms: Iterable[Term] = ()) -> None:
        self.algebra = algebra
        merged: dict[Any, Term] = {}
        for term in map(self._tidied, terms):
            key = (term.z, term.form, identity_of(term.formula))
            if key in merged:
                term = replace(term, number=merged[key].number + term.number)
            merged[key] = term
        self.terms = list(self._joined(x for x in merged.values() if x.number != 0.0))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def _tidied(self, x: Term) -> Term:
        """Return an equal term in a simpler form."""
        a = self.algebra
        if x.weight is not None and x.weight.is_uniform:
            x = replace(x.scaled(x.weight.entry), weight=None)
        weighted = x.weight is not None or x.summed
        if weighted and x.R.constant and len(x.R.shadow) > 1 and _equal_rows(x.R):
            # S = s 1^T: then a o S = diag(s) a, and the row sums of a o S are s o rowsum a.
            weight = weight_of(a, x)
            sums, first = a.row_sums(weight), a.constant(x.R.shadow[:1])
            even = sums is not None and sums.is_uniform
            assert first is not None
            if x.summed:
                whole = even and sums is not None and sums.entry == 1.0
                x = replace(x, R=first, weight=None if whole else sums)
            elif even:
                right = weight if x.right is None else a.product(weight, x.right)
                x = replace(x, R=first, weight=None, summed=True, right=right)
        repeated = x.right is not None and x.right.constant and _equal_rows(x.right)
        if x.summed and x.weight is None and x.right is not None and repeated:
            # diag(S 1) 1 q^T = L Z (q (R^T 1)^T)^T
            R = a.product(a.constant(x.right.shadow[:1].T), a.column_sums(x.R))
            assert R is not None
            x = replace(x, summed=False, right=None, R=R)
        if not x.summed and x.weight is None:
            L = x.L if x.left is None else a.product(x.left, x.L)
            R = x.R if x.right is None else a.product(a.transposed(x.right), x.R)
            if L is None or R is None:
                return replace(x, number=0.0)
            return replace(x, L=L, R=R, left=None, right=None)
        ones = x.right is not None and x.right.shape[1] == 1 and x.right.is_uniform
        if not x.summed and x.right is not None and ones and x.right.entry == 1.0:
            return replace(x, summed=True)
        return x

    def _joined(self, terms: Iterable[Term]) -> Iterable[Term]:
        """Add L Z R_1^T and L Z R_2^T."""
        groups: dict[Any, list[Term]] = defaultdict(list)
        for x in terms:
            for side in ("L", "R"):
                multiple = getattr(x, side).multiple
                if multiple is not None:
                    x = replace(x, **{side: multiple[1]}).scaled(multiple[0])
            if x.weight is not None or x.summed:
                yield x
            else:
                groups[x.z, x.flipped, x.L.number, identity_of(x.formula)].append(x)
        for same in groups.values():
            R: Matrix = None
            for x in same:
                R = self.algebra.plus(R, self.algebra.scaled(x.number / same[0].number, x.R))
            if R is not None:
                yield replace(same[0], R=R)

    def each(self, function: Callable[[Term], Term]) -> Noise:
        """Return the sum of a function of each term."""
        return Noise(self.algebra, [function(x) for x in self.terms])

    def plus(self, other: Noise) -> Noise:
        """Return a sum."""
        return Noise(self.algebra, [*self.terms, *other.terms])

    def scaled(self, c: Coefficient) -> Noise:
        """Return a multiple."""
        return Noise(self.algebra) if is_zero(c) else self.each(lambda x: x.scaled(c))

    def multiplied(self, left: Matrix, right: Matrix) -> Noise:
        """Return ``left N right``."""
        a = self.algebra
        if left is None or right is None:
            return Noise(a)

        def one(x: Term) -> Term:
            before = left if x.left is None else a.product(left, x.left)
            after = right if x.right is None else a.product(x.right, right)
            if before is None or after is None:
                return replace(x, number=0.0)
            return replace(
                x, left=None if before.is_identity else before,
                right=None if after.is_identity else after,
                shape=(left.shape[0], right.shape[1]),
            )  # fmt: skip

        return self.each(one)

    def left(self, matrix: Matrix) -> Noise:
        """Return ``matrix N``."""
        if matrix is None or not self.terms:
            return Noise(self.algebra)
        return self.multiplied(matrix, self.algebra.identity(self.terms[0].shape[1]))

    def right(self, matrix: Matrix) -> Noise:
        """Return ``N matrix``."""
        if matrix is None or not self.terms:
            return Noise(self.algebra)
        return self.multiplied(self.algebra.identity(self.terms[0].shape[0]), matrix)

    def transposed(self) -> Noise:
        """Return the transpose."""
        a = self.algebra

        def one(x: Term) -> Term:
            x = replace(
                x, left=a.transposed(x.right), right=a.transposed(x.left), shape=x.shape[::-1]
            )
            if x.summed:
                return x
            flipped = not x.flipped and not x.z.symmetric
            return replace(x, L=x.R, R=x.L, weight=a.transposed(x.weight), flipped=flipped)

        return self.each(one)

    def times(self, matrix: Matrix) -> Noise:
        """Return ``matrix o N``, for a matrix, a column, a row or a number (1, 1)."""
        if matrix is None:
            return Noise(self.algebra)
        if matrix.multiple is not None:
            return self.times(matrix.multiple[1]).scaled(matrix.multiple[0])
        if matrix.is_uniform and all(
            np.broadcast_shapes(x.shape, matrix.shape) == x.shape for x in self.terms
        ):
            return self.scaled(matrix.entry)
        return self.each(lambda x: self._weighted(x, matrix))

    def _weighted(self, x: Term, matrix: Small) -> Term:
        a, column, row = self.algebra, matrix.shape[1] == 1, matrix.shape[0] == 1

        def of(name: str, u: Matrix, v: Matrix) -> Term:
            found = a.times(u, v)
            parts: dict[str, Any] = {name: found}
            return replace(x, number=0.0) if found is None else replace(x, **parts)

        if x.shape[1] == 1 and not column:
            # A column of noise times a matrix.
            return replace(as_diagonal(a, x), right=matrix, shape=matrix.shape)
        if x.shape[0] == 1 and not row:
            raise LimitError("a row of noise times a matrix has no rule: transpose it")
        bare = x.left is None and x.right is None and not x.summed
        if bare and x.weight is None and column:
            return of("L", x.L, matrix)
        if bare and x.weight is None and row:
            return of("R", x.R, a.transposed(matrix))
        if bare or (column and x.left is None):
            return of("weight", weight_of(a, x), matrix)
        if column:
            return of("left", x.left, matrix)
        if row and x.right is not None:
            return of("right", x.right, matrix)
        if x.summed and x.left is None:
            right = a.identity(x.L.shape[0]) if x.right is None else x.right
            return of("right", right, matrix)
        raise LimitError(MIXED)

    def trace(self) -> Noise:
        """Return the trace, a number (1, 1): that of P S Q is the sum of S o (Q P)^T."""
        a = self.algebra

        def one(x: Term) -> Term:
            around = x.right if x.left is None else x.left
            if x.left is not None and x.right is not None:
                around = a.product(x.right, x.left)
            row = a.ones(1, x.L.shape[0])
            return replace(self._row_sums(x, around), left=row, shape=(1, 1))

        return self.each(one)

    def diagonal(self) -> Noise:
        """Return the diagonal of a square noise, also of one that was multiplied, a column."""

        def one(x: Term) -> Term:
            if x.left is not None:
                raise LimitError(MIXED)
            return replace(self._row_sums(x, x.right), shape=(x.shape[0], 1))

        return self.each(one)

    def _row_sums(self, x: Term, around: Matrix) -> Term:
        """Return the row sums of S o Q^T, or of S o diag Q where S is summed; None is I."""
        a, size = self.algebra, x.L.shape[0]
        if x.summed:
            over = a.ones(size, 1) if around is None else a.diagonal(around)
        else:
            over = a.identity(size) if around is None else a.transposed(around)
        weight = a.times(weight_of(a, x), over)
        number = 0.0 if weight is None else x.number
        return replace(x, weight=weight, summed=True, right=a.ones(size, 1), number=number)

    def columns_as_diagonals(self) -> Noise:
        """Return a column of noise as the diagonal matrix of its entries."""
        return self.each(lambda x: as_diagonal(self.algebra, x))


def _equal_rows(x: Small) -> bool:
    return bool(np.ptp(x.shadow, axis=0).max() == 0.0)


def weight_of(a: Algebra, x: Term) -> Small:
    """Return the weight of the entries, ones if there is none."""
    return a.ones(x.L.shape[0], x.R.shape[0]) if x.weight is None else x.weight


def as_diagonal(a: Algebra, x: Term) -> Term:
    """Return a column of noise as the diagonal matrix of its entries."""
    square = (x.shape[0], x.shape[0])
    if x.shape[1] == 1 and x.summed and x.left is None:
        over = a.ones(x.shape[0], 1) if x.right is None else a.row_sums(x.right)
        weight = a.times(weight_of(a, x), over)
        number = 0.0 if weight is None else x.number
        return replace(x, weight=weight, right=None, shape=square, number=number)
    if x.shape[1] == 1 and not x.summed and x.weight is None and x.left is None:
        return replace(x, summed=True, right=None, shape=square)
    raise LimitError(MIXED)


def gathered(noise: Noise) -> Noise:
    """Return a noise of the same law: equal forms in independent Gaussians become one."""
    by_gaussian: dict[Gaussian, list[Term]] = defaultdict(list)
    for x in noise.terms:
        by_gaussian[x.z].append(x)
    alike: dict[Any, list[list[Term]]] = defaultdict(list)
    for z, terms in by_gaussian.items():
        form = sorted(
            (str(x.form), str(identity_of(x.formula)), round(x.number / terms[0].number, 12))
            for x in terms
        )
        alike[z.rows, z.columns, z.symmetric, str(form)].append(terms)
    kept: list[Term] = []
    for groups in alike.values():
        weight = sum(terms[0].number ** 2 for terms in groups) ** 0.5 / abs(groups[0][0].number)
        kept += [x.scaled(weight) for x in groups[0]]
    return Noise(noise.algebra, kept)


def gaussians(noise: Noise) -> list[Gaussian]:
    """Return the Gaussian matrices of a noise, in their order."""
    return list(dict.fromkeys(x.z for x in noise.terms))


def sampled(noise: Noise, increments: dict[Gaussian, Any], point: Point) -> Any:
    """Return the noise for given increments."""
    algebra, parts = noise.algebra, []
    for x in noise.terms:
        core = increments[x.z].mT if x.flipped else increments[x.z]
        core = core if x.L.is_identity else x.L.at(point) @ core
        core = core if x.R.is_identity else core @ x.R.at(point).mT
        core = core if x.weight is None else x.weight.at(point) * core
        if x.summed:
            right = algebra.identity(x.L.shape[0]) if x.right is None else x.right
            core = row_sums(core) * right.at(point)
        elif x.right is not None:
            core = core @ x.right.at(point)
        core = core if x.left is None else x.left.at(point) @ core
        parts.append(number_at(x.coefficient, point) * core)
    return sum(parts[1:], parts[0])
