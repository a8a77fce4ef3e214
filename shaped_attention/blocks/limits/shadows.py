"""Small matrices whose entries depend on V, each with its value at one random test point.

Whether a matrix is zero, the identity or known already is decided by its value at the test point,
its shadow, so that no algebra of symbols is needed. Operations are done once, and not before their
result is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.limits.series import (
    Coefficient,
    Known,
    Point,
    identity_of,
    is_zero,
    number_at,
    test_value,
)
from shaped_attention.libraries import torch
from shaped_attention.numerics import primitives

Array = NDArray[np.float64]

_ZERO = 1e-13
"""Largest entry of a shadow that is rounding."""

_SAME = 1e-11
"""Relative difference of shadows of the same matrix."""


class Small:
    """A matrix.

    Attributes
    ----------
    shadow
        Its value at the test point.
    number
        Its place among all matrices.
    multiple
        A number and a matrix of which it is the product, or None.
    origin
        The operation that it is the result of, and its arguments, or None.
    """

    __slots__ = ("_make", "multiple", "number", "origin", "shadow")

    def __init__(
        self, shadow: Array, make: Callable[[Point], Any] | None = None, number: int = -1
    ) -> None:
        self.shadow, self._make, self.number = shadow, make, number
        self.multiple: tuple[Coefficient, Small] | None = None
        self.origin: tuple[Hashable, tuple[Any, ...]] | None = None

    @property
    def constant(self) -> bool:
        """Whether it does not depend on V."""
        return self._make is None

    def at(self, point: Point) -> Any:
        """Return the matrix itself: a tensor, or a matrix of a graph."""
        return point.constant(self.shadow) if self._make is None else point.value(self, self._make)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.shadow.shape
        return rows, columns

    @property
    def is_identity(self) -> bool:
        """Whether it is a constant identity matrix."""
        rows, columns = self.shape
        return self.constant and rows == columns and np.array_equal(self.shadow, np.eye(rows))

    @property
    def is_uniform(self) -> bool:
        """Whether it is a constant with equal entries."""
        return self.constant and bool(np.ptp(self.shadow) == 0.0)

    @property
    def entry(self) -> float:
        """The entry of a uniform matrix."""
        return float(self.shadow[0, 0])


Matrix: TypeAlias = Small | None
"""A matrix; None is a matrix of zeros."""


class Algebra:
    """Operations on small matrices."""

    def __init__(self) -> None:
        self._results: dict[Any, tuple[Matrix, tuple[Any, ...]]] = {}
        self._places: dict[Any, dict[Small, float]] = {}
        self._count = 0

    def constant(self, entries: Any) -> Matrix:
        """Return a matrix that does not depend on V."""
        return self.known(np.array(entries, dtype=np.float64), None)

    def zeros(self, shape: tuple[int, int]) -> Small:
        """Return zeros as a matrix, where a function needs a point."""
        return Small(np.zeros(shape))

    def identity(self, size: int) -> Small:
        """Return the identity matrix."""
        found = self.constant(np.eye(size))
        assert found is not None
        return found

    def ones(self, rows: int, columns: int) -> Small:
        """Return a matrix of ones."""
        found = self.constant(np.ones((rows, columns)))
        assert found is not None
        return found

    def known(self, shadow: Array, make: Callable[[Point], Any] | None) -> Matrix:
        """Return the matrix with this shadow that exists already, or a new one; None for zero."""
        if not np.isfinite(shadow).all():
            raise FloatingPointError("a matrix is not finite at the test point")
        if not np.abs(shadow).max(initial=0.0) > _ZERO:
            return None
        place = float(shadow.ravel() @ _weights(shadow.size))
        alike = self._places.setdefault(shadow.shape, {})
        for x, other in alike.items():
            if abs(place - other) > _SAME * (1.0 + abs(place)) or not (x.constant or make):
                continue
            if (np.abs(x.shadow - shadow) <= _ZERO + _SAME * np.abs(shadow)).all():
                return x
        new = Small(shadow, make, self._count)
        alike[new], self._count = place, self._count + 1
        return new

    def result(self, name: Hashable, args: tuple[Any, ...], value: Matrix) -> None:
        """Say what an operation gives."""
        self._results[_key(name, args)] = value, args

    def run(
        self, name: Hashable, args: tuple[Any, ...], shadow: Callable[..., Array],
        function: Callable[..., Any],
    ) -> Matrix:  # fmt: skip
        """Return the result of an operation on matrices and numbers."""
        key = _key(name, args)
        if key not in self._results:
            tests = (x.shadow if isinstance(x, Small) else test_value(x) for x in args)
            fixed = all(
                x.constant if isinstance(x, Small) else not isinstance(x, Known) for x in args
            )

            def make(point: Point) -> Any:
                return function(
                    *(x.at(point) if isinstance(x, Small) else number_at(x, point) for x in args)
                )

            new = self.known(np.asarray(shadow(*tests)), None if fixed else make)
            if new is not None and new.origin is None:
                new.origin = name, args
            self._results[key] = new, args  # the arguments stay alive: keys have their ids
        return self._results[key][0]

    def primitive(self, function: Callable[..., Any], *args: Small, name: Hashable) -> Matrix:
        """Return a function in primitives of some matrices, which `name` tells from others."""

        def shadow(*values: Array) -> Array:
            tensors = (torch.from_numpy(np.ascontiguousarray(x))[None] for x in values)
            value: Array = function(*tensors)[0].numpy()
            return value

        return self.run(name, args, shadow, function)

    # Numbers that multiply a matrix are pulled out of every linear operation.

    def scaled(self, number: Coefficient, a: Matrix) -> Matrix:
        """Return a multiple."""
        if a is None or is_zero(number):
            return None
        if a.multiple is not None:
            number, a = number * a.multiple[0], a.multiple[1]
        if isinstance(number, float | int) and abs(number - 1.0) < 1e-15:
            return a
        new = self.run("scale", (number, a), np.multiply, lambda c, x: c * x)
        if new is not None and new.multiple is None and not a.constant and new is not a:
            new.multiple = number, a
        return new

    def _linear(self, a: Matrix, function: Callable[[Small], Matrix]) -> Matrix:
        if a is None:
            return None
        if a.multiple is not None:
            return self.scaled(a.multiple[0], function(a.multiple[1]))
        return function(a)

    def transposed(self, a: Matrix) -> Matrix:
        """Return the transpose."""
        return self._linear(a, lambda x: self.run("mT", (x,), lambda y: y.T.copy(), lambda y: y.mT))

    def row_sums(self, a: Matrix) -> Matrix:
        """Return the sums of the rows, a column."""
        return self._linear(
            a,
            lambda x: self.run(
                "row_sums", (x,), lambda y: y.sum(1, keepdims=True), primitives.row_sums
            ),
        )

    def column_sums(self, a: Matrix) -> Matrix:
        """Return the sums of the columns, a row."""
        return self._linear(
            a,
            lambda x: self.run(
                "column_sums", (x,), lambda y: y.sum(0, keepdims=True), primitives.column_sums
            ),
        )

    def diagonal(self, a: Matrix) -> Matrix:
        """Return the diagonal, a column."""
        if a is not None and a.origin is not None and a.origin[0] == "matmul":
            x, y = a.origin[1]
            return self.row_sums(self.times(x, self.transposed(y)))
        return self._linear(
            a,
            lambda x: self.run(
                "diagonal", (x,), lambda y: np.diag(y)[:, None].copy(), primitives.diagonal
            ),
        )

    def plus(self, a: Matrix, b: Matrix) -> Matrix:
        """Return a sum."""
        if a is None or b is None:
            return b if a is None else a
        (c, x), (d, y) = a.multiple or (1.0, a), b.multiple or (1.0, b)
        if x is y and not x.constant:
            return self.scaled(c + d, x)
        return self.run("add", (a, b), np.add, lambda x, y: x + y)

    def total(self, *matrices: Matrix) -> Matrix:
        """Return the sum of several matrices."""
        result: Matrix = None
        for x in matrices:
            result = self.plus(result, x)
        return result

    def product(self, a: Matrix, b: Matrix) -> Matrix:
        """Return a matrix product."""
        if a is None or b is None:
            return None
        if a.is_identity:
            return b
        if b.is_identity:
            return a
        if b.is_uniform and b.shape[1] == 1:
            return self.scaled(b.entry, self.row_sums(a))
        if a.is_uniform and a.shape[0] == 1:
            return self.scaled(a.entry, self.column_sums(b))
        if a.is_uniform and a.shape[1] > 1:
            column = self.ones(a.shape[0], 1)
            return self.scaled(a.entry, self.product(column, self.column_sums(b)))
        if b.is_uniform and b.shape[0] > 1:
            row = self.ones(1, b.shape[1])
            return self.scaled(b.entry, self.product(self.row_sums(a), row))
        if a.multiple is not None:
            return self.scaled(a.multiple[0], self.product(a.multiple[1], b))
        if b.multiple is not None:
            return self.scaled(b.multiple[0], self.product(a, b.multiple[1]))
        return self.run("matmul", (a, b), np.matmul, lambda x, y: x @ y)

    def times(self, a: Matrix, b: Matrix) -> Matrix:
        """Return a product entry by entry; rows and columns are repeated."""
        if a is None or b is None:
            return None
        for u, v in ((a, b), (b, a)):
            if u.is_uniform and np.broadcast_shapes(u.shape, v.shape) == v.shape:
                return self.scaled(u.entry, v)
        for u, v in ((a, b), (b, a)):
            if u.multiple is not None:
                return self.scaled(u.multiple[0], self.times(u.multiple[1], v))
        if not (a.constant and b.constant) and a.number > b.number:
            a, b = b, a
        return self.run("times", (a, b), np.multiply, lambda x, y: x * y)

    def over(self, a: Matrix, b: Small) -> Matrix:
        """Return a quotient entry by entry."""
        return None if a is None else self.run("over", (a, b), np.divide, lambda x, y: x / y)


@lru_cache(maxsize=256)
def _weights(size: int) -> Array:
    """Return numbers with which a sum of entries tells matrices apart."""
    return np.random.default_rng(size).uniform(0.5, 1.5, size) / size


def _key(name: Any, args: tuple[Any, ...]) -> Any:
    return name, *(id(x) if isinstance(x, Small) else identity_of(x) for x in args)
