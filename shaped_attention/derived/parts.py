"""Rows of one space: linear expressions in Gaussian matrices and in known coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shaped_attention.derived.spaces import (
    DerivationError,
    Drawn,
    Source,
    Space,
    check_present,
    unify,
)
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.primitives import compress, concatenate, constant, is_one

Blocks: TypeAlias = list[Any]
"""Coordinates of rows in each segment of a frame; None for 0."""
Leaf: TypeAlias = Any
"""What an expression is made of: a `Source`, or a `Value`."""


class Value:
    """Rows of known coordinates, one list of blocks for each part, that `make` returns once.

    `whole` are the rows of which it is a function, if it commutes with rotations of the frame.
    """

    def __init__(
        self, make: Callable[[], list[Blocks]], whole: Any = None,
        function: Callable[[list[Blocks]], list[Blocks]] | None = None,
    ) -> None:  # fmt: skip
        self._make = make
        self.whole, self.function = whole, function
        self._known: list[Blocks] | None = None

    @property
    def waits(self) -> bool:
        """Whether nothing has been computed yet."""
        return self._known is None

    def made(self) -> list[Blocks]:
        """Compute the coordinates of each part."""
        return self._make()

    def blocks(self) -> list[Blocks]:
        """Return the coordinates of each part."""
        if self._known is None:
            self._known = self.made()
        return self._known


class ValuePart:
    """One part of a `Value`."""

    def __init__(self, value: Value, index: int) -> None:
        self.value, self.index = value, index

    def block(self, segment: int) -> Any:
        """Return the coordinates in a segment; None for 0."""
        blocks = self.value.blocks()[self.index]
        return blocks[segment] if segment < len(blocks) else None


class Part:
    """Rows of one space: a linear expression of leaves.

    `evaluate` replaces each leaf by the matrix that a function returns for it; None is 0.
    """

    def __init__(
        self, space: Space, leaves: Sequence[Leaf], evaluate: Callable[[Callable[..., Any]], Any]
    ) -> None:
        self._space, self.leaves, self.evaluate = space, tuple(dict.fromkeys(leaves)), evaluate
        self.only: Leaf = None
        self.signature: Hashable = id(self)
        self._blocks: Blocks | None = None

    @classmethod
    def of(cls, leaf: Leaf, space: Space) -> Part:
        """Return the rows that consist of one leaf."""
        part = cls(space, [leaf], lambda value: value(leaf))
        part.only = leaf
        if isinstance(leaf, Source):
            part.signature = id(leaf.root)
        return part

    @property
    def space(self) -> Space:
        """The space."""
        return self._space.now()

    @property
    def sources(self) -> list[Source]:
        """The Gaussian matrices, in the order in which they were drawn."""
        return sorted((x for x in self.leaves if isinstance(x, Source)), key=lambda x: x.start)

    @property
    def undrawn(self) -> list[Source]:
        """The Gaussian matrices of which nothing is drawn."""
        return [x for x in self.leaves if isinstance(x, Source) and x.drawn is None]

    @property
    def values(self) -> list[ValuePart]:
        """The leaves that are known coordinates, or functions."""
        return [x for x in self.leaves if isinstance(x, ValuePart)]

    @property
    def waits(self) -> bool:
        """Whether a leaf is a function, of which nothing is computed."""
        return any(x.value.waits for x in self.values)

    def applied(self, function: Callable[[Any], Any]) -> Part:
        """Apply a linear function of the rows."""
        inner = self.evaluate

        def evaluate(leaf: Callable[..., Any]) -> Any:
            value = inner(leaf)
            return None if value is None else function(value)

        return Part(self._space, self.leaves, evaluate)

    def plus(self, other: Part, count: int) -> Part:
        """Add other rows; `count` is the number of rows of the sum."""
        unify(self._space, other._space)
        a, b = self.evaluate, other.evaluate

        def evaluate(leaf: Callable[..., Any]) -> Any:
            terms = [repeated(x, count) for x in (a(leaf), b(leaf)) if x is not None]
            return total(terms) if terms else None

        return Part(self._space, [*self.leaves, *other.leaves], evaluate)

    def split(self, spaces: Sequence[Space]) -> list[Part]:
        """Return the rows of a direct sum whose vectors are these."""
        inner, leaves = self.evaluate, self.leaves
        if not all(isinstance(x, Source) for x in leaves):
            raise DerivationError("heads can only be joined with tokens before they are looked at")

        def part(k: int) -> Part:
            def evaluate(leaf: Callable[..., Any]) -> Any:
                return inner(lambda x: leaf(x.part(k, spaces)))

            return Part(spaces[k], [x.part(k, spaces) for x in leaves], evaluate)

        return [part(k) for k in range(len(spaces))]

    def left(self, sources: Sequence[Source]) -> Any:
        """Return the factor that multiplies some matrices, one below the other."""
        parts = [self.evaluate(lambda x, s=s: s.root if x is s else None) for s in sources]
        return concatenate(parts)

    def blocks(self, reveal: Any) -> Blocks:
        """Return the coordinates in each segment: all is drawn that has not been."""
        if self._blocks is None:
            self._blocks = self._completed(reveal)
        return self._blocks

    def _completed(self, reveal: Any) -> Blocks:
        for x in self.leaves:
            if isinstance(x, ValuePart):
                x.value.blocks()
            elif x.drawn is not None:
                x.drawn.finish()
        new, (left, drawn) = self.undrawn, (None, None)
        if new:
            left = self.left(new)
            narrow = compress(left) if reveal.shortens else left
            drawn = Drawn(new, narrow.shape[-1], reveal)
            # What is drawn in fewer rows must have no other use.
            for x in new if narrow is not left else ():
                x.gone = True
            left = narrow
            drawn.extend()

        def in_segment(k: int) -> Any:
            known = self.evaluate(lambda x: None if x in new else block_of(x, k))
            if drawn is None or k >= len(drawn.blocks):
                return known
            fresh = left @ drawn.blocks[k]
            return fresh if known is None else known + fresh

        result = [in_segment(k) for k in range(len(self.space.segments))]
        if drawn is not None:
            # Only now: a matrix is multiplied before the next is drawn, while it is in the cache.
            drawn.finish()
            result += [in_segment(k) for k in range(len(result), len(self.space.segments))]
        return result

    def started(self, reveal: Any, *, complete: bool) -> None:
        """Draw what is missing in the known segments, or all of it."""
        check_present(self.sources)
        new = self.undrawn
        if new:
            Drawn(new, rows_of(new), reveal)
        for x in self.leaves:
            if isinstance(x, ValuePart):
                x.value.blocks()
            elif complete:
                x.drawn.finish()
            else:
                x.drawn.extend()

    def single(self) -> Drawn | None:
        """Return what all leaves were drawn as, if it is one matrix and they are all of it."""
        drawn = {x.drawn if isinstance(x, Source) else None for x in self.leaves}
        only = drawn.pop()
        if drawn or only is None or rows_of(self.sources) != only.rows:
            return None
        return only


def rows_of(sources: Sequence[Source]) -> int:
    """Return the number of rows of matrices below each other."""
    return sum(x.rows for x in sources)


def block_of(leaf: Leaf, segment: int) -> Any:
    """Return the coordinates of a leaf in a segment; None for 0."""
    block = leaf.block(segment)
    return leaf.root @ block if isinstance(leaf, Source) and block is not None else block


def repeated(value: Any, count: int) -> Any:
    """Return `count` rows, from as many or from a single one."""
    if value.shape[-2] == count:
        return value
    if isinstance(value, Tensor):
        return value.expand(*value.shape[:-2], count, value.shape[-1])
    if isinstance(value, Matrix) and value.node.data is not None:
        return value.coefficient * value.graph.constant(np.repeat(value.node.data, count, axis=0))
    return constant(np.ones((count, 1)), like=value) @ value


def scaled_part(number: Any, part: Part) -> Part:
    """Multiply the rows by a number."""
    return part if is_one(number) else part.applied(lambda v: number * v)


def total(terms: Sequence[Any]) -> Any:
    """Return the sum of at least one term."""
    return sum(terms[1:], terms[0])


def same(a: Any, b: Any) -> bool:
    """Return whether two numbers are known to be equal before a program runs."""
    return a is b or (isinstance(a, float | int) and isinstance(b, float | int) and a == b)


def is_number(x: Any) -> bool:
    """Return whether an operand is a number, a parameter included."""
    if isinstance(x, Tensor | np.ndarray | np.generic):
        return x.ndim < 2 and math.prod(x.shape) == 1
    return not hasattr(x, "shape")


def is_column(x: Any) -> bool:
    """Return whether an operand has one number for each row."""
    return hasattr(x, "shape") and len(x.shape) >= 2 and x.shape[-1] == 1
