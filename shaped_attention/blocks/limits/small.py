"""Small matrices whose entries depend on V, each with its value at one random test point.

Whether a matrix is zero, the identity or known already is decided by its value at the test point,
its shadow, so that no algebra of symbols is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.limits.numbers import (
    OUTSIDE,
    Coefficient,
    LimitError,
    Point,
    identity_of,
)

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
    terms
        The linear combination of other matrices that it is, or None.
    origin
        The operation that it is the result of otherwise, and its arguments, or None.
    """

    __slots__ = ("_make", "number", "origin", "shadow", "terms")

    def __init__(
        self, shadow: Array, make: Callable[[Point], Any] | None = None, number: int = -1
    ) -> None:
        self.shadow, self._make, self.number = shadow, make, number
        self.terms: dict[Small, Coefficient] | None = None
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
    def combination(self) -> dict[Small, Coefficient]:
        """The matrix as a linear combination, of itself if it is none."""
        return {self: 1.0} if self.terms is None else self.terms

    @property
    def multiple(self) -> tuple[Coefficient, Small] | None:
        """A number and a matrix of which it is the product, or None."""
        if self.terms is None or len(self.terms) > 1:
            return None
        ((base, c),) = self.terms.items()
        return c, base

    def factors(self, name: str) -> tuple[Small, Small] | None:
        """Return the factors of a product, "matmul" or "times"; None if it is none."""
        return self.origin[1] if self.origin and self.origin[0] == name else None

    @property
    def outer(self) -> tuple[Small, Small] | None:
        """A column and a row of which it is the product, or None."""
        pair = self.factors("matmul")
        return pair if pair and pair[0].shape[1] == 1 and min(self.shape) > 1 else None

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


class KnownMatrices:
    """Matrices by their shadows.

    Attributes
    ----------
    results
        What operations have given, by `key_of`, with their arguments.
    count
        The number of matrices.
    """

    def __init__(self) -> None:
        self.results: dict[Any, tuple[Matrix, tuple[Any, ...]]] = {}
        self._places: dict[Any, dict[Small, float]] = {}
        self.count = 0

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
            raise LimitError(OUTSIDE)
        if not np.abs(shadow).max(initial=0.0) > _ZERO:
            return None
        found = self.alike(shadow, make is None)
        if found is not None:
            return found
        new = Small(shadow, make, self.count)
        self._places.setdefault(shadow.shape, {})[new] = _place(shadow)
        self.count += 1
        return new

    def alike(self, shadow: Array, constant: bool = False) -> Matrix:
        """Return the matrix with this shadow, if there is one; a constant one for a constant."""
        place = _place(shadow)
        for x, other in self._places.get(shadow.shape, {}).items():
            if abs(place - other) > _SAME * (1.0 + abs(place)) or (constant and not x.constant):
                continue
            if (np.abs(x.shadow - shadow) <= _ZERO + _SAME * np.abs(shadow)).all():
                return x
        return None

    def result(self, name: Hashable, args: tuple[Any, ...], value: Matrix) -> None:
        """Say what an operation gives."""
        self.results[key_of(name, args)] = value, args


@lru_cache(maxsize=256)
def _weights(size: int) -> Array:
    """Return numbers with which a sum of entries tells matrices apart."""
    return np.random.default_rng(size).uniform(0.5, 1.5, size) / size


def _place(shadow: Array) -> float:
    return float(shadow.ravel() @ _weights(shadow.size))


def key_of(name: Any, args: tuple[Any, ...]) -> Any:
    """Return what tells an operation on arguments from others."""
    return name, *(id(x) if isinstance(x, Small) else identity_of(x) for x in args)
