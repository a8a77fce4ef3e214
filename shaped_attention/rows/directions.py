"""New orthonormal directions: rows split into their part along known ones and a triangular rest.

Rows C (r, k) become ``C = along P + lower E``, where P (p, k) has orthonormal rows (or rows of
zeros), E (r, k) has orthonormal rows that are orthogonal to those of P, and `lower` is lower
triangular. Projecting and orthogonalising twice keeps |E P^T| and |E E^T - I| at rounding level,
also for rows that differ by 1e-7 of their length; once does not (Giraud, Langou and Rozloznik,
Comput. Math. Appl. 50, 2005: "twice is enough").

A pivot of at most eps^(3/4) of its row counts as zero: the row of E and the column of `lower` are
then zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shaped_attention.numerics.operations.orthonormal import orthonormal
from shaped_attention.numerics.primitives import constant, row_squares, sqrt
from shaped_attention.rows.values import Plain, some_columns


class Directions(NamedTuple):
    """``C = along P + lower units``; `new` (r, 1) is 1 for the rows of units that are not zero.

    `along` is None if nothing is known.
    """

    along: Plain | None
    lower: Plain
    units: Plain
    new: Plain


def directions(rows: Plain, known: Plain | None = None) -> Directions:
    """Split rows along orthonormal directions and new ones."""
    lengths, along, rest = sqrt(row_squares(rows)), None, rows
    if known is not None:
        first = rows @ known.mT
        rest = rows - first @ known
        again = rest @ known.mT
        rest, along = rest - again @ known, first + again
    whole, count = orthonormal(rest, lengths, known), rows.shape[-2]
    last = whole.shape[-1] - 1
    return Directions(
        along, some_columns(whole, 0, count), some_columns(whole, count, last),
        some_columns(whole, last, last + 1),
    )  # fmt: skip


def spanning(rows: Plain) -> tuple[Plain, Plain]:
    """Return L and orthonormal rows E with C = L E, for rows C; as few as C has columns or rows."""
    count, width = rows.shape[-2:]
    if width > count:
        found = directions(rows)
        return found.lower, found.units
    return rows, constant(np.eye(width), like=rows)
