"""Spaces of which only some directions are known.

A `Frame` is R^n with an orthonormal frame of k <= n vectors that grows. A vector is its k
coordinates; which vectors of R^n the frame consists of is never decided, because Gaussian matrices
have the same law in every frame. r new vectors of independent N(0, 1) entries have the coordinates
[G, B]: G is Gaussian (r, k), and B is Bartlett's factor of r x (n - k) Gaussians along the
min(r, n - k) vectors by which the frame grows.

An explicit space has the standard basis as its frame, k = n: functions of single entries, such as
activations, need it. A space can become explicit later: its frame is then a uniformly distributed
one, whose coordinates in the standard basis are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from shaped_attention.checks import argument_error, check_count
from shaped_attention.numerics.operations.entrywise import sign
from shaped_attention.numerics.primitives import columns, leaky, unit_rows
from shaped_attention.rows.directions import directions
from shaped_attention.rows.sources import AnyDraws, Source
from shaped_attention.rows.values import Plain, padded, some_rows, stacked


class RowsError(ValueError):
    """Rows cannot do what is asked of them; the message says why."""


class Frame:
    """R^n with an orthonormal frame that grows: a `space.Space` without methods that make rows.

    `size` is the number of frame vectors, and `known_ones` the coordinates of the unit vector along
    ones, once they are drawn or set. A `free` space belongs to a projection, and may turn out to be
    the same as another.
    """

    def __init__(self, n: int, source: Source, explicit: bool = False, free: bool = False) -> None:
        check_count("n", n)
        self.n, self.free, self.source = n, free, source
        self.source.spaces.append(self)
        self.explicit = explicit or source.explicit
        self.size = n if self.explicit else 0
        self.basis: Plain | None = None
        self.target: Frame | None = None
        self.target_explicit = False
        self.known_ones: Plain | None = None

    def __repr__(self) -> str:
        kind = "explicit" if self.explicit else f"{self.size} known directions"
        return f"{type(self).__name__}({self.n}, {kind})"

    def __iter__(self) -> Iterator[Frame]:
        frame = self
        while frame.target is not None:
            frame = frame.target
        return iter((frame,))

    def fresh(self, rows: int, draws: AnyDraws) -> Plain:
        """Return coordinates of new vectors with independent N(0, 1) entries; the frame grows."""
        left = self.n - self.size
        if self.explicit:
            self._check_memory(rows)
        if left == 0:
            return draws.normal(rows, self.size)
        drawn = draws.normals_beside_wishart(rows, self.size, left)
        self.size = drawn.shape[-1]
        return drawn

    def grow(self, count: int) -> None:
        """Add vectors to the frame, to which nothing has a component yet."""
        if self.explicit or self.size + count > self.n:
            raise RuntimeError(f"{self} cannot grow by {count} directions")
        self.size += count

    def padded(self, part: Plain) -> Plain:
        """Return coordinates in the frame of today, from those when it had fewer vectors."""
        return padded(part, 0, self.size - part.shape[-1])

    def now(self, part: Plain, explicit: bool) -> Plain:
        """Return coordinates in the frame of today; `explicit` says whether it was then."""
        if self.basis is not None and not explicit:
            part = part @ some_rows(self.basis, 0, part.shape[-1])
        if self.target is not None:
            return self.target.now(part, self.target_explicit)
        return self.padded(part)

    def become(self, other: Frame) -> None:
        """Take the place of another space to which nothing relates this one.

        Its frame is then uniformly distributed relative to the other; if the vector of ones is
        known, uniformly given that it is the same.
        """
        known = 0 if self.known_ones is None else 1
        ones = other.ones() if known else None
        rows = other.fresh(self.size - known, self.source.stream().draws())
        if ones is None:
            self.basis = directions(rows).units
        else:
            self.basis = self._basis_with_ones(other.padded(ones), rows)
        self.target, self.target_explicit = other, other.explicit

    def ones(self) -> Plain:
        """Return the unit vector (1, ..., 1) / sqrt n, which is uniform relative to the frame."""
        if self.explicit:
            return self.source.filled(1, self.n, self.n**-0.5)
        if self.known_ones is None:
            drawn = self.fresh(1, self.source.stream().draws())
            self.known_ones = unit_rows(drawn)
        return self.padded(self.known_ones)

    def make_explicit(self) -> None:
        """Take the standard basis as frame; the known directions become a uniform frame of it."""
        if self.explicit:
            return
        self._check_memory(max(1, self.size))
        if self.size:
            gaussian = self.source.stream().draws().normal(self.size, self.n)
            if self.known_ones is None:
                self.basis = directions(gaussian).units
            else:
                ones = self.source.filled(1, self.n, self.n**-0.5)
                self.basis = self._basis_with_ones(ones, some_rows(gaussian, 1, self.size))
        self.explicit, self.size = True, self.n

    def _check_memory(self, rows: int) -> None:
        """Raise ValueError if some rows of entries take more than the memory of the source."""
        source = self.source
        size = source.samples * rows * self.n * source.dtype.itemsize
        if size > source.memory:
            raise RowsError(
                f"a function of entries makes all {self.n} columns explicit, which takes "
                f"{size / 2**30:.3g} GiB, more than the {source.memory / 2**30:.3g} GiB allowed; "
                "fewer columns, rows or samples need less"
            )

    def _basis_with_ones(self, ones: Plain, gaussian: Plain) -> Plain:
        """Return a uniform frame Q with u Q = `ones`, u the coordinates of ones here.

        With the reflection H that takes s e_1 to u, s = +-1, and a uniform frame F that begins with
        s `ones`, this is Q = H F.
        """
        u = self.ones()
        first = columns(u, 0, 1)
        # -1 where the first entry is positive, and 1 elsewhere.
        turn = 1.0 - 2.0 * leaky(sign(first), 1.0, 0.0)
        fixed = turn * ones
        frame = stacked([fixed, directions(gaussian, fixed).units])
        v = unit_rows(u - padded(turn, 0, u.shape[-1] - 1))
        return frame - 2.0 * v.mT @ (v @ frame)


class Sum:
    """A direct sum of spaces, such as the columns of several heads side by side.

    The same space may occur several times, as the values that heads share do.
    """

    target: None = None
    """What it has become: a sum stays one, whatever its parts become."""

    def __init__(self, parts: Sequence[AnySpace]) -> None:
        if not isinstance(parts, list | tuple) or not parts:
            raise argument_error("parts", "a non-empty list of spaces", parts)
        for part in parts:
            check_space("parts", part)
        self.parts: tuple[AnySpace, ...] = tuple(parts)
        self.n: int = sum(part.n for part in self.parts)

    def places(self, numbers: Sequence[int]) -> list[int]:
        """Return the places of the frames of some parts among those of all."""
        ends = [0, *accumulate(len(tuple(part)) for part in self.parts)]
        return [k for i in numbers for k in range(ends[i], ends[i + 1])]

    def append(self, part: AnySpace) -> None:
        """Add a part after the others."""
        self.parts, self.n = (*self.parts, part), self.n + part.n

    def __iter__(self) -> Iterator[Frame]:
        for part in self.parts:
            yield from part

    @property
    def source(self) -> Source:
        """The source of the parts."""
        return self.parts[0].source


class Open:
    """A space that nothing has looked at: what a projection is for decides what it is."""

    def __init__(self, n: int, source: Source) -> None:
        self.n: int = n
        self.source = source
        self.source.spaces.append(self)
        self.target: Frame | Sum | Open | None = None

    def __iter__(self) -> Iterator[Frame]:
        if self.target is None:
            self.target = Frame(self.n, self.source, free=True)
        yield from self.target


AnySpace: TypeAlias = Frame | Sum | Open


def check_space(name: str, space: object) -> None:
    """Raise ValueError unless this is a space."""
    if not isinstance(space, Frame | Sum | Open):
        raise argument_error(name, "a Space or a Sum of spaces", space)


def settled(space: AnySpace) -> AnySpace:
    """Return what a space has become."""
    while space.target is not None:
        space = space.target
    return space


def unify(left: AnySpace, right: AnySpace) -> AnySpace:
    """Make two spaces one, and return it: open spaces become the others.

    Raise ValueError if both are known and differ.
    """
    left, right = settled(left), settled(right)
    if left is right:
        return left
    if left.n != right.n or left.source is not right.source:
        raise _mismatch(left, right)
    if isinstance(left, Open):
        left.target = right
        return right
    if isinstance(right, Open):
        right.target = left
        return left
    ours, theirs = _members(left), _members(right)
    if isinstance(left, Frame) and isinstance(right, Frame):
        return _one(left, right)
    if max(len(ours), len(theirs)) > 1 and (isinstance(left, Frame) or isinstance(right, Frame)):
        raise _mismatch(left, right)
    if len(ours) == len(theirs) == 1:
        return unify(ours[0], theirs[0])
    while ours and theirs:
        few, many = (ours, theirs) if ours[0].n >= theirs[0].n else (theirs, ours)
        whole, taken = few.pop(0), [many.pop(0)]
        while sum(part.n for part in taken) < whole.n:
            taken.append(many.pop(0))
        unify(whole, taken[0] if len(taken) == 1 else Sum(taken))
    return right if isinstance(left, Sum) and any(isinstance(p, Open) for p in left.parts) else left


def _one(left: Frame, right: Frame) -> Frame:
    if left.explicit != right.explicit and (left.free or right.free):
        left.make_explicit()
        right.make_explicit()
    if left.explicit and right.explicit:
        return left
    # Spaces of projections, of which the first use did not tell that they are the same.
    if right.free and not right.explicit:
        right.become(left)
        return left
    if left.free and not left.explicit:
        left.become(right)
        return right
    raise _mismatch(left, right)


def _mismatch(left: AnySpace, right: AnySpace) -> RowsError:
    if left.source is not right.source:
        return RowsError(
            "rows of two networks cannot be combined; create the other spaces of a network by "
            "space.beside(n)"
        )
    return RowsError(
        f"rows of different spaces, with {left.n} and {right.n} columns, cannot be combined; a "
        "Matrix takes rows from one space to another"
    )


def _members(space: AnySpace) -> list[Any]:
    return [settled(part) for part in space.parts] if isinstance(space, Sum) else [space]
