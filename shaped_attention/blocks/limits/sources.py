"""Rows of which no entry is ever drawn, and the jets of their inner products.

Rows are sums of a jet times a source. A source S consists of N columns; the limit knows of it that

    S S^T / N = I + noise,    S T^T / N = Z / sqrt N    for another source T,

with a Gaussian Z. The tokens are F times a source with S S^T / N = I. A projection multiplies
every source by the same new weights and keeps the coefficients: products of the results have those
of their parents as a further noise.

Rows less their means: S_c S_c^T = S S_c^T, which is (1 - 1 / N) S S^T
in the mean. For tokens this holds on average over layers, since means are renewed faster than
V moves: n times the products of means, whose mean is V, change within 1 / gamma^2 layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from shaped_attention.blocks.limits.jets import Jet, Number
from shaped_attention.blocks.limits.noise import Gaussian, Noise, Term
from shaped_attention.blocks.limits.numbers import Coefficient, LimitError, is_zero, test_value
from shaped_attention.blocks.limits.series import Series
from shaped_attention.blocks.limits.shadows import Algebra, Small
from shaped_attention.numerics.graph import Extended

_WITH_AND_WITHOUT_NORM = "rows of a fixed number of columns are used with and without a norm"

_TWO_FUNCTIONS = "two functions of the entries of the same rows meet; a rule exists for one"

_MEANS = "means of rows follow from V only where they are subtracted from the rows"

_SHIFTED = "a number is added to the entries of rows, and does not vanish as the width grows"


class Space:
    """Columns: a number of them, or a multiple of the width."""

    def __init__(self, size: Any, *, of_tokens: bool = False) -> None:
        self.size, self.of_tokens = Series.of(size), of_tokens
        self.grows = self.size.grows
        if not self.grows and self.size.power != 0:
            raise LimitError("columns must be a number, or a multiple of the width")
        self._same: Space | None = None

    def real(self) -> Space:
        """Return the space that this one was found to be."""
        return self if self._same is None else self._same.real()

    @property
    def ratio(self) -> Coefficient:
        """The number of columns, divided by the width if it grows."""
        return self.size.c[0]

    def unify(self, other: Space) -> None:
        """Identify two spaces: columns of new weights have no order before they meet others."""
        a, b = self.real(), other.real()
        if a is b:
            return
        if a.grows != b.grows or test_value(a.ratio) != test_value(b.ratio):
            raise LimitError("rows of different numbers of columns meet")
        if b.of_tokens:
            a, b = b, a
        b._same = a


class Source:
    """A source.

    Attributes
    ----------
    parent, batch
        The source that a projection has multiplied by its weights, and which weights.
    gram
        What replaces I: the Gram matrix of what is left of hidden units; None for I.
    copied
        The source of which it is another copy, in a direct sum.
    entries
        The sources of the rows of which hidden units are a function.
    whole
        The source of which the means were subtracted; itself if none were.
    """

    def __init__(
        self, space: Space, rows: int, parent: Source | None = None, batch: Any = None,
        gram: Small | None = None, copied: Source | None = None,
        entries: frozenset[Source] = frozenset(), whole: Source | None = None,
    ) -> None:  # fmt: skip
        self.whole = whole or self
        self._space, self.rows, self.parent, self.batch = space, rows, parent, batch
        self.gram, self.copied, self.entries = gram, copied, entries

    @property
    def space(self) -> Space:
        """The space of its columns."""
        return self._space.real()

    @property
    def length(self) -> Series | float:
        """The root of S S^T / N in the mean: 1, or 1 - eps^2 / 2 r for N = r n, less means."""
        return 1.0 if self.whole is self else Series(0, 1.0, 0.0, -0.5 * self.space.ratio**-1.0)

    @property
    def depth(self) -> int:
        """The number of projections that it went through."""
        return 0 if self.parent is None else self.parent.depth + 1


class Layer:
    """The tokens of one layer, and the products of all sources."""

    def __init__(self, algebra: Algebra, tokens: int, columns: int) -> None:
        self.algebra, self.width, self.tokens = algebra, Series(-2, 1.0), tokens
        self.space = Space(self.width, of_tokens=True)
        self.source = Source(self.space, columns)
        self._parts: dict[Space, Source] = {}
        self._products: dict[Any, Jet] = {}
        self._turns: dict[Any, Any] = {}
        self._unit: dict[Source, Rows] = {}
        self._centred: dict[Source, Source] = {}
        self.left: dict[Source, str] = {}
        self._batches = count()

    def of_tokens(self, coefficient: Jet) -> Rows:
        """Return the tokens."""
        return Rows(self, [(self.source, coefficient)], self.tokens, [self.space])

    def tokens_in(self, space: Space) -> Source:
        """Return the columns of the tokens that lie in a part of their space."""
        if space.real() is self.space:
            return self.source
        if space.grows and test_value(space.ratio) == 1.0:
            self.space.unify(space)
            return self.source
        return self._parts.setdefault(space, Source(space, self.source.rows))

    def is_of_tokens(self, source: Source) -> bool:
        """Return whether a source consists of columns of the tokens."""
        return source.whole is self.source or source.whole in self._parts.values()

    def centred(self, s: Source) -> Source:
        """Return a source less its means."""
        if not s.space.grows:
            raise LimitError("means over a fixed number of columns are random of order one")
        if s.whole is not s:
            return s
        return self._centred.setdefault(s, Source(s.space, s.rows, gram=s.gram, whole=s))

    def project(self, x: Any, columns: Any, name: str | None = None, head: int = 0) -> Rows:
        """Return x W with a new Gaussian matrix W."""
        space, batch = Space(columns), next(self._batches)
        x = x.rows() if hasattr(x, "rows") else x
        if not isinstance(x, Rows):
            known = Jet.of(self.algebra, x)
            return Rows(self, [(Source(space, known.shape[1]), known)], known.shape[0], [space])
        x.check_plain()
        x.check_means()
        place = {s: k for k, s in enumerate(x.spaces)}
        parts = [
            (
                Source(space, s.rows, s.copied or s, (batch, place[s.space]), s.gram),
                c * s.space.size**0.5 * s.length,
            )
            for s, c in x.parts
        ]
        return Rows(self, parts, x.count, [space])

    def product(self, s: Source, t: Source, mode: int = 0) -> Jet:
        """Return S T^T / N; each mode of a rotation has a Gaussian of its own."""
        if s.whole is not s or t.whole is not t:
            return self._of_centred(s.whole, t.whole, mode)
        if (t, s, mode) in self._products:
            return self._products[t, s, mode].mT
        if (s, t, mode) not in self._products:
            self._products[s, t, mode] = self._product(s, t, mode)
        return self._products[s, t, mode]

    def _of_centred(self, s: Source, t: Source, mode: int) -> Jet:
        """Return S S_c^T / N = S_c S_c^T / N."""
        whole, a = self.product(s, t, mode), self.algebra
        if s is not t:
            return whole
        less = a.scaled(-1.0 * s.space.ratio**-1.0, whole.M)
        return Jet(a, whole.shape, whole.M, whole.D, whole.G, a.plus(whole.E, less), whole.power)

    def with_unit_rows(self, x: Rows, unit: Rows) -> Rows:
        """Return unit rows of a fixed number of columns, the first ones that these rows had."""
        sources = [s for s, _ in x.parts]
        if all(self._unit.get(s) is x for s in sources) and x.unit is not None:
            return x.unit
        if any(s in self.left or any(s in key for key in self._products) for s in sources):
            raise LimitError(_WITH_AND_WITHOUT_NORM)
        self._unit.update(dict.fromkeys(sources, x))
        self.left.update(dict.fromkeys(sources, _WITH_AND_WITHOUT_NORM))
        x.unit = unit
        return unit

    def turned(self, s: Source, t: Source, turns: Any) -> None:
        """Say by which angles rows are rotated in a product."""
        if self._turns.setdefault(frozenset((s, t)), turns) != turns:
            raise LimitError("the same rows are multiplied after two different rotations")

    def _product(self, s: Source, t: Source, mode: int) -> Jet:
        a, size, grows = self.algebra, (s.rows, t.rows), s.space.grows
        if s.copied is not None and t.copied is not None:
            return self.product(s.copied, t.copied, mode)
        if s is not t and s.entries & t.entries:
            raise LimitError(_TWO_FUNCTIONS)
        if s in self.left or t in self.left:
            raise LimitError(self.left.get(s) or self.left[t])
        if s is t and self.is_of_tokens(s):
            return Jet(a, size, a.identity(s.rows))
        if s is t and not grows:
            raise LimitError(
                "squared lengths over a fixed number of columns are random of order one"
            )
        noise, lead = Noise(a), None
        if s is t:
            lead = a.identity(s.rows) if s.gram is None else s.gram
        if s.gram is None or s is not t:
            z, eye = Gaussian(*size, symmetric=s is t), (a.identity(s.rows), a.identity(t.rows))
            noise = Noise(a, [Term(z, *eye, size)]).scaled(s.space.ratio**-0.5)
        if s.parent is not None and t.parent is not None and s.batch == t.batch:
            above = self.product(s.parent, t.parent)
            if above.power < 0:
                raise LimitError("a projection of a fixed number of columns is random of order one")
            if s.gram is None and t.gram is None:
                noise = noise.plus(above.G)
        return Jet(a, size, lead, None, noise, None, 0 if grows else -1)


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
        return [s.real() for s in self._spaces]

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

    def __mul__(self, other: Any) -> Rows:
        if isinstance(other, Number):
            shift = None if self.shift is None else self.shift * other
            return self.like([(s, c * other) for s, c in self.parts], shift=shift)
        if hasattr(other, "times_rows"):
            result: Rows = other.times_rows(self)
            return result
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
        gram = inner(self, self)
        a, d = gram.algebra, gram.algebra.diagonal
        return Jet(
            a, (self.count, 1), d(gram.M), d(gram.D), gram.G.diagonal(), d(gram.E), gram.power
        )

    def split(self, spaces: Sequence[Space]) -> Rows:
        """Return the same rows as a direct sum: new weights have independent groups of columns."""
        layer, parts = self.layer, []
        for s, c in self.parts:
            if s.parent is None or any(s in key for key in layer._products):
                raise LimitError("rows of different direct sums meet")
            layer.left[s] = "rows are used as a whole and as a direct sum"
            for k, space in enumerate(spaces):
                group = Source(space, s.rows, s.parent, (*s.batch, k), s.gram, entries=s.entries)
                parts.append((group, c))
        return Rows(layer, parts, self.count, spaces)

    def without_shift(self) -> Rows:
        """Return the same rows without the constant part, one object for all calls."""
        if self.shift is None:
            return self
        if self._plain is None:
            self._plain = self.like(self.parts)
        return self._plain

    def of_entries(self, function: Callable[[Any], Any]) -> Any:
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
                here = [(Source(space, s.rows, gram=s.gram, copied=s), c) for s, c in here]
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
    return [entries for entries, _ in x.turns[1]]


def known_gram(x: Rows) -> Small:
    """Return the matrix of mean products of entries, which must be known and of order one."""
    gram = inner(x, x) * x.spaces[0].size ** -1.0
    if gram.M is None or gram.power != 0:
        raise LimitError("a function of entries of another order than 1 has no rule")
    if gram.D is not None:
        raise LimitError("the covariance of hidden units has a term of order 1 / sqrt n")
    return gram.M
