"""Vectors of spaces with growing frames, as coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from shaped_attention.checks import argument_error
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.graph import Extended
from shaped_attention.numerics.primitives import concatenate
from shaped_attention.rows.spaces import AnySpace, Frame, Open, Sum, check_space, settled
from shaped_attention.rows.values import Plain, pieces

Parts = tuple[Plain, ...]


class Coordinates(Extended):
    """r vectors of a space for each sample, by their coordinates; `shape` is (samples, r, n).

    A projection is drawn lazily, by `make`: its first use decides whether its space is explicit,
    part of another, or neither. All numbers are keyed: the order in which they are drawn does not
    matter.
    """

    linear: Any = None
    """What they are linear in, if nothing is drawn."""

    def __init__(
        self,
        space: AnySpace,
        parts: Parts | None = None,
        count: int | None = None,
        make: Callable[[Any], Parts] | None = None,
        needs_gradient: bool = False,
    ) -> None:
        check_space("space", space)
        if not (parts is None or isinstance(parts, tuple | list)):
            raise argument_error("parts", "a tuple of coordinates, one for each space", parts)
        self._space, self._parts, self._make = space, parts, make
        self._count = parts[0].shape[-2] if parts is not None else count
        self._homes = homes(space) if parts is not None else ()
        self._placed = settled(space) if parts is not None else None
        self.needs_gradient = needs_gradient

    def __repr__(self) -> str:
        return f"Rows{tuple(self.shape)}"

    @property
    def space(self) -> AnySpace:
        """The space; that of a projection can still be open."""
        if self._space.target is not None:
            self._space = settled(self._space)
        return self._space

    @space.setter
    def space(self, space: AnySpace) -> None:
        self._space = space

    @property
    def shape(self) -> tuple[int, int, int]:
        """Samples, rows and columns: (B, r, n)."""
        return self.space.source.samples, self._count or 0, self._space.n

    @property
    def parts(self) -> Parts:
        """Coordinates in the frame of each part of the space."""
        if self._parts is not None and self._space is self._placed:
            # The usual case, quickly: at most the frames have grown.
            same = True
            for (home, explicit), part in zip(self._homes, self._parts, strict=True):
                if home.target is not None or home.explicit != explicit:
                    break
                same &= part.shape[-1] == home.size
            else:
                return self._parts if same else self._padded(self._parts)
        _ = tuple(self.space)  # an open space becomes an ordinary one
        parts = self._parts
        if parts is None:
            assert self._make is not None
            make, self._make = self._make, None
            parts = make(self)
        else:
            whole = zip(self._homes, parts, strict=True)
            parts = tuple(home.now(part, explicit) for (home, explicit), part in whole)
        self._placed, self._homes = self.space, homes(self.space)
        return self._padded(parts)

    def _padded(self, parts: Parts) -> Parts:
        """Keep and return coordinates in the frames of today."""
        whole = zip(self._homes, parts, strict=True)
        self._parts = tuple([home.padded(part) for (home, _), part in whole])
        return self._parts

    @property
    def coordinates(self) -> Plain:
        """All coordinates, those of one part of the space beside those of the next."""
        parts = self.parts
        return concatenate(parts)

    @property
    def is_open(self) -> bool:
        """Whether nothing has decided on the space yet."""
        if self._parts is not None:
            return False
        space = self.space
        members = space.parts if isinstance(space, Sum) else (space,)
        return any(isinstance(settled(p), Open) for p in members)

    def like(self, coordinates: Plain) -> Self:
        """Return vectors of the same space with these coordinates."""
        return type(self)(self.space, cut(coordinates, self.space))

    def requires_grad_(self) -> Self:
        """Request the gradient with respect to these rows, as for tokens."""
        self.needs_gradient = True
        return self

    def detached(self) -> Self:
        """Return the same vectors, without a gradient."""
        return type(self)(self.space, self.parts)


def cut(flat: Plain, space: AnySpace) -> Parts:
    """Return the coordinates in each part of a space, from all side by side."""
    return pieces(flat, [part.size for part in space])


def homes(space: AnySpace) -> tuple[tuple[Frame, bool], ...]:
    """Return the spaces in which new coordinates are placed, and whether each is explicit."""
    return tuple([(part, part.explicit) for part in space])


def inner(x: Coordinates, y: Coordinates) -> Plain:
    """Return all inner products, as plain numbers."""
    return total([a @ b.mT for a, b in pairs(x, y)])


class Entries(NamedTuple):
    """How many numbers are kept: entries of explicit spaces and plain matrices, and coordinates."""

    explicit: int
    coordinates: int


def count_entries(kept: Iterable[Coordinates | Tensor], growth: int = 1) -> Entries:
    """Return how many numbers some rows and plain matrices contain, to estimate memory.

    They are counted as if each frame had grown by a factor, at most to the whole space.
    """
    explicit = coordinates = 0
    for x in kept:
        if isinstance(x, Tensor):
            explicit += x.numel()
            continue
        for space, part in zip(x.space, x.parts, strict=True):
            if space.explicit:
                explicit += part.numel()
            else:
                samples, rows, _ = part.shape
                coordinates += samples * rows * min(growth * space.size, space.n)
    return Entries(explicit, coordinates)


def total(terms: Sequence[Plain]) -> Plain:
    """Return the sum of one or more tensors."""
    return sum(terms[1:], terms[0])


def aligned(vectors: Sequence[Coordinates]) -> list[Parts]:
    """Return the coordinates of each, in the frames of today."""
    parts = [x.parts for x in vectors]
    # What was drawn for the last can have enlarged the frame of the first.
    return [*(x.parts for x in vectors[:-1]), parts[-1]]


def pairs(x: Coordinates, y: Coordinates) -> list[tuple[Plain, Plain]]:
    """Return the coordinates of both, part by part."""
    first, second = aligned([x, y]) if x is not y else (x.parts, x.parts)
    return list(zip(first, second, strict=True))


def is_vector(value: Any) -> bool:
    """Return whether this is a tensor (n,), which acts on the entries of rows."""
    return isinstance(value, Tensor) and value.dim() == 1 and len(value) > 1
