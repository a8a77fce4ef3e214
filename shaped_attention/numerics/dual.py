"""Tangents: a matrix together with its derivatives in p directions.

A `Dual` is an operand of descriptions like any other: given a `Dual` as its factor, the noise of a
limit comes with its derivatives. The rules of operators are here; each primitive has one in its own
file (`operations`), written in primitives, so they hold for torch tensors and traced matrices
alike. Random numbers are plain matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import matmul, mul
from typing import Any

from shaped_attention.numerics.graph import Extended, filled


@dataclass(frozen=True, eq=False)
class Dual(Extended):
    """A matrix with p tangents.

    Attributes
    ----------
    value
        A tensor (..., m, c), or a matrix of a trace.
    tangents
        Derivatives in p directions, of the same shape; None for a derivative that is 0.

    Raises
    ------
    ValueError
        If a tangent has a different shape.
    """

    value: Any
    tangents: tuple[Any, ...]

    def __post_init__(self) -> None:
        for d in self.tangents:
            if d is not None and d.shape[-2:] != self.value.shape[-2:]:
                raise ValueError(
                    f"tangents contains a matrix of shape {tuple(d.shape)}; the value has the "
                    f"shape {tuple(self.value.shape)}"
                )

    @property
    def shape(self) -> Any:
        """The shape of the value."""
        return self.value.shape

    @property
    def mT(self) -> Dual:
        """The transpose."""
        return self.through(self.value.mT, lambda d: d.mT)

    def through(self, value: Any, rule: Callable[[Any], Any]) -> Dual:
        """Return `value` with the images of these tangents under a linear rule."""
        return Dual(value, tuple(of(d, rule) for d in self.tangents))

    def still(self, value: Any) -> Dual:
        """Return `value` with as many tangents, which are 0."""
        return Dual(value, (None,) * len(self.tangents))

    def _yields(self, other: Any) -> bool:
        """Return whether an operand has operators of its own for matrices with tangents."""
        return isinstance(other, Extended) and not isinstance(other, Dual)

    def _pairs(self, other: Any) -> tuple[Any, Iterable[tuple[Any, Any]]]:
        """Return the value of the other operand, and pairs of tangents of both."""
        if not isinstance(other, Dual):
            return other, ((d, None) for d in self.tangents)
        if len(other.tangents) != len(self.tangents):
            raise ValueError(
                f"matrices with {len(self.tangents)} and with {len(other.tangents)} tangents "
                "cannot be combined"
            )
        return other.value, zip(self.tangents, other.tangents, strict=True)

    def _times(self, other: Any, times: Callable[[Any, Any], Any]) -> Any:
        if self._yields(other):
            return NotImplemented
        a = self.value
        b, pairs = self._pairs(other)
        moved = (_sum(of(d, lambda d: times(d, b)), of(e, lambda e: times(a, e))) for d, e in pairs)
        return Dual(times(a, b), tuple(moved))

    def __matmul__(self, other: Any) -> Dual:
        return self._times(other, matmul)

    def __rmatmul__(self, other: Any) -> Dual:
        return self.through(other @ self.value, lambda d: other @ d)

    def __add__(self, other: Any) -> Dual:
        if self._yields(other):
            return NotImplemented
        b, pairs = self._pairs(other)
        value = self.value + b
        return Dual(value, tuple(of(_sum(d, e), lambda d: _spread(d, value)) for d, e in pairs))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Dual:
        return self._times(other, mul)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if self._yields(other):
            return NotImplemented
        b, pairs = self._pairs(other)
        q = self.value / b
        moved = (_sum(d, of(e, lambda e: (-1.0) * (q * e))) for d, e in pairs)
        return Dual(q, tuple(of(d, lambda d: d / b) for d in moved))

    def __rtruediv__(self, other: Any) -> Dual:
        if len(getattr(other, "shape", ())) >= 2:
            return self.still(other) / self
        return self.through(q := other / self.value, lambda d: (-1.0) * (q * (d / self.value)))


def of(tangent: Any, rule: Callable[[Any], Any]) -> Any:
    """Apply a linear rule; None, which stands for 0, remains None."""
    return None if tangent is None else rule(tangent)


def zeros(like: Any) -> Any:
    """Return zeros of the shape of a matrix."""
    return filled(like, 0.0, tuple(like.shape[-2:]))


def _sum(d: Any, e: Any) -> Any:
    if d is None or e is None:
        return e if d is None else d
    return d + e


def _spread(tangent: Any, value: Any) -> Any:
    """Repeat the rows or columns of a tangent that has fewer than the value."""
    return tangent if tangent.shape == value.shape else tangent + zeros(value)
