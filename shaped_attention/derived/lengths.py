"""What a norm does to coordinates: division by lengths, and a shift along the vector of ones.

In the coordinates of X / sqrt n the mean square of a token is the squared length of its row. With
the means of the tokens in the first column, centring removes the component along that vector.
"""

from __future__ import annotations

from typing import Any

from shaped_attention.derived.parts import Blocks, Part, same, times, total
from shaped_attention.numerics.primitives import columns, concatenate, row_squares, sqrt, unit_rows


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
    weight = times(factor, root) if not same(root, 1.0) else factor
    moved = columns(first, 0, 1) + (other if same(weight, 1.0) else weight * other)
    if first.shape[-1] == 1:
        return [moved, *rest]
    return [concatenate([moved, columns(first, 1, first.shape[-1])]), *rest]
