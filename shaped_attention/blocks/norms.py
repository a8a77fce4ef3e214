"""Norms of the tokens, in the coordinates of the chain: RMS, and the centring of LayerNorm.

A norm divides each token by sqrt(mean square of its n entries + eps) and multiplies it by a gain.
LayerNorm subtracts the mean of the entries first. In the coordinates of X / sqrt n the mean square
is the squared length of a row. With the means in the first column (`State.means`), centring removes
the component along the constant vector: it subtracts h from the h_g of every group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shaped_attention.blocks.branch import Rows
from shaped_attention.numerics.primitives import (
    M,
    columns,
    concatenate,
    row_squares,
    sqrt,
    unit_rows,
)


def centred(rows: Sequence[Rows[M]]) -> list[Rows[M]]:
    """Subtract the means of the tokens over all groups, whose first columns are their means."""
    firsts = [columns(along, 0, 1) for along, *_ in rows]
    mean = (1.0 / len(firsts)) * sum(firsts[1:], firsts[0])
    return [
        [concatenate([first - mean, columns(along, 1, along.shape[-1])]), *rest]
        for first, (along, *rest) in zip(firsts, rows, strict=True)
    ]


def by_length(rows: M, eps: float) -> M:
    """Divide rows by sqrt(squared length + eps); with eps = 0 a row of zeros is unchanged."""
    return unit_rows(rows) if eps == 0.0 else rows / sqrt(row_squares(rows) + eps)


def by_mean_square(rows: M, eps: float) -> M:
    """Divide rows by sqrt(mean square of the entries + eps), as RMSNorm does."""
    size = rows.shape[-1]
    return math.sqrt(size) * by_length(rows, size * eps)


def divided(rows: Sequence[Rows[M]], eps: float, gain: Any) -> list[Rows[M]]:
    """Divide the rows of all groups by sqrt(mean square + eps), and multiply them by `gain`.

    The mean square is (1/g) sum of the groups' squared lengths. With eps = 0 a row of zeros is
    unchanged.
    """
    groups = len(rows)
    flat = [part for parts in rows for part in parts]
    if len(flat) == 1:
        return [[gain * by_length(flat[0], eps)]]
    if eps > 0.0:
        squares = [row_squares(part) for part in flat]
        length = sqrt((1.0 / groups) * sum(squares[1:], squares[0]) + eps)
        return [[gain * (part / length) for part in parts] for parts in rows]
    unit, stop = unit_rows(concatenate(flat)), 0
    result = []
    for parts in rows:
        here = []
        for part in parts:
            start, stop = stop, stop + part.shape[-1]
            here.append((gain * groups**0.5) * columns(unit, start, stop))
        result.append(here)
    return result
