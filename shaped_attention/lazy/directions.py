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

from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.numerics.operations.orthonormal import orthonormal, traced_orthonormal

recording_to: ContextVar[Any] = ContextVar("recording_to", default=None)
"""The `Recorder` that writes down what happens, or None."""


class Directions(NamedTuple):
    """``C = along P + lower units``; `new` is 1 for the rows of units that are not zero."""

    along: Float[Tensor, "B r p"]
    lower: Float[Tensor, "B r r"]
    units: Float[Tensor, "B r k"]
    new: Float[Tensor, "B r"]


def directions(rows: Float[Tensor, "B r k"], known: Float[Tensor, "B p k"]) -> Directions:
    """Split rows along orthonormal directions and new ones."""
    length = torch.linalg.vector_norm(rows, dim=-1)
    if known.shape[1] == 0:
        return Directions(rows[..., :0], *_triangular(rows, length))
    along, rest = _off(rows, known)
    again, rest = _off(rest, known)
    first, units, _ = _triangular(rest, length)
    # A unit has no component along the known ones but rounding, which small pivots have enlarged.
    _, units = _off(units, known)
    second, units, new = _triangular(units, torch.linalg.vector_norm(units, dim=-1))
    return Directions(along + again, first @ second, units, new)


def _off(rows: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    along = rows @ known.mT
    return along, rows - along @ known


def _triangular(rows: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return L, E and whether each row of E is new; pivots are compared with `length` (B, r)."""
    recorder = recording_to.get()
    if recorder is None:
        whole = orthonormal(rows, length)
    else:
        whole = recorder.run(orthonormal, traced_orthonormal, rows, length)
    count = rows.shape[1]
    return whole[..., :count], whole[..., count:-1], whole[..., -1]
