"""Operands that extend a matrix and have their own rule for every primitive.

The primitives and the matrices of a trace know such operands only through this module, so the rules
(`tangents`) can themselves be written in primitives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Carrier(ABC):
    """An operand that carries something alongside its matrix, such as `tangents.Dual`.

    It supports the notation of matrices (see `primitives`), also with a matrix or number on the
    left.
    """

    __array_ufunc__ = None

    @abstractmethod
    def rule(self, primitive: Callable[..., Any]) -> Callable[..., Carrier]:
        """Return the replacement of a primitive; it has the same arguments.

        Raises
        ------
        ValueError
            If there is no such rule.
        """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""

    @property
    @abstractmethod
    def mT(self) -> Carrier:
        """The transpose."""

    @abstractmethod
    def __matmul__(self, other: Any) -> Carrier: ...

    @abstractmethod
    def __rmatmul__(self, other: Any) -> Carrier: ...

    @abstractmethod
    def __add__(self, other: Any) -> Carrier: ...

    @abstractmethod
    def __mul__(self, other: Any) -> Carrier: ...

    @abstractmethod
    def __truediv__(self, other: Any) -> Carrier: ...

    @abstractmethod
    def __rtruediv__(self, other: Any) -> Carrier: ...

    def __radd__(self, other: Any) -> Carrier:
        return self + other

    def __rmul__(self, other: Any) -> Carrier:
        return self * other

    def __neg__(self) -> Carrier:
        return self * -1.0

    def __sub__(self, other: Any) -> Carrier:
        return self + (-1.0) * other

    def __rsub__(self, other: Any) -> Carrier:
        return self * -1.0 + other

    def __bool__(self) -> bool:
        raise TypeError("a description may branch on sizes, never on entries of a matrix")
