"""What rows and rows with a tangent have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import truediv
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.primitives import sqrt, unit_rows
from shaped_attention.rows.coordinates import Coordinates, Vectors
from shaped_attention.rows.entries import explicitly, reciprocal, rsqrt_or_one
from shaped_attention.rows.joining import summands
from shaped_attention.rows.spaces import RowsError
from shaped_attention.rows.tape import recording
from shaped_attention.rows.undrawn import Linear


class Multiplier(Protocol):
    """What rows can be multiplied by: a matrix, its transpose, or the transpose of rows."""

    def after(self, x: Any) -> Any:
        """Return the product of rows with it."""


class Operators(Vectors):
    """What rows and rows with a tangent have in common."""

    def __truediv__(self: Any, other: Any) -> Any:
        if isinstance(other, Vectors):
            return explicitly(truediv, self, other)
        if isinstance(self.linear, Linear) and isinstance(other, float | int):
            # sqrt n over sqrt n is 1, but sqrt n times 1 / sqrt n need not be.
            return self.pending(self.space, self.shape[1], self.linear.over(other))
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> Any:
        return explicitly(reciprocal, self) * other

    def __pow__(self, power: float) -> Any:
        return explicitly(pow, self, power)

    def _plain(self: Any, value: Any) -> Any:
        """Return a plain operand, an array as a tensor; raise ValueError if samples differ."""
        source = self.space.source
        if isinstance(value, np.ndarray):
            return source.constant(value)
        if isinstance(value, Tensor) and value.dim() > 2 and len(value) not in (1, source.samples):
            raise RowsError(
                f"the first dimension of a tensor that is combined with rows must be 1, or the "
                f"number of samples, {source.samples}; got shape {tuple(value.shape)}"
            )
        return value

    @property
    def mT(self) -> Columns:
        """The transpose, for ``x @ y.mT``."""
        return Columns(self)

    T = mT

    def repeated(self: Any, count: int) -> Any:
        """Return a single row as often as asked for, or as many rows as they are."""
        return self if self.shape[1] == count else self.__rmatmul__(np.ones((count, 1)))

    def norm(self: Any) -> Float[Tensor, "B r 1"]:
        """Return the lengths of the rows."""
        return sqrt(self.squares())

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), named: Any = None
    ) -> Any:
        from shaped_attention.rows.torch_functions import of_rows

        return of_rows(function, args, dict(named or {}))

    def run_primitive(self: Any, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Run one of the primitives in which blocks are written (`numerics.primitives`)."""
        name = function.__name__
        if name == "row_squares":
            return self.squares()
        if name == "row_sums":
            return float(self.shape[-1]) * self.mean(-1, keepdim=True)
        if name == "constant":
            return self._plain(np.asarray(args[0], dtype=np.float64))
        if name == "unit_rows":
            if recording() is None and isinstance(self, Coordinates):
                return self.like(unit_rows(self.settled().coordinates))  # type: ignore[attr-defined]
            return self * rsqrt_or_one(self.squares())
        if name == "concatenate":
            return torch.cat(args[0], dim=-1)
        if name == "columns" and len(tuple(self.space)) > 1:
            return self.summands(args[1], args[2])
        if name == "columns":
            return explicitly(function, *args)
        return explicitly(function, *args, **named)

    def summands(self: Any, first: int, last: int) -> Any:
        """Return the columns of whole parts of a direct sum."""
        return summands(self, first, last)

    def new_full(self: Any, size: Sequence[int], value: float) -> Tensor:
        """Return a plain matrix of equal entries, as tensors do."""
        return self.space.source.constant(np.full(tuple(size)[-2:], value))


class Columns:
    """The transpose of rows, which is multiplied by rows: ``x @ y.mT``."""

    __torch_function__ = Operators.__torch_function__

    def __init__(self, rows: Any) -> None:
        self.rows, self.after = rows, rows.transposed_after
