"""The tokens of one layer, projections, and the products of all sources.

The limit knows of a source S of N columns that

    S S^T / N = I + noise,    S T^T / N = Z / sqrt N    for another source T,

with a Gaussian Z. The tokens are F times a source with S S^T / N = I. A projection multiplies
every source by the same new weights and keeps the coefficients: products of the results have those
of their parents as a further noise.

Rows less their means: S_c S_c^T = S S_c^T, which is (1 - 1 / N) S S^T
in the mean. For tokens this holds on average over layers, since means are renewed faster than
V moves: n times the products of means, whose mean is V, change within 1 / gamma^2 layers.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from shaped_attention.blocks.limits.algebra import Algebra
from shaped_attention.blocks.limits.jets import Jet
from shaped_attention.blocks.limits.noise import Gaussian, Noise, Term
from shaped_attention.blocks.limits.numbers import LimitError, test_value
from shaped_attention.blocks.limits.rows import Rows
from shaped_attention.blocks.limits.series import Series
from shaped_attention.blocks.limits.sources import Source, Space

_WITH_AND_WITHOUT_NORM = "rows of a fixed number of columns are used with and without a norm"
_TWO_FUNCTIONS = "two functions of the entries of the same rows meet; a rule exists for one"


class Layer:
    """The tokens of one layer, and the products of all sources."""

    def __init__(self, algebra: Algebra, tokens: int, columns: int) -> None:
        self.algebra, self.width, self.tokens = algebra, Series(-2, 1.0), tokens
        self.space = Space(self.width, of_tokens=True)
        self.source = Source(self.space, columns)
        self._parts: dict[Space, Source] = {}
        self._products: dict[Any, Jet] = {}
        self._turns: dict[Any, Any] = {}
        self._groups: dict[Any, list[Source]] = {}
        self._unit: dict[Source, Rows] = {}
        self._centred: dict[Source, Source] = {}
        self.barred: dict[Source, str] = {}
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
        base = (source.copied or source).whole
        return base is self.source or base in self._parts.values()

    def centred(self, s: Source) -> Source:
        """Return a source less its means."""
        if s.gram is not None:
            raise LimitError("means of hidden units, which need not vanish, have no rule")
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
        """Return S T^T / N; each mode of a rotation has its own Gaussian matrix."""
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

    def groups_of(self, s: Source, spaces: tuple[Space, ...]) -> list[Source]:
        """Return a projection as a direct sum: the weights have independent groups of columns."""
        if (s, spaces) not in self._groups:
            self._groups[s, spaces] = [
                Source(space, s.rows, s.parent, (*s.batch, k), s.gram, entries=s.entries)
                for k, space in enumerate(spaces)
            ]
        return self._groups[s, spaces]

    def with_unit_rows(self, x: Rows, unit: Rows) -> Rows:
        """Return unit rows of a fixed number of columns, the first ones that these rows had."""
        sources = [s for s, _ in x.parts]
        if all(self._unit.get(s) is x for s in sources) and x.unit is not None:
            return x.unit
        if any(s in self.barred or any(s in key for key in self._products) for s in sources):
            raise LimitError(_WITH_AND_WITHOUT_NORM)
        self._unit.update(dict.fromkeys(sources, x))
        self.barred.update(dict.fromkeys(sources, _WITH_AND_WITHOUT_NORM))
        x.unit = unit
        return unit

    def turned(self, s: Source, t: Source, turns: Any) -> None:
        """Say by which angles rows are rotated in a product."""
        if self._turns.setdefault(frozenset((s, t)), turns) != turns:
            raise LimitError("the same rows are multiplied after two different rotations")

    def _product(self, s: Source, t: Source, mode: int) -> Jet:
        a, size, grows = self.algebra, (s.rows, t.rows), s.space.grows
        if s.copied is not None or t.copied is not None:
            return self.product(s.copied or s, t.copied or t, mode)
        if s is not t and s.entries & t.entries:
            raise LimitError(_TWO_FUNCTIONS)
        if s in self.barred or t in self.barred:
            raise LimitError(self.barred.get(s) or self.barred[t])
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
