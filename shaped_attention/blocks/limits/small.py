"""Small matrices whose entries depend on V, each with its value at one random test point.

Whether a matrix is zero, the identity or known already is decided by its value at the test point,
its shadow, so that no algebra of symbols is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.limits.numbers import Coefficient, Point

Array = NDArray[np.float64]


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
