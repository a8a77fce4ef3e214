"""Rows that are linear in Gaussian matrices of which nothing is drawn yet.

A product x W of rows x = L E, E with orthonormal rows, is L (E W), and E W is a Gaussian matrix
(r, n), in whatever frame of R^n. It is drawn along directions when somebody asks for it:

- a product ``x @ y.mT`` completes y and draws x along the frame of y alone;
- several matrices in one sum, which have no other use, are drawn as one of fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from shaped_attention.numerics.primitives import concatenate, lower
from shaped_attention.numerics.scalars import product
from shaped_attention.rows.coordinates import Coordinates, total
from shaped_attention.rows.spaces import AnySpace, Frame, RowsError, settled
from shaped_attention.rows.values import Plain, padded

if TYPE_CHECKING:
    from shaped_attention.rows.step import NamedStream


class UsedAgainError(RowsError):
    """A matrix that was drawn in a shorter form, for a single use, is used again."""


class Undrawn:
    """A Gaussian matrix (r, n) of independent N(0, 1) entries, drawn along directions on demand.

    `blocks` are coordinates in some segments of the frame, which together are its first directions.
    It is `complete` if nothing is left, and `gone` if another matrix was drawn in its place.
    """

    def __init__(self, rows: int, stream: NamedStream) -> None:
        self.rows, self.stream = rows, stream
        self.blocks: list[Plain] = []
        self.complete = self.gone = False
        self._frame: tuple[Frame, bool] | None = None
        self._pieces: list[Undrawn] = []

    @property
    def begun(self) -> bool:
        """Whether coordinates were drawn."""
        return self._frame is not None

    def piece(self, number: int, count: int) -> Undrawn:
        """Return one of several blocks of columns, which together are this matrix."""
        if not self._pieces:
            self.check_present()
            self.gone = True
            self._pieces = [Undrawn(self.rows, self.stream.part(k, count)) for k in range(count)]
        return self._pieces[number]

    def draw(self, frame: Frame, *, whole: bool) -> None:
        """Draw what is missing along the frame; with `whole` also the rest, by which it grows."""
        self.check_present()
        before = self._frame or (frame, frame.explicit)
        if before != (frame, frame.explicit):
            if not self.complete:
                raise UsedAgainError("rows of which a part was drawn are used in another frame")
            self.blocks = [before[0].now(concatenate(self.blocks), before[1])]
        self._frame = frame, frame.explicit
        missing = frame.size - sum(x.shape[-1] for x in self.blocks)
        if self.complete or not (missing or whole):
            return
        rest = frame.n - frame.size if whole else 0
        self.blocks += self.stream.draws().blocks(self.rows, missing, rest)
        if rest:
            frame.size += self.blocks[-1].shape[-1]
        self.complete = whole

    def check_present(self) -> None:
        """Raise UsedAgainError if another matrix was drawn in the place of this one."""
        if self.gone:
            raise UsedAgainError("rows that were joined with others are used again by themselves")


Term: TypeAlias = tuple[Plain, Undrawn]
"""A left factor (m, r) and a matrix (r, n)."""


class Linear:
    """``weight`` times a sum of terms, for each of some spaces.

    Terms that differ by their weight alone are the same object.
    """

    def __init__(
        self, terms: Sequence[Sequence[Term]], spaces: Sequence[AnySpace],
        weight: Any = 1.0,
    ) -> None:  # fmt: skip
        self.terms, self.spaces, self.weight = terms, spaces, weight

    def scaled(self, number: Any) -> Linear:
        """Return a multiple."""
        return Linear(self.terms, self.spaces, product(self.weight, number))

    def over(self, number: float) -> Linear:
        """Return a fraction."""
        return Linear(self.terms, self.spaces, self.weight / number)

    def mixed(self, matrix: Plain) -> Linear:
        """Return the rows mixed by a plain matrix."""
        return self.each(lambda left: matrix @ left)

    def each(self, function: Callable[[Plain], Plain]) -> Linear:
        """Return the rows with a function of each left factor."""
        terms = [[(function(left), u) for left, u in terms] for terms in self.terms]
        return Linear(terms, self.spaces, self.weight)

    def _weighted(self) -> Linear:
        """Return the same rows with the weight 1."""
        whole = self.each(lambda left: self.weight * left)
        return Linear(whole.terms, self.spaces)

    def plus(self, other: Linear) -> Linear:
        """Return the sum."""
        ours, theirs, weight = self, other, self.weight
        if not _same(weight, other.weight):
            ours, theirs, weight = self._weighted(), other._weighted(), 1.0
        pairs = zip(ours.terms, theirs.terms, strict=True)
        return Linear([[*a, *b] for a, b in pairs], self.spaces, weight)

    def joined(self, others: Sequence[Linear]) -> Linear:
        """Return rows of the direct sum of the spaces."""
        every, weight = [self, *others], self.weight
        if not all(_same(x.weight, weight) for x in others):
            every, weight = [x._weighted() for x in every], 1.0
        terms, spaces = [t for x in every for t in x.terms], [s for x in every for s in x.spaces]
        return Linear(terms, spaces, weight)

    def chosen(self, members: Sequence[int]) -> Linear:
        """Return the rows of some members."""
        terms, spaces = [self.terms[k] for k in members], [self.spaces[k] for k in members]
        return Linear(terms, spaces, self.weight)

    def root(self) -> list[Plain]:
        """Return R with R R^T the covariance of a column, for each member."""
        return [self.weight * concatenate(list(_collected(terms).values())) for terms in self.terms]

    def inner(self, y: Coordinates) -> Plain:
        """Return x y^T: y is drawn, and x along its frame alone, since the rest does not matter."""
        others = y.parts
        whole = any(frame.explicit for frame in y.space)
        mine = self.coordinates(whole=whole)
        return total([a @ b.mT for a, b in zip(mine, y.parts if whole else others, strict=True)])

    def coordinates(self, *, whole: bool = True, known: Sequence[Plain] = ()) -> list[Plain]:
        """Return the coordinates in each frame of the spaces, or those along known directions.

        `known` are the coordinates of rows that are added.
        """
        result: list[Plain] = []
        for terms, space in zip(self.terms, self.spaces, strict=True):
            frames = tuple(settled(space))
            for k, frame in enumerate(frames):
                split = [(x, u.piece(k, len(frames))) for x, u in terms if len(frames) > 1]
                more = known[len(result)] if known else None
                parts = split if len(frames) > 1 else terms
                result.append(_sum(parts, self.weight, frame, whole, more))
        return result


def _collected(terms: Sequence[Term]) -> dict[Undrawn, Plain]:
    """Return the sum of the left factors of each matrix."""
    lefts: dict[Undrawn, Plain] = {}
    for left, u in terms:
        lefts[u] = lefts[u] + left if u in lefts else left
    return lefts


def _sum(
    terms: Sequence[Term], weight: Any, frame: Frame, whole: bool, known: Plain | None
) -> Plain:
    """Return the coordinates of a multiple of a sum of terms, and of known rows."""
    lefts = _collected(terms)
    for u in lefts:
        u.check_present()
    new = [u for u in lefts if not u.begun]
    if frame.source.shortens and new:
        left = concatenate([lefts.pop(u) for u in new])
        narrow = root_of(left)
        joint = new[0]
        if narrow is not left or len(new) > 1:
            joint = Undrawn(narrow.shape[-1], new[0].stream)
            for u in new:
                u.gone = True
        lefts[joint] = narrow
    for u in lefts:
        u.draw(frame, whole=whole)
    sums = [[(weight * left) @ x for x in u.blocks] for u, left in lefts.items()]
    result = sums[0] if known is None else [known]
    for more in sums[int(known is None) :]:
        result = added(result, more)
    return concatenate(result)


def added(x: list[Plain], y: list[Plain]) -> list[Plain]:
    """Add coordinates in blocks, of which one list may have fewer."""
    few, many = sorted((x, y), key=len)
    if any(a.shape[-1] != b.shape[-1] for a, b in zip(few, many, strict=False)):
        a, b = concatenate(x), concatenate(y)
        size = max(a.shape[-1], b.shape[-1])
        return [padded(a, 0, size - a.shape[-1]) + padded(b, 0, size - b.shape[-1])]
    return [a + b for a, b in zip(few, many, strict=False)] + many[len(few) :]


def root_of(coordinates: Plain) -> Plain:
    """Return a root of the Gram matrix of rows: themselves, or a smaller, triangular one."""
    if coordinates.shape[-1] <= coordinates.shape[-2]:
        return coordinates
    return lower(coordinates)


def _same(a: object, b: object) -> bool:
    """Return whether two numbers are known to be equal before a program runs."""
    return a is b or (isinstance(a, float | int) and isinstance(b, float | int) and a == b)
