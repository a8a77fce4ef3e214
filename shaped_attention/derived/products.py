"""Inner products of rows, which decide what is drawn of either side."""

from __future__ import annotations

from typing import Any

from shaped_attention.derived.parts import Part, block_of, total
from shaped_attention.derived.spaces import Source, unify


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
    """Return whether b is to be completed: it is further drawn, or meets several others."""
    known = [not x.undrawn for x in (a, b)]
    if known[0] != known[1]:
        return known[1]
    if known[0]:
        drawn = [s.drawn for s in b.leaves if isinstance(s, Source)]
        return all(x is not None and x.complete for x in drawn)
    counts = [reveal.uses(x.undrawn[0].name) for x in (a, b)]
    return counts[1] < counts[0]
