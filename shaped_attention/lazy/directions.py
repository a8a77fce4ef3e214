"""New orthonormal directions: rows split into their part along known ones and a triangular rest.

Rows C (r, k) become ``C = along P + lower E``, where P (p, k) has orthonormal rows (or rows of
zeros), E (r, k) has orthonormal rows that are orthogonal to those of P, and `lower` is lower
triangular. Projecting and orthogonalising twice keeps |E P^T| and |E E^T - I| at rounding level,
also for rows that differ by 1e-7 of their length; once does not (Giraud, Langou and Rozloznik,
Comput. Math. Appl. 50, 2005: "twice is enough").

As everywhere in this package, a pivot of at most 64 eps of its row counts as zero: the row of E and
the column of `lower` are then zero.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.lapack import PIVOT_EPSILONS


class Directions(NamedTuple):
    """``C = along P + lower units``."""

    along: Float[Tensor, "B r p"]
    lower: Float[Tensor, "B r r"]
    units: Float[Tensor, "B r k"]


def directions(rows: Float[Tensor, "B r k"], known: Float[Tensor, "B p k"]) -> Directions:
    """Split rows along orthonormal directions and new ones."""
    length = torch.linalg.vector_norm(rows, dim=-1)
    if known.shape[1] == 0:
        return Directions(rows[..., :0], *_triangular(rows, length))
    along, rest = _off(rows, known)
    again, rest = _off(rest, known)
    first, units = _triangular(rest, length)
    # A unit has no component along the known ones but rounding, which small pivots have enlarged.
    _, units = _off(units, known)
    second, units = _triangular(units, torch.linalg.vector_norm(units, dim=-1))
    return Directions(along + again, first @ second, units)


def _off(rows: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    along = rows @ known.mT
    return along, rows - along @ known


def _triangular(rows: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return L and E with rows = L E; pivots are compared with `length` (B, r)."""
    level = PIVOT_EPSILONS * torch.finfo(rows.dtype).eps
    count = rows.shape[1]
    units = torch.zeros_like(rows)
    lower = rows.new_zeros(*rows.shape[:2], count)
    for i in range(count):
        row = rows[:, i : i + 1]
        done = units[:, :i]
        for _ in range(2 if i else 0):
            along, row = _off(row, done)
            lower[:, i : i + 1, :i] += along
        pivot = torch.linalg.vector_norm(row, dim=-1)
        zero = pivot - level * length[:, i : i + 1] <= 0.0
        lower[:, i, i] = torch.where(zero, 0.0, pivot)[:, 0]
        safe = torch.where(zero, 1.0, pivot)[..., None]
        units[:, i : i + 1] = torch.where(zero[..., None], 0.0, row / safe)
    return lower, units
