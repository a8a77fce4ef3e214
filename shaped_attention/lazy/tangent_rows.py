"""Rows with a tangent: what becomes of x + e x. to first order in e.

Value and tangent are stacked, [x; x.], as 2 r rows of one space, so that a product with a weight
matrix takes both at once, and mixing by a plain matrix A with tangent A. is mixing by

    [ A   0 ]
    [ A.  A ].

All of it consists of operations on rows, so a tape records it like any other computation. Plain
matrices, such as scores, carry their tangents as dual tensors of torch's forward mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from shaped_attention.rows.coordinates import Vectors, is_vector
from shaped_attention.rows.entries import explicitly
from shaped_attention.rows.joining import joined
from shaped_attention.rows.operators import Columns, Multiplier, Operators
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import AnySpace
from shaped_attention.rows.values import Plain


class RowsWithTangent(Operators):
    """r rows and their tangents, as 2 r rows `both`; `shape` is (samples, r, n).

    They take part in the operations of `Rows`, inside ``torch.autograd.forward_ad.dual_level()``.
    """

    def __init__(self, both: Rows) -> None:
        self.both = both

    @classmethod
    def of(cls, value: Rows, tangent: Rows) -> RowsWithTangent:
        """Return rows with a tangent, from rows of one space."""
        first = _placed(value, 0)
        return cls(first + _placed(tangent, 1))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"rows with a tangent have no {name}")

    @property
    def count(self) -> int:
        """Number r of rows."""
        return self.both.shape[1] // 2

    @property
    def shape(self) -> torch.Size:
        """Samples, rows and columns: (B, r, n)."""
        samples, _, n = self.both.shape
        return torch.Size((samples, self.count, n))

    @property
    def space(self) -> AnySpace:
        """The space of the rows."""
        return self.both.space

    @property
    def value(self) -> Rows:
        """The rows."""
        return self.both[:, : self.count]

    @property
    def tangent(self) -> Rows:
        """Their tangents."""
        return self.both[:, self.count :]

    def __getitem__(self, index: Any) -> RowsWithTangent:
        return RowsWithTangent.of(self.value[index], self.tangent[index])

    # Linear operations.

    @classmethod
    def joined(cls, rows: Sequence[Rows | RowsWithTangent], dim: int = -1) -> RowsWithTangent:
        """Put rows side by side, of which some have tangents."""
        return cls(joined([_stacked(x).both for x in rows], dim))

    def __add__(self, other: Any) -> RowsWithTangent:
        other = self._plain(other)
        if is_vector(other):
            return self.of_entries(torch.add, (self, other), {})
        if isinstance(other, Rows | RowsWithTangent):
            other = _stacked(other)
            count = max(self.count, other.count)
            return RowsWithTangent(self.repeated(count).both + other.repeated(count).both)
        if isinstance(other, Tensor):
            value, tangent = _unpacked(other)
            zero = 0.0 * self.value
            return self + RowsWithTangent.of(zero + value, zero + tangent)
        return self + (0.0 * self.value + other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> RowsWithTangent:
        other = self._plain(other)
        if isinstance(other, Vectors) or is_vector(other):
            return self.of_entries(torch.mul, (self, other), {})
        if not isinstance(other, Tensor):
            return RowsWithTangent(self.both * other)
        value, tangent = _unpacked(other)
        x = self.value
        return RowsWithTangent.of(x * value, x * tangent + self.tangent * value)

    __rmul__ = __mul__

    def __rmatmul__(self, mixing: Any) -> RowsWithTangent:
        """Mix the rows by a plain matrix."""
        value, tangent = _unpacked(self._plain(mixing))
        above = torch.cat([value, torch.zeros_like(value)], -1)
        return RowsWithTangent(torch.cat([above, torch.cat([tangent, value], -1)], -2) @ self.both)

    # To plain matrices.

    def __matmul__(self, other: Multiplier | Tensor) -> Any:
        if isinstance(other, Tensor):
            return self.of_entries(torch.matmul, (self, other), {})
        if isinstance(other, Columns) and isinstance(other.rows, RowsWithTangent):
            return other.after(self)
        product = self.both @ other
        return _dual(product) if isinstance(product, Tensor) else RowsWithTangent(product)

    def transposed_after(self, x: Rows | RowsWithTangent) -> Tensor:
        """Return x y^T, where y are these rows."""
        x = _stacked(x)
        whole = x.both @ self.both.mT
        r, q = x.count, self.count
        change = whole[:, r:, :q] + whole[:, :r, q:]
        return forward_ad.make_dual(whole[:, :r, :q], change)

    def squares(self) -> Float[Tensor, "B r 1"]:
        """Return the squared lengths of the rows."""
        r = self.count
        products = self.value @ self.both.mT
        lengths, changes = (products[..., i : i + r].diagonal(dim1=1, dim2=2) for i in (0, r))
        return forward_ad.make_dual(lengths[..., None], 2.0 * changes[..., None])

    def mean(self, dim: int = -1, keepdim: bool = True) -> Float[Tensor, "B r 1"]:
        """Return the means of the entries of each row."""
        return _dual(self.both.mean(dim, keepdim))

    def entries(self) -> Float[Tensor, "B r n"]:
        """Return the entries, a plain matrix; the space becomes explicit."""
        return _dual(self.both.entries())

    def of_entries(
        self, function: Callable[..., Tensor], args: Sequence[Any], named: dict[str, Any]
    ) -> RowsWithTangent:
        """Apply a function of entries, in torch, to operands of which some are rows."""
        operands: list[Any] = []
        pack: list[Callable[[Any, Any], Any]] = []
        for x in args:
            if isinstance(x, Rows | RowsWithTangent):
                operands += [_stacked(x).both, None]
                pack.append(lambda both, _: _dual(both))
            elif isinstance(x, Tensor):
                operands += _unpacked(x)
                pack.append(forward_ad.make_dual)
            else:
                operands += [x, None]
                pack.append(lambda plain, _: plain)

        def with_tangent(*flat: Any) -> Tensor:
            pairs = zip(pack, flat[::2], flat[1::2], strict=True)
            result = function(*(make(x, y) for make, x, y in pairs), **named)
            return torch.cat(_unpacked(result), dim=-2)

        return RowsWithTangent(explicitly(with_tangent, *operands))

    def summands(self, first: int, last: int) -> RowsWithTangent:
        """Return the columns of whole parts of a direct sum."""
        return RowsWithTangent(self.both.summands(first, last))


def has_tangent(plain: Plain) -> bool:
    """Return whether a plain matrix has a tangent."""
    return isinstance(plain, Tensor) and forward_ad.unpack_dual(plain).tangent is not None


def _unpacked(plain: Tensor) -> tuple[Tensor, Tensor]:
    """Return a plain matrix and its tangent."""
    value, tangent = forward_ad.unpack_dual(plain)
    return value, torch.zeros_like(value) if tangent is None else tangent


def _dual(both: Tensor) -> Tensor:
    """Return the first half of the rows of a matrix, with the second as tangent."""
    value, tangent = both.chunk(2, dim=-2)
    return forward_ad.make_dual(value, tangent)


def _stacked(x: Rows | RowsWithTangent) -> RowsWithTangent:
    """Return rows as they are with a tangent, or with the tangent 0."""
    return x if isinstance(x, RowsWithTangent) else RowsWithTangent(_placed(x, 0))


def _placed(rows: Rows, half: int) -> Rows:
    """Return twice as many rows, zero in the other half."""
    source, r = rows.space.source, rows.shape[1]
    whole = torch.eye(2 * r, dtype=source.dtype, device=source.device)
    return whole[:, half * r : (half + 1) * r] @ rows
