"""Rows of which no entry is ever drawn: sums of a jet times a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shaped_attention.blocks.limits.jets import Jet, Number
from shaped_attention.blocks.limits.numbers import LimitError, is_zero, test_value
from shaped_attention.blocks.limits.series import Series
from shaped_attention.blocks.limits.sources import Source, Space
from shaped_attention.numerics.graph import Extended

if TYPE_CHECKING:
    from shaped_attention.blocks.limits.layer import Layer
    from shaped_attention.blocks.limits.small import Small

_TWO_FUNCTIONS = "two functions of the entries of the same rows meet; a rule exists for one"
_MEANS = "means of rows follow from V only where they are subtracted from the rows"
_SHIFTED = "a number is added to the entries of rows, and does not vanish as the width grows"


class Rows(Extended):
    """A sum of a jet times a source; `shift` is added to every entry, `turns` rotate the entries.

    Attributes
    ----------
    count
        The number m of rows.
    """

    def __init__(
        self, layer: Layer, parts: Sequence[tuple[Source, Jet]], rows: int,
        spaces: Sequence[Space], shift: Series | None = None, turns: Any = None,
    ) -> None:  # fmt: skip
        self.layer, self.parts, self.count = layer, list(parts), rows
        self._spaces, self.shift, self.turns = list(spaces), shift, turns
        self._plain: Rows | None = None
        self.unit: Rows | None = None

    @property
    def spaces(self) -> list[Space]:
        """The spaces of which the columns are a direct sum."""
        real = [s.real() for s in self._spaces]
        if len(set(real)) < len(real):
            raise LimitError("parts of a direct sum meet in one space")
        return real

    @property
    def shape(self) -> tuple[int, Any]:
        """Rows and columns; columns that grow with the width are a series."""
        total = self.spaces[0].size
        for s in self.spaces[1:]:
            total = total + s.size
        return self.count, total if total.power else int(test_value(total.c[0]))

    def check_plain(self) -> None:
        """Raise LimitError if the entries have a constant part, or are rotated."""
        if self.shift is not None:
            raise LimitError(_SHIFTED)
        if self.turns is not None:
            raise LimitError("rotated rows are multiplied with others that are rotated alike only")

    def like(
        self, parts: Sequence[tuple[Source, Jet]], rows: int | None = None,
        shift: Series | None = None,
    ) -> Rows:  # fmt: skip
        """Return other rows of the same space."""
        return Rows(self.layer, parts, rows or self.count, self.spaces, shift, self.turns)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), named: Any = None
    ) -> Any:
        """Join rows side by side; nothing else in torch has a rule."""
        if function.__name__ in ("cat", "concat", "concatenate"):
            return joined(args[0])
        raise LimitError(f"{function.__name__} of rows has no rule")

    def new_full(self, size: Any, value: float) -> Jet:
        """Return a small matrix of equal entries."""
        return Jet.of(self.layer.algebra, np.full(size[-2:], value))

    def mean(self, dim: int = -1, keepdim: bool = False) -> Means:
        """Return the means of the rows, which may be subtracted from them."""
        self.check_plain()
        if dim != -1 or not keepdim or len(self.spaces) > 1:
            raise LimitError(_MEANS)
        return Means(self)

    def check_means(self) -> None:
        """Raise LimitError if rows with and without their means are added."""
        if len({s.whole for s, _ in self.parts}) < len(self.parts):
            raise LimitError(_MEANS)

    def each(self, function: Callable[[Jet], Jet]) -> Rows:
        """Return rows with a function of every coefficient."""
        return self.like([(s, function(c)) for s, c in self.parts])

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Number):
            shift = None if self.shift is None else self.shift * other
            return self.like([(s, c * other) for s, c in self.parts], shift=shift)
        if hasattr(other, "times_rows"):
            result: Rows = other.times_rows(self)
            return result
        if other is self:
            return self.map_entries(lambda x: x * x)
        if isinstance(other, Rows):
            raise LimitError(
                "rows times rows are nonlinear at infinite width; a gate must tend to a constant"
            )
        if tuple(other.shape)[-1] != 1:
            raise LimitError("rows are multiplied by numbers or columns")
        if self.shift is not None:
            raise LimitError(_SHIFTED)
        return self.each(lambda c: c * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Rows:
        return self * (Series.of(other) ** -1.0 if isinstance(other, Number) else 1.0 / other)

    def __add__(self, other: Any) -> Rows:
        if isinstance(other, Number):
            shift = Series.of(other) if self.shift is None else self.shift + other
            gone = all(is_zero(c) or abs(test_value(c)) < 1e-14 for c in shift.c)
            return self.like(self.parts, shift=None if gone else shift)
        other = other.rows() if hasattr(other, "rows") else other
        if isinstance(other, Means):
            if other.of is not self or other.number != -1.0:
                raise LimitError(_MEANS)
            return self.like([(self.layer.centred(s), c) for s, c in self.parts])
        if not isinstance(other, Rows):
            raise LimitError("only rows or numbers are added to rows")
        if self.turns is not None or other.turns is not None:
            raise LimitError("rotated rows have no sums")
        if len(self.spaces) == 1 < len(other.spaces):
            return self.split(other.spaces) + other
        if len(other.spaces) == 1 < len(self.spaces):
            other = other.split(self.spaces)
        aligned(self, other)
        count, total = max(self.count, other.count), dict[Source, Jet]()
        for s, c in (*self.parts, *other.parts):
            repeated = c.spread((count, c.shape[1]))
            total[s] = total[s] + repeated if s in total else repeated
        entries = [e for s in total for e in s.entries]
        if len(set(entries)) < len(entries):
            raise LimitError(_TWO_FUNCTIONS)
        shifts = [x.shift for x in (self, other) if x.shift is not None]
        shift = sum(shifts[1:], shifts[0]) if shifts else None
        return self.like(list(total.items()), count, shift)

    __radd__ = __add__

    def __rmatmul__(self, matrix: Any) -> Rows:
        self.check_plain()
        a = Jet.of(self.layer.algebra, matrix)
        return self.like([(s, a @ c) for s, c in self.parts], a.shape[0])

    @property
    def mT(self) -> Transposed:
        """The transpose, for inner products."""
        return Transposed(self)

    def __matmul__(self, other: Any) -> Jet:
        if not isinstance(other, Transposed):
            raise LimitError("rows are multiplied by project, or by x.mT of rows x")
        return inner(self, other.rows_)

    def squares(self) -> Jet:
        """Return the squared lengths of the rows, a column."""
        return inner(self, self).diagonal()

    def split(self, spaces: Sequence[Space]) -> Rows:
        """Return the same rows as a direct sum: new weights have independent groups of columns."""
        layer, parts = self.layer, []
        for s, c in self.parts:
            if s.parent is None or any(s in key for key in layer._products):
                raise LimitError("rows of different direct sums meet")
            layer.barred[s] = "rows are used as a whole and as a direct sum"
            parts += [(group, c) for group in layer.groups_of(s, tuple(spaces))]
        return Rows(layer, parts, self.count, spaces)

    def without_shift(self) -> Rows:
        """Return the same rows without the constant part, one object for all calls."""
        if self.shift is None:
            return self
        if self._plain is None:
            self._plain = self.like(self.parts)
        return self._plain

    def map_entries(self, function: Callable[[Any], Any]) -> Any:
        """Return a function of the entries."""
        from shaped_attention.blocks.limits.hidden import function_of

        return function_of(self, function)

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return a primitive of rows."""
        from shaped_attention.blocks.limits.hidden import primitive_of_rows

        return primitive_of_rows(self, function, args, named)


class Means(Extended):
    """A multiple of the means of rows."""

    def __init__(self, of: Rows, number: float = 1.0) -> None:
        self.of, self.number = of, number

    def __mul__(self, number: Any) -> Means:
        if not isinstance(number, float | int):
            raise LimitError(_MEANS)
        return Means(self.of, self.number * number)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return other + self if isinstance(other, Rows) else NotImplemented

    __radd__ = __add__

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Raise LimitError."""
        raise LimitError(_MEANS)


class Transposed:
    """The transpose of rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows_ = rows

    def __rmatmul__(self, other: Any) -> Any:
        raise LimitError("rows are multiplied by project, or by x.mT of rows x")


def joined(rows: Sequence[Any]) -> Rows:
    """Return rows of the direct sum; the same space twice, as of shared values, is copied."""
    rows = [x.rows() if hasattr(x, "rows") else x for x in rows]
    parts: list[tuple[Source, Jet]] = []
    spaces: list[Space] = []
    for x in rows:
        x.check_plain()
        for space in x.spaces:
            here = [(s, c) for s, c in x.parts if s.space is space]
            if space in spaces:
                space = Space(space.size)
                here = [(s.copy(space), c) for s, c in here]
            parts += here
            spaces.append(space)
    return Rows(rows[0].layer, parts, rows[0].count, spaces)


def aligned(x: Rows, y: Rows) -> None:
    """Identify the spaces of two rows, direct sums of equal sizes."""
    if len(x.spaces) != len(y.spaces):
        raise LimitError("rows of different direct sums meet")
    for a, b in zip(x.spaces, y.spaces, strict=True):
        a.unify(b)


def inner(x: Rows, y: Rows) -> Jet:
    """Return all inner products of two rows."""
    for rows in (x, y):
        if rows.shift is not None:
            raise LimitError(_SHIFTED)
    if (x.turns is None) != (y.turns is None):
        raise LimitError("rotated rows are multiplied with others that are rotated alike only")
    layer, total = x.layer, None
    aligned(x, y)
    for s, c in x.parts:
        for t, d in y.parts:
            if s.space is not t.space:
                continue
            layer.turned(s, t, x.turns and x.turns[0])
            for mode, entries in enumerate(_modes(x, y, s, t)):
                part = (c @ layer.product(s, t, mode) @ d.mT) * s.space.size
                part = part if entries is None else part * Jet.of(layer.algebra, entries)
                total = part if total is None else total + part
    if total is None:
        raise LimitError("rows of different numbers of columns meet")
    return total


def _modes(x: Rows, y: Rows, s: Source, t: Source) -> Sequence[Any]:
    """Return the matrices E_k of a rotation; None is a matrix of ones."""
    if x.turns is None:
        return [None]
    if x.turns[0] != y.turns[0]:
        raise LimitError("rows that are rotated by different angles meet")
    if s is t:
        raise LimitError("queries and keys that are rotated must have weights of their own")
    matrices: Sequence[Any] = x.turns[1]
    return matrices


def known_gram(x: Rows) -> Small:
    """Return the matrix of mean products of entries, which must be known and of order one."""
    gram = inner(x, x) * x.spaces[0].size ** -1.0
    if gram.M is None or gram.power != 0:
        raise LimitError("a function of entries of another order than 1 has no rule")
    if gram.D is not None:
        raise LimitError("the covariance of hidden units has a term of order 1 / sqrt n")
    return gram.M
