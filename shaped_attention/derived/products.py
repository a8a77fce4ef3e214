"""Inner products of rows, which decide what is drawn of either side; lengths, and shifts.

In the coordinates of X / sqrt n the mean square of a token is the squared length of its row. With
the means of the tokens in the first column, centring removes the component along that vector.
"""

from __future__ import annotations

from typing import Any

from shaped_attention.derived.parts import Blocks, Part, block_of, total
from shaped_attention.derived.spaces import Source, unify
from shaped_attention.numerics.primitives import columns, concatenate, row_squares, sqrt, unit_rows
from shaped_attention.numerics.scalars import product


def inner_product(a: Part, b: Part, reveal: Any) -> Any:
    """Return the inner products of the rows of one space, and draw what they need."""
    unify(a.space, b.space)
    space = a.space
    waiting = a.waits or b.waits
    if waiting and not space.segments:
        # The lengths of both are needed, so both are drawn in full.
        space.make_explicit()
    if a is b or waiting:
        a.started(reveal, complete=True)
        b.started(reveal, complete=True)
    else:
        first, second = (b, a) if _rather_second(a, b, reveal) else (a, b)
        first.started(reveal, complete=True)
        second.started(reveal, complete=False)
    left, right = a.single(), b.single()
    segments = range(len(space.segments))
    if left is not None and right is not None and not space.explicit:
        pairs = [
            (left.blocks[k], right.blocks[k])
            for k in segments
            if k < len(left.blocks) and k < len(right.blocks)
        ]
        core = total([p @ q.mT for p, q in pairs])
        return (a.left(a.sources) @ core) @ b.left(b.sources).mT
    terms = []
    for k in segments:
        p, q = (part.evaluate(lambda leaf: block_of(leaf, k)) for part in (a, b))  # noqa: B023
        if p is not None and q is not None:
            terms.append(p @ q.mT)
    return total(terms)


def _rather_second(a: Part, b: Part, reveal: Any) -> bool:
    """Return whether b is to be completed: more of it is drawn, or it meets several others."""
    known = [not x.undrawn for x in (a, b)]
    if known[0] != known[1]:
        return known[1]
    if known[0]:
        drawn = [s.drawn for s in b.leaves if isinstance(s, Source)]
        return all(x is not None and x.complete for x in drawn)
    counts = [reveal.uses(x.undrawn[0].name) for x in (a, b)]
    return counts[1] < counts[0]


def divided(rows: list[Blocks], eps: Any) -> list[Blocks]:
    """Divide rows by sqrt(squared length + eps), where None is 0; a length is over all blocks."""
    flat = [x for blocks in rows for x in blocks if x is not None]
    if eps is not None:
        length = sqrt(total([row_squares(x) for x in flat]) + eps)
        return [[None if x is None else x / length for x in blocks] for blocks in rows]
    unit, stop = unit_rows(concatenate(flat)), 0
    if len(flat) == 1:
        return [[None if x is None else unit for x in blocks] for blocks in rows]
    result = []
    for blocks in rows:
        here: Blocks = []
        for x in blocks:
            if x is not None:
                start, stop = stop, stop + x.shape[-1]
            here.append(None if x is None else columns(unit, start, stop))
        result.append(here)
    return result


def shifted(part: Part, blocks: Blocks, other: Any, factor: Any, root: float) -> Blocks:
    """Add the vector of ones, times a column or a number."""
    first, *rest = blocks
    if part.space.explicit:
        return [first + factor * other, *rest]
    weight = product(factor, root)
    moved = columns(first, 0, 1) + (product(weight, other))
    if first.shape[-1] == 1:
        return [moved, *rest]
    return [concatenate([moved, columns(first, 1, first.shape[-1])]), *rest]
