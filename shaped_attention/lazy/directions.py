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
    operands, along = [rows, torch.linalg.vector_norm(rows, dim=-1)], rows[..., :0]
    if known.shape[1]:
        first = rows @ known.mT
        rest = rows - first @ known
        again = rest @ known.mT
        operands, along = [rest - again @ known, operands[1], known], first + again
    recorder, count = recording_to.get(), rows.shape[1]
    if recorder is None:
        whole = orthonormal(*operands)
    else:
        whole = recorder.run(orthonormal, traced_orthonormal, *operands)
    return Directions(along, whole[..., :count], whole[..., count:-1], whole[..., -1])
