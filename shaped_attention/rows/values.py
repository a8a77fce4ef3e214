"""Plain matrices: tensors (B, r, c) of some samples, or matrices (r, c) of a graph.

What is written in operators, in primitives and in these functions runs on both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.operations import factorisations
from shaped_attention.numerics.primitives import column_sums, columns, concatenate, row_sums

if TYPE_CHECKING:
    Plain: TypeAlias = Tensor
    """A plain matrix. Its type is checked as that of tensors, whose operators a graph has too."""
else:
    Plain = Tensor | Matrix


def padded(x: Plain, before: int, after: int) -> Plain:
    """Add columns of zeros before and after those of a matrix."""
    if not before and not after:
        return x
    if isinstance(x, Tensor):
        return torch.constant_pad_nd(x, (before, after))
    first, last = ([zeros(x, x.shape[0], count)] if count else [] for count in (before, after))
    return concatenate([*first, x, *last])


def zeros(like: Plain, rows: int, columns: int) -> Plain:
    """Return zeros, in as many samples."""
    if isinstance(like, Tensor):
        return like.new_zeros(*like.shape[:-2], rows, columns)
    return like.graph.constant(np.zeros((rows, columns)))


def stacked(parts: Sequence[Plain]) -> Plain:
    """Put matrices below each other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts), -2)
    return factorisations.stacked(list(parts))


def some_rows(x: Plain, first: int, last: int) -> Plain:
    """Return the rows first, ..., last - 1."""
    if isinstance(x, Tensor):
        return x[..., first:last, :]
    return x if last - first == x.shape[0] else columns(x.mT, first, last).mT


def some_columns(x: Plain, first: int, last: int) -> Plain:
    """Return the columns first, ..., last - 1."""
    return x if last - first == x.shape[-1] else columns(x, first, last)


def pieces(x: Plain, sizes: Sequence[int]) -> tuple[Plain, ...]:
    """Split the columns of a matrix."""
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(some_columns(x, a, b) for a, b in pairwise(ends))


def whole_sum(x: Plain) -> Plain:
    """Return the sum of all entries, a matrix (1, 1)."""
    return column_sums(row_sums(x))


def in_one_row(x: Plain) -> Plain:
    """Return the entries of all rows one after the other, a matrix (1, r c)."""
    rows, width = x.shape[-2:]
    if isinstance(x, Tensor):
        return x.reshape(*x.shape[:-2], 1, rows * width)
    flat = x.value()
    return flat.graph.node("reshape", (flat.node,), (1, rows * width))


def split(x: Plain) -> tuple[Plain, float]:
    """Return a matrix and the number that it is multiplied by."""
    if isinstance(x, Matrix) and isinstance(x.coefficient, float | int):
        return Matrix(x.graph, x.node, 1.0, x.transposed), x.coefficient
    return x, 1.0


def is_number(x: object) -> bool:
    """Return whether this is a number or a parameter, the same for all rows."""
    if isinstance(x, Tensor | np.ndarray | np.generic):
        return x.ndim < 2 and math.prod(x.shape) == 1
    return not hasattr(x, "shape")


def differentiable(x: object) -> bool:
    """Return whether this is a plain matrix that a gradient may be wanted for."""
    return isinstance(x, Matrix) or (isinstance(x, Tensor) and x.requires_grad)
