"""Sources: columns of which no entry is ever drawn, and the spaces that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shaped_attention.blocks.limits.numbers import Coefficient, LimitError, test_value
from shaped_attention.blocks.limits.series import Series

if TYPE_CHECKING:
    from shaped_attention.blocks.limits.small import Small


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

    def copy(self, space: Space) -> Source:
        """Return the same source in another space of a direct sum."""
        whole = None if self.whole is self else self.whole
        return Source(
            space, self.rows, gram=self.gram, copied=self.copied or self, entries=self.entries,
            whole=whole,
        )  # fmt: skip

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
