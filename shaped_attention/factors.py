"""Batched triangular factors in torch, the readable twins of `shaped_attention.kernels.lanes`."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.kernels.lanes import PIVOT_EPSILONS


def lower_factor(
    root: Float[Tensor, "B m c"], level: float | None = None
) -> Float[Tensor, "B m m"]:
    """Lower triangular L, diagonal >= 0, with L L^T = root root^T.

    Modified Gram-Schmidt, one row after the other for the whole batch: for small matrices that is
    ten times faster than a library's factorisation of each. A row whose part orthogonal to the rows
    before it is at most `level` (by default the rounding level) of its length has no direction of
    its own: its column of L is zero.
    """
    m = root.shape[-2]
    level = _rounding(root) if level is None else level
    lower = root.new_zeros(*root.shape[:-1], m)
    whole = torch.linalg.vector_norm(root, dim=-1)
    rest = root
    for j in range(m):
        length = torch.linalg.vector_norm(rest[..., 0, :], dim=-1)
        # A difference: what is not finite is no zero pivot.
        zero = length - level * whole[..., j] <= 0.0
        inverse = torch.where(zero, 0.0, 1.0 / torch.where(zero, 1.0, length))
        direction = rest[..., :1, :] * inverse[..., None, None]
        along = (rest * direction).sum(-1)
        lower[..., j:, j] = along
        rest = rest[..., 1:, :] - along[..., 1:, None] * direction
    return lower


def semidefinite_cholesky(v: Float[Tensor, "B m m"]) -> Float[Tensor, "B m m"]:
    """Lower triangular L with L L^T = v; a pivot at rounding level makes a zero column."""
    lower = torch.zeros_like(v)
    for j in range(v.shape[-1]):
        column = v[..., j:, j] - (lower[..., j:, :j] @ lower[..., j, :j, None])[..., 0]
        pivot = column[..., 0]
        zero = pivot - _rounding(v) * v[..., j, j] <= 0.0
        root = torch.where(zero, 1.0, pivot).sqrt()
        lower[..., j:, j] = torch.where(zero[..., None], 0.0, column / root[..., None])
    return lower


def _rounding(like: Tensor) -> float:
    return PIVOT_EPSILONS * torch.finfo(like.dtype).eps
