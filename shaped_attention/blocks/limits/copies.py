"""Copies of the tokens that go through the same branch, each for itself.

All copies share the weights and every function of single entries, so that their rows are stacked;
what mixes tokens acts on each copy alone. The limit of two copies is that of pairs of networks with
the same weights on different tokens, from which derivatives of tokens follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import add, matmul, mul, truediv
from typing import Any

import numpy as np

from shaped_attention.blocks.limits.jets import Jet
from shaped_attention.blocks.limits.layer import Layer
from shaped_attention.blocks.limits.numbers import LimitError
from shaped_attention.blocks.limits.rows import Rows
from shaped_attention.numerics.graph import Extended


class Each(Extended):
    """A small matrix for each copy."""

    def __init__(self, values: Sequence[Jet]) -> None:
        self.values = list(values)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of each."""
        return self.values[0].shape

    def _each(self, function: Callable[..., Any], *args: Any) -> Each:
        """Return a function of arguments, some of which differ between copies."""
        several = [x.values if isinstance(x, Each) else [x] * len(self.values) for x in args]
        return Each([function(*x) for x in zip(*several, strict=True)])

    @property
    def mT(self) -> Each:
        """The transpose of each."""
        return self._each(lambda x: x.mT, self)

    def __add__(self, other: Any) -> Each:
        return self._each(add, self, other)

    def __mul__(self, other: Any) -> Any:
        return other * self if isinstance(other, CopiedRows) else self._each(mul, self, other)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, CopiedRows):
            return other.mixed(self)
        return self._each(matmul, self, other)

    def __truediv__(self, other: Any) -> Each:
        return self._each(truediv, self, other)

    def __rtruediv__(self, other: Any) -> Each:
        return self._each(truediv, other, self)

    def __rmatmul__(self, other: Any) -> Each:
        return self._each(matmul, other, self)

    def __pow__(self, power: float) -> Each:
        return self._each(pow, self, power)

    __radd__, __rmul__ = __add__, __mul__

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Each:
        """Return a primitive of each."""
        return self._each(
            lambda *x: function(*x[: len(args)], **dict(zip(named, x[len(args) :], strict=True))),
            *args, *named.values(),
        )  # fmt: skip


class CopiedRows(Extended):
    """The rows of all copies, stacked; `turn` rotates those of one copy, for inner products."""

    def __init__(
        self, stacked: Any, copies: int, turn: Callable[[Rows], Rows] = lambda x: x
    ) -> None:
        self.stacked, self.copies, self.turn = stacked, copies, turn

    @property
    def shape(self) -> tuple[int, Any]:
        """Rows of one copy, and columns."""
        rows, columns = self.stacked.shape
        return rows // self.copies, columns

    @cached_property
    def expanded(self) -> Rows:
        """The stacked rows themselves, where they are a function of the entries of others."""
        rows: Rows = self.stacked.rows() if hasattr(self.stacked, "rows") else self.stacked
        return rows

    @property
    def places(self) -> list[np.ndarray[Any, Any]]:
        """The matrices that select the rows of each copy."""
        m, _ = self.shape
        return np.split(np.eye(m * self.copies), self.copies)

    def each(self) -> list[Rows]:
        """Return the rows of each copy."""
        return [self.turn(e @ self.expanded) for e in self.places]

    def _with(self, stacked: Any) -> CopiedRows:
        return CopiedRows(stacked, self.copies)

    def mixed(self, matrix: Any) -> CopiedRows:
        """Return the product of the matrix of each copy with its rows."""
        values = matrix.values if isinstance(matrix, Each) else [matrix] * self.copies
        parts = [e.T @ (x @ (e @ self.expanded)) for e, x in zip(self.places, values, strict=True)]
        return self._with(sum(parts[1:], parts[0]))

    __rmatmul__ = mixed

    @property
    def mT(self) -> _Turned:
        """The transpose, for inner products within each copy."""
        return _Turned(self)

    def __matmul__(self, other: Any) -> Each:
        if not isinstance(other, _Turned):
            raise LimitError("rows are multiplied by project, or by x.mT of rows x")
        pairs = zip(self.each(), other.rows.each(), strict=True)
        return Each([x @ y.mT for x, y in pairs])

    def _operand(self, other: Any) -> Any:
        if isinstance(other, Each):  # a column for each copy
            parts = [e.T @ x for e, x in zip(self.places, other.values, strict=True)]
            return sum(parts[1:], parts[0])
        return other.stacked if isinstance(other, CopiedRows) else other

    def __add__(self, other: Any) -> CopiedRows:
        return self._with(self.stacked + self._operand(other))

    def __mul__(self, other: Any) -> CopiedRows:
        return self._with(self.stacked * self._operand(other))

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> CopiedRows:
        return self._with(self.stacked / self._operand(other))

    def new_full(self, size: Any, value: float) -> Any:
        """Return a small matrix of equal entries, the same for all copies."""
        return self.stacked.new_full(size, value)

    def map_entries(self, function: Callable[[Any], Any]) -> CopiedRows:
        """Return a function of the entries."""
        return self._with(self.stacked.map_entries(function))

    def mean(self, *args: Any, **named: Any) -> Any:
        """Raise LimitError, as rows do."""
        return self.stacked.mean(*args, **named)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), named: Any = None
    ) -> CopiedRows:
        """Join rows side by side."""
        rows = args[0]
        return rows[0]._with(
            Rows.__torch_function__(function, types, ([x.expanded for x in rows],), named)
        )

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return a primitive of the stacked rows."""
        name = function.__name__
        if name == "constant":
            return self.stacked.run_primitive(function, args, named)
        if name == "concatenate":
            return self._with(self.expanded.run_primitive(
                function, ([x.expanded for x in args[0]],), named
            ))  # fmt: skip
        if name == "rotate":
            return CopiedRows(self.expanded, self.copies, lambda x: function(x, *args[1:], **named))
        stacked = [x.stacked if isinstance(x, CopiedRows) else x for x in args]
        found = function(*stacked, **named)
        if isinstance(found, Jet):  # squared lengths
            return Each([e @ found for e in self.places])
        return self._with(found)


def project_copies(layer: Layer) -> Callable[..., Any]:
    """Return `Layer.project` for rows of copies."""

    def project(x: Any, *args: Any) -> Any:
        if isinstance(x, CopiedRows):
            return x._with(layer.project(x.stacked, *args))
        return layer.project(x, *args)

    return project


class _Turned:
    def __init__(self, rows: CopiedRows) -> None:
        self.rows = rows

    def __rmatmul__(self, other: Any) -> Any:
        raise LimitError("rows are multiplied by project, or by x.mT of rows x")
