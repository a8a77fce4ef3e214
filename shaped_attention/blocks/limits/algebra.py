"""Operations on small matrices, each done once, and not before its result is needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from shaped_attention.blocks.limits.numbers import (
    Coefficient,
    Known,
    Point,
    added,
    identity_of,
    is_zero,
    number_at,
    test_value,
    times,
)
from shaped_attention.blocks.limits.small import KnownMatrices, Matrix, Small, key_of
from shaped_attention.libraries import torch
from shaped_attention.numerics import primitives


class Algebra(KnownMatrices):
    """Operations on small matrices."""

    def run(
        self,
        name: Hashable,
        args: tuple[Any, ...],
        function: Callable[..., Any],
        turned: bool = False,
    ) -> Matrix:
        """Return the result of an operation in primitives on matrices and numbers.

        With `turned` it may be the transpose of what is known, which saves a product.
        """
        key = key_of(name, args)
        if key not in self.results:
            tests = (
                torch.from_numpy(x.shadow) if isinstance(x, Small) else test_value(x) for x in args
            )
            fixed = all(
                x.constant if isinstance(x, Small) else not isinstance(x, Known) for x in args
            )

            def make(point: Point) -> Any:
                return function(
                    *(x.at(point) if isinstance(x, Small) else number_at(x, point) for x in args)
                )

            value, first = function(*tests).numpy(), self.count
            other = self.alike(value.T.copy()) if turned and self.alike(value) is None else None
            new = self.transposed(other) or self.known(value, None if fixed else make)
            if new is not None and not fixed and new.number == first:
                new.origin = name, args
            self.results[key] = new, args  # the arguments stay alive: keys have their ids
        return self.results[key][0]

    # Linear combinations are kept as such: numbers leave every product, and equal terms are added.

    def combined(self, terms: dict[Small, Coefficient]) -> Matrix:
        """Return a linear combination of matrices that are none."""
        terms = {x: c for x, c in terms.items() if not is_zero(c)}
        if not terms:
            return None
        if len(terms) == 1:
            ((base, c),) = terms.items()
            if isinstance(c, float | int) and abs(c - 1.0) < 1e-15:
                return base
        key = ("sum", *((id(x), identity_of(c)) for x, c in terms.items()))
        if key in self.results:
            return self.results[key][0]
        shadow = sum(test_value(c) * x.shadow for x, c in terms.items())
        fixed = all(x.constant and not isinstance(c, Known) for x, c in terms.items())
        first = self.count
        found = self.known(np.asarray(shadow), None if fixed else lambda at: _sum(terms, at))
        if found is not None and not fixed and found.number == first:
            found.terms = terms
        self.results[key] = found, tuple(terms)
        return found

    def scaled(self, number: Coefficient, a: Matrix) -> Matrix:
        """Return a multiple."""
        if a is None or is_zero(number):
            return None
        return self.combined({x: times(number, c) for x, c in a.combination.items()})

    def plus(self, a: Matrix, b: Matrix) -> Matrix:
        """Return a sum."""
        if a is None or b is None:
            return b if a is None else a
        rows, columns = np.broadcast_shapes(a.shape, b.shape)
        wide, other = self._spread(a, rows, columns), self._spread(b, rows, columns)
        assert wide is not None
        assert other is not None
        terms = dict(wide.combination)
        for x, c in other.combination.items():
            terms[x] = added(terms.get(x, 0.0), c)
        return self.combined(terms)

    def total(self, *matrices: Matrix) -> Matrix:
        """Return the sum of several matrices."""
        result: Matrix = None
        for x in matrices:
            result = self.plus(result, x)
        return result

    def _linear(self, a: Matrix, function: Callable[[Small], Matrix]) -> Matrix:
        if a is None:
            return None
        if a.multiple is not None:
            return self.scaled(a.multiple[0], function(a.multiple[1]))
        return function(a)

    def transposed(self, a: Matrix) -> Matrix:
        """Return the transpose."""

        def one(x: Small) -> Matrix:
            if x.outer:
                return self.product(self.transposed(x.outer[1]), self.transposed(x.outer[0]))
            if x.origin and x.origin[0] == "mT":
                return x.origin[1][0]
            if pair := x.factors("times"):
                return self.times(*map(self.transposed, pair))
            return self.run("mT", (x,), lambda y: y.mT)

        return self._linear(a, one)

    def row_sums(self, a: Matrix) -> Matrix:
        """Return the sums of the rows, a column."""
        return None if a is None else self.product(a, self.ones(a.shape[1], 1))

    def column_sums(self, a: Matrix) -> Matrix:
        """Return the sums of the columns, a row."""
        return None if a is None else self.product(self.ones(1, a.shape[0]), a)

    def diagonal(self, a: Matrix) -> Matrix:
        """Return the diagonal, a column."""

        def one(x: Small) -> Matrix:
            if pair := x.factors("matmul"):
                return self.row_sums(self.times(pair[0], self.transposed(pair[1])))
            return self.run("diagonal", (x,), primitives.diagonal)

        return self._linear(a, one)

    def product(self, a: Matrix, b: Matrix) -> Matrix:
        """Return a matrix product."""
        if a is None or b is None:
            return None
        if a.shape[1] != b.shape[0]:  # as of a block for another number of tokens
            raise ValueError(f"matrices {a.shape} and {b.shape} have no product")
        if a.is_identity:
            return b
        if b.is_identity:
            return a
        if (1, 1) in (a.shape, b.shape):
            return self.times(a, b)
        if a.multiple is not None:
            return self.scaled(a.multiple[0], self.product(a.multiple[1], b))
        if b.multiple is not None:
            return self.scaled(b.multiple[0], self.product(a, b.multiple[1]))
        if a.terms and a.shape[1] == 1:
            return self.total(*(self.scaled(c, self.product(x, b)) for x, c in a.terms.items()))
        if a.outer:
            return self.product(a.outer[0], self.product(a.outer[1], b))
        if b.outer:
            return self.product(self.product(a, b.outer[0]), b.outer[1])
        if b.is_uniform and b.shape[1] == 1:
            return self.scaled(b.entry, self.run("row_sums", (a,), primitives.row_sums))
        if a.is_uniform and a.shape[0] == 1:
            return self.scaled(a.entry, self.run("column_sums", (b,), primitives.column_sums))
        if a.is_uniform and a.shape[1] > 1:
            column = self.ones(a.shape[0], 1)
            return self.scaled(a.entry, self.product(column, self.column_sums(b)))
        return self.run("matmul", (a, b), lambda x, y: x @ y, turned=a.shape[1] > 1)

    def times(self, a: Matrix, b: Matrix) -> Matrix:
        """Return a product entry by entry; rows and columns are repeated."""
        if a is None or b is None:
            return None
        for u, v in ((a, b), (b, a)):
            if u.multiple is not None:
                return self.scaled(u.multiple[0], self.times(u.multiple[1], v))
        if a.constant and b.constant:
            return self.run("times", (a, b), lambda x, y: x * y)
        rows, columns = np.broadcast_shapes(a.shape, b.shape)
        for u, v in ((a, b), (b, a)):
            if u.is_uniform:
                return self.scaled(u.entry, self._spread(v, rows, columns))
            if u.shape == (rows, 1) and v.shape == (1, columns) and rows > 1 < columns:
                return self.product(u, v)
            if u.outer and v.outer and u.shape == v.shape:
                pairs = zip(u.outer, v.outer, strict=True)
                return self.product(*(self.times(x, y) for x, y in pairs))
            pair = v.factors("times")
            if pair and pair[0].is_uniform and u.shape == (rows, columns):
                return self.scaled(pair[0].entry, self.times(u, pair[1]))
            if u.shape == (1, 1) and v.outer:
                return self.product(v.outer[0], self.times(u, v.outer[1]))
            if u.outer and v.shape == (rows, 1):
                return self.product(self.times(u.outer[0], v), u.outer[1])
            if u.outer and v.shape == (1, columns):
                return self.product(u.outer[0], self.times(u.outer[1], v))
        if b.constant or (not a.constant and a.number > b.number):
            a, b = b, a
        return self.run("times", (a, b), lambda x, y: x * y)

    def _spread(self, a: Small, rows: int, columns: int) -> Matrix:
        """Return a column, a row or a number as often as it fits."""
        if a.shape == (rows, columns):
            return a
        if a.multiple is not None:
            return self.scaled(a.multiple[0], self._spread(a.multiple[1], rows, columns))
        if a.shape == (1, 1) and rows + columns > 2:
            if min(rows, columns) > 1:
                return self.product(self.ones(rows, 1), self._spread(a, 1, columns))
            ones = self.ones(rows, columns)
            return self.run("times", (ones, a), lambda x, y: x * y)
        if a.shape[1] < columns:
            return self.product(a, self.ones(1, columns))
        return self.product(self.ones(rows, 1), a)

    def over(self, a: Matrix, b: Small) -> Matrix:
        """Return a quotient entry by entry."""
        return None if a is None else self.run("over", (a, b), lambda x, y: x / y)


def _sum(terms: dict[Small, Coefficient], point: Point) -> Any:
    """Return a linear combination at a point."""
    parts = []
    for x, c in terms.items():
        number, part = number_at(c, point), x.at(point)
        parts.append(part if isinstance(number, float | int) and number == 1.0 else number * part)
    return sum(parts[1:], parts[0])
