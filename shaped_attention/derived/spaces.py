"""Spaces R^n of which few directions are known, and Gaussian matrices that are drawn along these.

A frame is a sequence of segments, each some orthonormal directions. A matrix of independent N(0, 1)
entries, r x n, has coordinates in each segment: Gaussian ones in the segments that others brought,
and, where all of it is asked for, a root of a Wishart matrix in a new segment, since the rest of
the matrix defines the directions that follow. What nothing asks for is never drawn.

In an explicit space the frame is the standard basis, and matrices are drawn entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shaped_attention.numerics.primitives import Numbers, columns


class DerivationError(ValueError):
    """A branch does what has no exact chain; the message says what."""


class UsedAgainError(DerivationError):
    """A matrix that was drawn in a shorter form, for a single use, is used again."""


BRANCH = "branch"
"""Name of the numbers of what is added to the tokens."""


class Space:
    """R^n with a frame that grows.

    Attributes
    ----------
    size
        n.
    segments
        Number of directions in each segment.
    explicit
        Whether the only segment is the standard basis.
    ones
        Whether the first direction is that of the vector of ones.
    group
        For a part of the space of the tokens, its number; None otherwise.
    met
        Whether vectors of several projections live in it.
    """

    def __init__(
        self, size: int, segments: Sequence[int] = (), *, ones: bool = False,
        group: int | None = None,
    ) -> None:  # fmt: skip
        self.size, self.segments = size, list(segments)
        self.ones, self.group = ones, group
        self.explicit = self.met = False
        self._same: Space | None = None
        self._pieces: list[Space] = []

    def now(self) -> Space:
        """Return the space that this one has become a name of."""
        return self if self._same is None else self._same.now()

    def pieces(self, sizes: Sequence[int]) -> list[Space]:
        """Return the spaces of blocks of columns of these sizes; each call returns the same.

        Raises
        ------
        DerivationError
            If the sizes are not those of all columns, or differ from those of another call.
        """
        if not self._pieces and sum(sizes) == self.size:
            self._pieces = [Space(size) for size in sizes]
        if [x.size for x in self._pieces] != list(sizes):
            raise DerivationError(
                f"rows of {self.size} columns do not match those of a direct sum of spaces of "
                f"{list(sizes)} columns"
            )
        return self._pieces

    def make_explicit(self) -> None:
        """Let the standard basis be the frame.

        Raises
        ------
        ValueError
            If another frame is known already.
        """
        if not self.explicit and (self.segments or self.group is not None):
            what = "tokens" if self.group is not None else "a projection whose lengths are known"
            raise DerivationError(
                f"a function of single entries of {what} has no exact chain: its entries are not "
                "drawn; it acts on a new projection (project)"
            )
        self.explicit, self.segments = True, [self.size]

    def with_ones(self) -> None:
        """Let the vector of ones be a known direction.

        Raises
        ------
        ValueError
            If the frame has begun without it.
        """
        if self.ones or self.explicit:
            return
        if self.group is not None:
            raise DerivationError(
                "a block takes the mean of the entries of tokens, so its `means` must be True"
            )
        if self.segments:
            raise DerivationError("the mean of a projection is taken before its lengths are")
        self.ones, self.segments = True, [1]


def unify(a: Space, b: Space) -> None:
    """Let two spaces be the same.

    Raises
    ------
    ValueError
        If they differ in size, or both have frames, whose relation is not known.
    """
    a, b = a.now(), b.now()
    if a is b:
        return
    if a.size != b.size:
        raise DerivationError(
            f"rows of {a.size} and of {b.size} columns have no sum and no product"
        )
    if a.explicit != b.explicit:
        # Only the tokens and what has a frame cannot follow; these raise an error.
        a.make_explicit()
        b.make_explicit()
    elif not a.explicit and a.segments and b.segments:
        raise DerivationError(
            "two projections whose lengths are both known have an inner product or a sum, but "
            "their directions are not known; take lengths by `unit_rows` or `by_mean_square`, "
            "which wait for it, or by `row_squares` afterwards"
        )
    kept, gone = (b, a) if b.segments and not a.segments else (a, b)
    gone._same = kept
    kept.met = True


class Source:
    """A Gaussian matrix (rows, n) behind a projection, with the root (m, rows) that multiplies it.

    A projection x W of rows x = R E, with E orthonormal, is R (E W), and E W is such a matrix.
    """

    def __init__(self, root: Any, space: Space, numbers: Numbers, name: str, head: int) -> None:
        self.root, self.space, self.numbers = root, space, numbers
        self.name, self.head = name, head
        self.drawn: Drawn | None = None
        self.start = 0
        self.gone = False
        self._parts: list[Source] = []

    @property
    def rows(self) -> int:
        """Number of rows of the matrix."""
        rows: int = self.root.shape[-1]
        return rows

    def part(self, index: int, parts: Sequence[Space]) -> Source:
        """Return one of several blocks of columns, which together are this matrix."""
        if self.drawn is not None:
            raise DerivationError("a projection that was looked at as a whole cannot be split")
        if not self._parts:
            check_present([self])
            self._parts = [
                Source(self.root, space, self.numbers, self.name, self.head * len(parts) + k)
                for k, space in enumerate(parts)
            ]
            self.gone = True
        return self._parts[index]

    def block(self, segment: int) -> Any:
        """Return the coordinates in a segment; None for 0."""
        check_present([self])
        assert self.drawn is not None
        return self.drawn.block_of(self, segment)


def check_present(sources: Sequence[Source]) -> None:
    """Raise UsedAgainError if another matrix is drawn in the place of one of these."""
    if any(x.gone for x in sources):
        raise UsedAgainError("rows that were joined with others are used again by themselves")


class Drawn:
    """Matrices that are drawn together, below each other, as one matrix of as many rows.

    `reveal` has the numbers of what is added to the tokens, one matrix for each group of columns.
    """

    def __init__(self, sources: Sequence[Source], rows: int, reveal: Any) -> None:
        check_present(sources)
        first = sources[0]
        self.space, self.rows, self.complete = first.space.now(), rows, False
        self.numbers, self.name, self.head = first.numbers, first.name, first.head
        group = self.space.group
        if group is not None and group not in reveal.taken:
            reveal.taken.add(group)
            self.numbers, self.name, self.head = reveal.numbers, BRANCH, group
        self.blocks: list[Any] = []
        start = 0
        for x in sources:
            x.drawn = self
            x.start = start
            start += x.rows
        self._extensions = 0

    def extend(self) -> None:
        """Draw the coordinates in all segments of the frame."""
        known = self.space.segments[len(self.blocks) :]
        if self.complete or not known:
            return
        name = f"{self.name}, {self._extensions}" if self._extensions else self.name
        self._extensions += 1
        new, start = self.numbers.normal(name, self.rows, sum(known), self.head), 0
        for size in known:
            self.blocks.append(new if len(known) == 1 else columns(new, start, start + size))
            start += size

    def finish(self) -> None:
        """Draw all of the matrix: its remaining directions become part of the frame."""
        if self.complete:
            return
        self.extend()
        space = self.space
        left = space.size - sum(space.segments)
        if left:
            name = f"{self.name}, orthogonal" if space.segments else self.name
            rest = self.numbers.wishart(name, self.rows, left, self.head)
            self.blocks.append(rest)
            space.segments.append(rest.shape[-1])
        self.complete = True

    def block_of(self, source: Source, segment: int) -> Any:
        """Return the rows of one matrix in a segment; None for 0."""
        if segment >= len(self.blocks):
            return None
        whole, start = self.blocks[segment], source.start
        if source.rows == self.rows:
            return whole
        return columns(whole.mT, start, start + source.rows).mT
