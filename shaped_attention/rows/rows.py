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

from shaped_attention.checks import shown
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.primitives import column_sums, row_squares, row_sums, sqrt
from shaped_attention.numerics.scalars import Scalar
from shaped_attention.rows.coordinates import (
    Coordinates,
    Parts,
    aligned,
    inner,
    is_vector,
    pairs,
    total,
)
from shaped_attention.rows.entries import explicit_space, explicitly, reciprocal
from shaped_attention.rows.hidden import Hidden
from shaped_attention.rows.primitive_functions import of_primitive
from shaped_attention.rows.spaces import AnySpace, RowsError, unify
from shaped_attention.rows.tape import (
    Rule,
    add_gradient,
    drawn_later,
    give,
    leaf,
    without_graph,
)
from shaped_attention.rows.undrawn import Linear, root_of
from shaped_attention.rows.values import Plain, differentiable, is_number, split


class Multiplier(Protocol):
    """What rows can be multiplied by: a matrix, its transpose, or the transpose of rows."""

    def after(self, x: Rows) -> Any:
        """Return the product of rows with it."""


class Rows(Coordinates):
    """r vectors of a space for each sample; `shape` is (samples, r, n).

    They are made by `Space.normal`, by `Space.rows` and by operations. `linear` are rows of which
    nothing is drawn, in terms of Gaussian matrices.
    """

    linear: Linear | Hidden | None = None
    _root: tuple[Plain, Any] | None = None

    @classmethod
    def pending(cls, space: AnySpace, count: int, linear: Linear | Hidden) -> Rows:
        """Return rows of which nothing is drawn before something decides on their space."""

        def drawn(rows: Rows) -> Parts:
            pending, rows.linear = rows.linear, None
            if isinstance(pending, Linear):
                return tuple(pending.coordinates())
            assert pending is not None
            explicit_space(rows)
            return (pending.drawn(),)

        rows = cls(space, None, count, drawn)
        rows.linear = linear
        return rows

    def root(self) -> tuple[Plain, Any]:
        """Return R and a number w with w^2 R R^T = x x^T, for a product with new weights."""
        if self._root is None:
            pending, source = self.linear, self.space.source
            root: Plain | None = None
            weight: Any = 1.0
            if isinstance(pending, Hidden) and self.is_open and source.shortens:
                root, weight = pending.gram_root(self.space.n), pending.weight
            self._root = split(root_of(self.coordinates)) if root is None else (root, weight)
        return self._root

    def settled(self) -> Rows:
        """Decide on the space, if nothing has: that of the tokens if it is as large."""
        tokens = self.space.source.tokens
        if tokens is None or not isinstance(self.linear, Linear) or not self.is_open:
            return self
        if self.space.n == tokens.n and len(self.linear.terms) <= len(tuple(tokens)):
            self.space = unify(self.space, tokens)
        return self

    def plain(self, value: Any) -> Any:
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

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), named: Any = None
    ) -> Any:
        from shaped_attention.rows.torch_functions import of_rows

        return of_rows(function, args, dict(named or {}))

    run_primitive = of_primitive

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        entrywise = f"; for a function of single entries call torch.{name}(x)"
        raise AttributeError(
            f"rows have no {name}, since most of their entries are never drawn; use "
            f"x.entries().{name}, which draws them all{entrywise if hasattr(torch, name) else ''}"
        )

    def __getitem__(self, index: Any) -> Rows:
        match index:
            case (slice(start=None, stop=None, step=None), slice() | list() as chosen):
                return self.__rmatmul__(np.eye(self.shape[1])[chosen])
        raise RowsError(
            "rows are selected by x[:, 1:3] or x[:, [0, 2]]; to select entries or samples, index "
            "x.entries()"
        )

    # Linear operations.

    def _linear(
        self,
        operands: Sequence[Rows],
        count: int,
        function: Callable[..., Plain],
        rule: Rule,
        needed: bool = False,
    ) -> Rows:
        """Return rows of this space that a linear function of each part's coordinates gives."""
        needs = needed or any(x.needs_gradient for x in operands)

        def make() -> Parts:
            return tuple([function(*parts) for parts in zip(*aligned(operands), strict=True)])

        return drawn_later(Rows, self.space, count, make, rule, needs)

    def __add__(self, other: Any) -> Rows:
        other = self.plain(other)
        if not isinstance(other, Rows | Tensor | Matrix | Scalar | int | float | np.number):
            return NotImplemented
        if isinstance(other, int | float) and other == 0.0:
            return self
        if is_vector(other):
            return explicitly(add, self, other)
        if not isinstance(other, Rows):
            if self.linear is not None and self.is_open and is_number(other):
                return explicitly(add, self, other)
            return self + self._constant(other)
        if isinstance(self.linear, Hidden) or isinstance(other.linear, Hidden):
            return explicitly(add, self, other)
        self.space = other.space = unify(self.space, other.space)
        ours, theirs = self.shape[1], other.shape[1]
        if self.linear is not None or other.linear is not None:
            return self._added(other, max(ours, theirs))

        def rule(g: Rows) -> None:
            add_gradient(self, g.summed(ours))
            add_gradient(other, g.summed(theirs))

        return self._linear([self, other], max(ours, theirs), add, rule)

    def _added(self, other: Rows, count: int) -> Rows:
        """Return the sum with rows of which at least one side is not drawn."""
        x, y = self.repeated(count), other.repeated(count)
        a, b = x.linear, y.linear
        assert not isinstance(a, Hidden)
        assert not isinstance(b, Hidden)
        if a is not None and b is not None and len(a.terms) == len(b.terms):
            return Rows.pending(self.space, count, a.plus(b))
        known, pending = (x, b) if b is not None else (y, a)
        assert pending is not None
        return Rows(self.space, tuple(pending.coordinates(known=known.parts)))

    def _constant(self, column: Any) -> Rows:
        """Return the vectors with equal entries, from a number or a column (B, r, 1)."""
        if isinstance(column, Tensor | Matrix) and len(column.shape) > 1 and column.shape[-1] != 1:
            raise RowsError(
                "only rows, or one number per row, can be added to rows; got shape "
                f"{tuple(column.shape)}; Space.rows makes rows of a tensor"
            )
        self.settled()
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

    def __mul__(self, factor: Any) -> Rows:
        other: Any = self.plain(factor)
        if not isinstance(other, Rows | Tensor | Matrix | Scalar | int | float | np.number):
            return NotImplemented
        if isinstance(other, Rows) and (self.shape[-1] == 1) != (other.shape[-1] == 1):
            many, one = (self, other) if other.shape[-1] == 1 else (other, self)
            return many * one.entries()
        if isinstance(other, Rows) or is_vector(other):
            return explicitly(mul, self, other)
        if isinstance(other, Tensor | Matrix) and len(other.shape) > 1 and other.shape[-1] != 1:
            raise RowsError(
                f"rows can only be scaled by one number per row; got shape {tuple(other.shape)}"
            )
        if self.linear is not None and is_number(other):
            return Rows.pending(self.space, self.shape[1], self.linear.scaled(other))
        if isinstance(self.linear, Linear):
            scaled = self.linear.each(lambda left: left * factor)
            return Rows.pending(self.space, self.shape[1], scaled)

        def rule(g: Rows) -> None:
            if differentiable(other):
                give(other, total([row_sums(a * b) for a, b in pairs(g, self)]))
            add_gradient(self, g * without_graph(other))

        needed = differentiable(other)
        plain = without_graph(other)
        return self._linear([self], self.shape[1], lambda part: part * plain, rule, needed)

    __rmul__ = __mul__

    __radd__ = __add__

    def __truediv__(self, other: Any) -> Rows:
        if isinstance(other, Rows):
            return explicitly(truediv, self, other)
        if isinstance(self.linear, Linear) and isinstance(other, float | int):
            # sqrt n over sqrt n is 1, but sqrt n times 1 / sqrt n need not be.
            return self.pending(self.space, self.shape[1], self.linear.over(other))
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> Rows:
        return explicitly(reciprocal, self) * other

    def __pow__(self, power: float) -> Rows:
        return explicitly(pow, self, power)

    def __rmatmul__(self, mixing: Any) -> Rows:
        """Mix the rows by a plain matrix."""
        mixing = self.plain(mixing)
        if not isinstance(mixing, Tensor | Matrix):
            raise RowsError(
                "only plain matrices mix rows (A @ x); a Matrix W multiplies them as x @ W"
            )
        if len(mixing.shape) < 2 or mixing.shape[-1] != self.shape[1]:
            raise RowsError(
                f"a matrix that mixes {self.shape[1]} rows must have {self.shape[1]} columns; got "
                f"shape {tuple(mixing.shape)}"
            )
        if self.linear is not None:
            matrix: Any = mixing
            return Rows.pending(self.space, matrix.shape[-2], self.linear.mixed(matrix))
        plain = without_graph(mixing)

        def rule(g: Rows) -> None:
            if differentiable(mixing):
                give(mixing, inner(g, self))
            add_gradient(self, plain.mT @ g)

        return self._linear(
            [self], mixing.shape[-2], lambda part: plain @ part, rule, differentiable(mixing)
        )

    def repeated(self, count: int) -> Rows:
        """Return a single row as often as asked for, or as many rows as they are."""
        return self if self.shape[1] == count else self.__rmatmul__(np.ones((count, 1)))

    @property
    def mT(self) -> Columns:
        """The transpose, for ``x @ y.mT``."""
        return Columns(self)

    T = mT

    # From rows to plain matrices.

    def __matmul__(self, other: Multiplier | Tensor) -> Any:
        other = self.plain(other)
        if isinstance(other, Tensor | Matrix):
            return explicitly(matmul, self, other)
        if not hasattr(other, "after"):
            raise RowsError(
                "rows are multiplied by a Matrix W (x @ W, x @ W.T), by the transpose of rows "
                f"(x @ y.mT) or by a tensor; got {shown(other)}"
            )
        return other.after(self)

    def transposed_after(self, x: Rows) -> Any:
        """Return x y^T, where y are these rows."""
        y = self
        x.space = y.space = unify(x.space, y.space)
        if x.space.source.shortens and x is not y:
            if isinstance(x.linear, Linear):
                return x.linear.inner(y)
            if isinstance(y.linear, Linear):
                return y.linear.inner(x).mT

        def rule(g: Any) -> None:
            add_gradient(x, g @ y)
            add_gradient(y, g.mT @ x)

        return leaf(inner(x, y), x.needs_gradient or y.needs_gradient, rule)

    def squares(self) -> Any:
        """Return the squared lengths of the rows."""
        self.settled()
        value = total([row_squares(part) for part in self.parts])
        return leaf(value, self.needs_gradient, lambda g: add_gradient(self, (2.0 * g) * self))

    def norm(self) -> Any:
        """Return the lengths of the rows."""
        return sqrt(self.squares())

    def mean(self, dim: int = -1, keepdim: bool = True) -> Any:
        """Return the means of the entries of each row."""
        if dim not in (-1, 2) or not keepdim:
            raise RowsError("the mean of rows is over their entries: mean(-1, keepdim=True)")
        spaces = tuple(self.settled().space)
        n = sum(s.n for s in spaces)
        one = Rows(self.space, tuple(s.ones() * (s.n**0.5 / n) for s in spaces))
        return self @ one.mT

    def entries(self) -> Any:
        """Return the entries, a plain matrix; the space becomes explicit."""
        space = explicit_space(self)
        (value,) = self.parts
        return leaf(value, self.needs_gradient, lambda g: add_gradient(self, Rows(space, (g,))))

    def new_full(self, size: Sequence[int], value: float) -> Tensor:
        """Return a plain matrix of equal entries, as tensors do."""
        return self.space.source.constant(np.full(tuple(size)[-2:], value))


class Columns:
    """The transpose of rows, which is multiplied by rows: ``x @ y.mT``."""

    __torch_function__ = Rows.__torch_function__

    def __init__(self, rows: Rows) -> None:
        self.rows, self.after = rows, rows.transposed_after
