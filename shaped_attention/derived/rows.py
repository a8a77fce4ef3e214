"""Rows of revealed spaces, written in primitives: what a block's `branch` computes with.

Rows hold no entries. They are a linear expression in Gaussian matrices of which nothing may be
drawn yet, one for each summand of a direct sum of spaces; in torch, in a trace or with tangents,
since everything is written in primitives. The first look decides what is drawn:

- a product ``x @ y.mT`` completes one side and draws the other in its frame; where one side is
  multiplied by several others, as keys that query heads share, it is the one that is completed;
- a further projection needs the Gram matrix alone, a root of which multiplies a new matrix;
- lengths wait until it is known in which frame the rows are;
- functions of entries wait too: if a projection follows, only Gram matrices of hidden units are
  made (`entrywise`);
- what is added to the tokens is drawn in their frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shaped_attention.derived.dispatch import of_primitive, of_torch
from shaped_attention.derived.hidden import entrywise, gram_root, waiting
from shaped_attention.derived.parts import (
    Blocks,
    Part,
    Value,
    ValuePart,
    is_column,
    is_number,
    repeated,
    same,
    scaled_part,
    total,
)
from shaped_attention.derived.products import divided, inner_product, shifted
from shaped_attention.derived.spaces import DerivationError
from shaped_attention.numerics.graph import Extended, filled
from shaped_attention.numerics.primitives import (
    columns,
    compress,
    concatenate,
    constant,
    row_squares,
    row_sums,
)
from shaped_attention.numerics.scalars import product


class Rows(Extended):
    """Vectors of a direct sum of spaces: ``value * root^power`` times the parts.

    Here root is the square root of the number of columns of a part of the tokens. Factors of it are
    counted, not multiplied, so that sqrt n cancels in ``project(x, n) / sqrt(n)``.
    """

    def __init__(
        self, reveal: Any, parts: Sequence[Part], count: int, value: Any = 1.0, power: int = 0
    ) -> None:
        self.reveal, self.parts, self.count = reveal, tuple(parts), count
        self.value, self.power = value, power
        self._root: Any = None
        self._weighted: Any = None

    @property
    def coefficient(self) -> Any:
        """The scalar factor of the parts, with the power of the root."""
        return product(self.value, self.reveal.root**self.power) if self.power else self.value

    def like(self, parts: Sequence[Part], value: Any = 1.0, power: int = 0) -> Rows:
        """Return as many rows of other parts."""
        return Rows(self.reveal, parts, self.count, value, power)

    def __repr__(self) -> str:
        return f"Rows({self.count}, {self.columns})"

    @property
    def columns(self) -> int:
        """Number of columns."""
        return sum(part.space.size for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch, rows and columns."""
        return (*self.reveal.batch, self.count, self.columns)

    def __getitem__(self, index: Any) -> Rows:
        """Return some of the rows."""
        match index:
            case (slice(start=None, stop=None, step=None), slice() | list() as chosen):
                return constant(np.eye(self.count)[chosen], self.reveal.like) @ self
        raise DerivationError(
            "rows are selected by x[:, 1:3] or x[:, [0, 2]]; single entries are never drawn"
        )

    def new_full(self, size: Sequence[int], number: float) -> Any:
        """Return a plain matrix of equal entries, as tensors do."""
        return filled(self.reveal.like, number, (size[-2], size[-1]))

    # Linear operations

    def scaled(self, power: int) -> list[Part]:
        """Return the parts with the number ``value``, but for a power of the root."""
        number = self.value
        if power != self.power:
            number = number * self.reveal.root ** (self.power - power)
        return [scaled_part(number, part) for part in self.parts]

    def __mul__(self, other: Any) -> Rows:
        if isinstance(other, Rows) and min(self.columns, other.columns) == 1:
            many, one = (self, other) if other.columns == 1 else (other, self)
            return many * one.column()
        if isinstance(other, Rows):
            return entrywise(lambda x, y: x * y, self, other)
        if is_column(other):
            return self.like([x.applied(lambda v: v * other) for x in self.parts],
                             self.value, self.power)  # fmt: skip
        if is_number(other):
            if isinstance(other, float) and other == self.reveal.width**0.5:
                weight = self.reveal.groups**0.5
                return self.like(self.parts, self.value * weight, self.power + 1)
            return self.like(self.parts, product(self.value, other), self.power)
        raise DerivationError(
            "rows are multiplied by a number, by a number for each row, or entry by entry by rows "
            f"as wide; got shape {tuple(getattr(other, 'shape', ()))}"
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Rows:
        if isinstance(other, Rows):
            return entrywise(lambda x, y: x / y, self, other)
        if isinstance(other, float | int):
            if other == self.reveal.width**0.5:
                weight = self.reveal.groups**0.5
                value = self.value if weight == 1.0 else self.value / weight
                return self.like(self.parts, value, self.power - 1)
            return self.like(self.parts, self.value / other, self.power)
        if is_column(other):
            return self.like([x.applied(lambda v: v / other) for x in self.parts],
                             self.value, self.power)  # fmt: skip
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> Rows:
        return entrywise(lambda x: other / x, self)

    def __pow__(self, power: float) -> Rows:
        return entrywise(lambda x: x**power, self)

    def __add__(self, other: Any) -> Rows:
        if not isinstance(other, Rows):
            return self._shifted(other)
        if waiting(self) or waiting(other):
            return entrywise(lambda x, y: x + y, self, other)
        a, b = of_equal_parts(self, other)
        count = max(a.count, b.count)
        value, power = a.value, a.power
        ours: Sequence[Part] = a.parts
        theirs: Sequence[Part] = b.parts
        if a.power != b.power or not same(a.value, b.value):
            value, power = 1.0, max(a.power, b.power)
            ours, theirs = a.scaled(power), b.scaled(power)
        pairs = zip(ours, theirs, strict=True)
        return Rows(self.reveal, [x.plus(y, count) for x, y in pairs], count, value, power)

    __radd__ = __add__

    def __rmatmul__(self, mixing: Any) -> Rows:
        """Mix the rows by a plain matrix."""
        parts = [part.applied(lambda v: mixing @ repeated(v, self.count)) for part in self.parts]
        return Rows(self.reveal, parts, mixing.shape[-2], self.value, self.power)

    def _shifted(self, other: Any) -> Rows:
        """Add a number, or one to each row, to all entries."""
        if isinstance(other, float | int) and other == 0.0:
            return self
        if not (is_number(other) or is_column(other)):
            raise DerivationError(
                "only rows, or one number for each row, can be added to rows; got shape "
                f"{tuple(getattr(other, 'shape', ()))}: its entries do not commute with rotations"
            )
        if is_number(other) and self.reveal.is_open(self):
            return entrywise(lambda x: x + other, self)
        rows = self.reveal.settled(self)
        if rows is not self:
            return rows._shifted(other)
        for part in self.parts:
            part.space.with_ones()

        def shift(rows: list[Blocks]) -> list[Blocks]:
            return [shifted(part, blocks, other, *self._units(part))
                    for part, blocks in zip(self.parts, rows, strict=True)]  # fmt: skip

        return self.function(shift)

    def _units(self, part: Part) -> tuple[Any, float]:
        """Return 1 / coefficient, and the length of the vector of ones of a part.

        Powers of the root that cancel are left out of both.
        """
        root = part.space.size**0.5
        if self.power == 1 and root == self.reveal.root and not part.space.explicit:
            return (1.0 if same(self.value, 1.0) else 1.0 / self.value), 1.0
        return 1.0 / (self.value * self.reveal.root**self.power), root

    def function(self, function: Callable[[list[Blocks]], list[Blocks]]) -> Rows:
        """Return a function of all coordinates that commutes with rotations of the frames."""
        value = Value(lambda: function(self.blocks()), self, function)
        parts = [Part.of(ValuePart(value, k), x.space) for k, x in enumerate(self.parts)]
        return self.like(parts, self.value, self.power)

    # From rows to plain matrices

    @property
    def mT(self) -> Transposed:
        """The transpose, for ``x @ y.mT``."""
        return Transposed(self)

    T = mT

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Transposed):
            raise DerivationError(
                "rows are multiplied by new weights, project(x, columns), or by the transpose of "
                f"rows, x @ y.mT; got {type(other).__name__}"
            )
        return self._inner(other.rows)

    def blocks(self) -> list[Blocks]:
        """Return the coordinates of each part, without ``value`` and the power of the root."""
        return [part.blocks(self.reveal) for part in self.parts]

    def _inner(self, other: Rows) -> Any:
        x, y = of_equal_parts(self, other)
        pairs = zip(x.parts, y.parts, strict=True)
        products = total([inner_product(a, b, self.reveal) for a, b in pairs])
        scale = product(x.value, y.value)
        power = x.power + y.power
        if power:
            scale = product(scale, self.reveal.root**power)
        return product(scale, products)

    def column(self) -> Any:
        """Return the entries of rows with a single column, a plain column (m, 1)."""
        (part,) = self.parts
        part.space.make_explicit()
        [[block]] = self.blocks()
        return repeated(product(self.coefficient, block), self.count)

    def squares(self) -> Any:
        """Return the squared lengths, a column (m, 1)."""
        rows = self.reveal.settled(self, explicit=True)
        flat = [x for blocks in rows.blocks() for x in blocks if x is not None]
        squares = total([row_squares(x) for x in flat])
        return product(self.value, self.value) * self.reveal.root ** (2 * self.power) * squares

    def mean(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the means of the entries of each row, a column (m, 1)."""
        if dim not in (-1, 2) or not keepdim:
            raise DerivationError("the mean of rows is over their entries: mean(-1, keepdim=True)")
        rows = self.reveal.settled(self)
        if rows is not self:
            return rows.mean(-1, keepdim=True)
        means = []
        for part in self.parts:
            part.space.with_ones()
        along_ones = not all(part.space.explicit for part in self.parts)
        for part in self.parts:
            (first, *_), size = part.blocks(self.reveal), part.space.size
            if part.space.explicit:
                weight = (self.reveal.root if along_ones else 1.0) / self.columns
                means.append(weight * row_sums(first))
            else:
                # The coordinate along ones / sqrt n, times sqrt n / n.
                weight = size**0.5 * self.reveal.root / self.columns
                weight = size / self.columns if size == self.reveal.size else weight
                means.append(weight * columns(first, 0, 1))
        power = self.power - 1 if along_ones else self.power
        scale = self.value if power == 0 else self.value * self.reveal.root**power
        return product(scale, total(means))

    def root(self) -> Any:
        """Return R with R R^T = x x^T, without ``value`` and the power of the root."""
        if self._root is None:
            self._root = gram_root(self)
            if self._root is None:
                flat = [x for blocks in self.blocks() for x in blocks if x is not None]
                self._root = compress(concatenate([repeated(x, self.count) for x in flat]))
        return self._root

    def factored(self) -> tuple[Any, float, int]:
        """Return a root R, a number and a power of the root, of which x x^T is the square.

        A parameter is multiplied once, into R, not with each hidden unit that follows.
        """
        if isinstance(self.value, float):
            return self.root(), self.value, self.power
        if self._weighted is None:
            self._weighted = self.value * self.root()
        return self._weighted, 1.0, self.power

    def by_length(self, eps: float) -> Rows:
        """Divide each row by sqrt(squared length + eps); with eps = 0, 0 remains 0."""
        rows = self.reveal.refined(self)
        if not isinstance(rows.value, float) or rows.value == 0.0:
            # The sign of a parameter is known only when the program runs.
            rows = rows.like(rows.scaled(rows.power), 1.0, rows.power)
        if not eps:
            added: Any = None
        elif rows.power == 1 and rows.value == 1.0:
            added = eps / self.reveal.size
        else:
            added = eps / (rows.coefficient * rows.coefficient)
        unit = rows.function(lambda blocks: divided(blocks, added))
        return rows.like(unit.parts, math.copysign(1.0, rows.value))

    # torch and primitives, when an operand is rows.

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), named: Any = None
    ) -> Any:
        return of_torch(function.__name__.strip("_"), args, dict(named or {}))

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Run one of the primitives in which blocks are written (`numerics.primitives`)."""
        return of_primitive(self, function, args, named)

    def columns_of_parts(self, start: int, stop: int) -> Rows:
        """Return the columns of whole parts of a direct sum."""
        chosen, place = [], 0
        for part in self.parts:
            if start <= place and place + part.space.size <= stop:
                chosen.append(part)
            place += part.space.size
        if sum(part.space.size for part in chosen) != stop - start:
            raise DerivationError(
                f"columns {start} to {stop} are not whole parts of the direct sum"
            )
        for part in chosen:
            if part.waits and not part.space.segments:
                # Lengths over all heads, then products of single heads: all of them is drawn.
                for x in self.parts:
                    x.space.make_explicit()
        return self.like(chosen, self.value, self.power)


class Transposed:
    """The transpose of rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows


def of_equal_parts(a: Rows, b: Rows) -> tuple[Rows, Rows]:
    """Return two rows as rows of direct sums of the same sizes."""
    if len(a.parts) == len(b.parts):
        return a, b
    if len(a.parts) > len(b.parts):
        b, a = of_equal_parts(b, a)
        return a, b
    share, left = len(b.parts) // len(a.parts), list(b.parts)
    if share * len(a.parts) != len(b.parts):
        raise DerivationError(
            f"direct sums of {len(a.parts)} and {len(b.parts)} spaces do not match"
        )
    parts: list[Part] = []
    for k, part in enumerate(a.parts):
        sizes = [x.space.size for x in left[k * share : (k + 1) * share]]
        parts += part.split(part.space.pieces(sizes))
    return a.like(parts, a.value, a.power), b
