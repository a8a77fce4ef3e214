"""Rows: vectors of a space, as coordinates, with the operations that stay exact.

x + y, 2.0 * x, s * x          rows of one space; s a number, or a factor of each row (B, r, 1)
A @ x                          A a plain matrix (B, q, r), or (q, r)
x @ y.mT                       a plain matrix (B, r, q)
x @ W, g @ W.T                 W a `Matrix`
x[:, 1:3], x[:, [0, 2]]        some of the rows
x.squares(), x.mean()          plain columns (B, r, 1)
torch.cat([x, y], dim=1)       rows below each other
torch.cat([x, y], dim=-1)      rows of the direct sum
gelu(x), x * y, x @ A          functions of entries, as x.entries(): the space becomes explicit
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, matmul, mul, truediv
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import shown
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.primitives import column_sums, row_squares, row_sums, sqrt
from shaped_attention.numerics.scalars import Scalar
from shaped_attention.rows.coordinates import (
    Coordinates,
    Parts,
    Vectors,
    aligned,
    inner,
    is_vector,
    pairs,
    total,
    without_graph,
)
from shaped_attention.rows.entries import explicit_space, explicitly, reciprocal, rsqrt_or_one
from shaped_attention.rows.joining import summands
from shaped_attention.rows.spaces import unify
from shaped_attention.rows.tape import add_gradient, drawn_later, give, leaf
from shaped_attention.rows.torch_functions import of_rows
from shaped_attention.rows.values import Plain, differentiable


class Multiplier(Protocol):
    """What rows can be multiplied by: a matrix, its transpose, or the transpose of rows."""

    def after(self, x: Any) -> Any:
        """Return the product of rows with it."""


class Operators(Vectors):
    """What rows and rows with a tangent have in common."""

    def __truediv__(self: Any, other: Any) -> Any:
        if isinstance(other, Vectors):
            return explicitly(truediv, self, other)
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
            raise ValueError(
                f"the first dimension of a tensor that is combined with rows must be 1, or the "
                f"number of samples, {source.samples}; got shape {tuple(value.shape)}"
            )
        return value

    def norm(self: Any) -> Float[Tensor, "B r 1"]:
        """Return the lengths of the rows."""
        lengths: Tensor = sqrt(self.squares())
        return lengths

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), named: Any = None
    ) -> Any:
        return of_rows(function, args, dict(named or {}))

    def run_primitive(self: Any, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Run one of the primitives in which blocks are written (`numerics.primitives`)."""
        name = function.__name__
        if name == "row_squares":
            return self.squares()
        if name == "constant":
            return self._plain(np.asarray(args[0], dtype=np.float64))
        if name == "unit_rows":
            return self * rsqrt_or_one(self.squares())
        if name == "concatenate":
            return torch.cat(args[0], dim=-1)
        if name == "columns" and len(tuple(self.space)) > 1:
            return self.summands(args[1], args[2])
        if name == "columns":
            return explicitly(function, *args)
        return explicitly(function, *args, **named)

    def new_full(self: Any, size: Sequence[int], value: float) -> Tensor:
        """Return a plain matrix of equal entries, as tensors do."""
        return self.space.source.constant(np.full(tuple(size)[-2:], value))


class Rows(Operators, Coordinates):
    """r vectors of a space for each sample; `shape` is (samples, r, n).

    They are made by `Space.normal`, by `Space.rows` and by operations.
    """

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        entrywise = (
            f"; for a function of single entries call torch.{name}(x)"
            if hasattr(torch, name)
            else ""
        )
        raise AttributeError(
            f"rows have no {name}, since most of their entries are never drawn; "
            f"use x.entries().{name}, which draws them all{entrywise}"
        )

    def __getitem__(self, index: Any) -> Rows:
        match index:
            case (slice(start=None, stop=None, step=None), slice() | list() as chosen):
                return self.__rmatmul__(np.eye(self.shape[1])[chosen])
        raise ValueError(
            "rows are selected by x[:, 1:3] or x[:, [0, 2]]; to select entries or samples, index "
            "x.entries()"
        )

    # Linear operations.

    def _linear(
        self,
        operands: Sequence[Rows],
        count: int,
        function: Callable[..., Plain],
        rule: Callable[[Rows], None],
        needed: bool = False,
    ) -> Rows:
        """Return rows of this space that a linear function of each part's coordinates gives."""
        needs = needed or any(x.needs_gradient for x in operands)

        def make() -> Parts:
            return tuple([function(*parts) for parts in zip(*aligned(operands), strict=True)])

        return drawn_later(Rows, self.space, count, make, rule, needs)

    def __add__(self, other: Any) -> Rows:
        other = self._plain(other)
        if not isinstance(other, Rows | Tensor | Matrix | Scalar | int | float | np.number):
            return NotImplemented
        if isinstance(other, int | float) and other == 0.0:
            return self
        if is_vector(other):
            return explicitly(add, self, other)
        if not isinstance(other, Rows):
            return self + self._constant(other)
        self.space = other.space = unify(self.space, other.space)
        ours, theirs = self.shape[1], other.shape[1]

        def rule(g: Rows) -> None:
            add_gradient(self, g.summed(ours))
            add_gradient(other, g.summed(theirs))

        return self._linear([self, other], max(ours, theirs), add, rule)

    def _constant(self, column: Any) -> Rows:
        """Return the vectors with equal entries, from a number or a column (B, r, 1)."""
        if isinstance(column, Tensor | Matrix) and len(column.shape) > 1 and column.shape[-1] != 1:
            raise ValueError(
                "only rows, or one number per row, can be added to rows; got shape "
                f"{tuple(column.shape)}; Space.rows makes rows of a tensor"
            )
        one = Rows(self.space, tuple(s.ones() * s.n**0.5 for s in self.space))
        if not isinstance(column, Tensor | Matrix):
            return column * one
        if isinstance(column, Tensor):
            return column.expand(self.shape[0], self.shape[1], 1) @ one
        return column @ one

    def summed(self, count: int) -> Rows:
        """Return the sum of all rows if `count` is 1, as for rows that were broadcast."""
        if count == self.shape[1]:
            return self
        return Rows(self.space, tuple(column_sums(part) for part in self.parts))

    def __mul__(self, other: Any) -> Rows:
        other = self._plain(other)
        if not isinstance(other, Rows | Tensor | Matrix | Scalar | int | float | np.number):
            return NotImplemented
        if isinstance(other, Rows) or is_vector(other):
            return explicitly(mul, self, other)
        if isinstance(other, Tensor | Matrix) and len(other.shape) > 1 and other.shape[-1] != 1:
            raise ValueError(
                f"rows can only be scaled by one number per row; got shape {tuple(other.shape)}"
            )

        def rule(g: Rows) -> None:
            if differentiable(other):
                give(other, total([row_sums(a * b) for a, b in pairs(g, self)]))
            add_gradient(self, g * without_graph(other))

        needed = differentiable(other)
        plain = without_graph(other)
        return self._linear([self], self.shape[1], lambda part: part * plain, rule, needed)

    __rmul__ = __mul__

    __radd__ = __add__

    def __rmatmul__(self, mixing: Any) -> Rows:
        """Mix the rows by a plain matrix."""
        mixing = self._plain(mixing)
        if not isinstance(mixing, Tensor | Matrix):
            raise ValueError(
                "only plain matrices mix rows (A @ x); a Matrix W multiplies them as x @ W"
            )
        if len(mixing.shape) < 2 or mixing.shape[-1] != self.shape[1]:
            raise ValueError(
                f"a matrix that mixes {self.shape[1]} rows must have {self.shape[1]} columns; got "
                f"shape {tuple(mixing.shape)}"
            )
        plain = without_graph(mixing)

        def rule(g: Rows) -> None:
            if differentiable(mixing):
                give(mixing, inner(g, self))
            add_gradient(self, plain.mT @ g)

        return self._linear(
            [self], mixing.shape[-2], lambda part: plain @ part, rule, differentiable(mixing)
        )

    # From rows to plain matrices.

    @property
    def mT(self) -> Columns:
        """The transpose, for ``x @ y.mT``."""
        return Columns(self)

    T = mT

    def __matmul__(self, other: Multiplier | Tensor) -> Any:
        other = self._plain(other)
        if isinstance(other, Tensor | Matrix):
            return explicitly(matmul, self, other)
        if not hasattr(other, "after"):
            raise ValueError(
                "rows are multiplied by a Matrix W (x @ W, x @ W.T), by the transpose of rows "
                f"(x @ y.mT) or by a tensor; got {shown(other)}"
            )
        return other.after(self)

    def summands(self, first: int, last: int) -> Rows:
        """Return the columns of whole parts of a direct sum."""
        return summands(self, first, last)

    def squares(self) -> Any:
        """Return the squared lengths of the rows."""
        value = total([row_squares(part) for part in self.parts])
        return leaf(value, self.needs_gradient, lambda g: add_gradient(self, (2.0 * g) * self))

    def mean(self, dim: int = -1, keepdim: bool = True) -> Any:
        """Return the means of the entries of each row."""
        if dim not in (-1, 2) or not keepdim:
            raise ValueError("the mean of rows is over their entries: mean(-1, keepdim=True)")
        spaces = tuple(self.space)
        n = sum(s.n for s in spaces)
        one = Rows(self.space, tuple(s.ones() * (s.n**0.5 / n) for s in spaces))
        return self @ one.mT

    def entries(self) -> Any:
        """Return the entries, a plain matrix; the space becomes explicit."""
        space = explicit_space(self)
        (value,) = self.parts
        return leaf(value, self.needs_gradient, lambda g: add_gradient(self, Rows(space, (g,))))


class Columns:
    """The transpose of rows."""

    __torch_function__ = Rows.__torch_function__

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def after(self, x: Rows) -> Any:
        """Return x y^T."""
        y = self.rows
        x.space = y.space = unify(x.space, y.space)

        def rule(g: Any) -> None:
            add_gradient(x, g @ y)
            add_gradient(y, g.mT @ x)

        return leaf(inner(x, y), x.needs_gradient or y.needs_gradient, rule)
