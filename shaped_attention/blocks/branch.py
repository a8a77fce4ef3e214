"""Batched factors in torch, and the Gaussian residual branch that blocks end with.

These are the readable twins of `shaped_attention.kernels.lanes` and `.wishart`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.draws import Draws


def lower_factor(root: Float[Tensor, "B m c"]) -> Float[Tensor, "B m m"]:
    """Lower triangular L, diagonal >= 0, with L L^T = root root^T; needs c >= m.

    Householder reflections of the columns, one row after the other for the whole batch: for small
    matrices that is ten times faster than a library's factorisation of each.
    """
    rest = root.clone()
    m = root.shape[-2]
    for j in range(m):
        row = rest[..., j, j:]
        norm = torch.linalg.vector_norm(row, dim=-1)
        reflector = row.clone()
        # The sign that adds, so that nothing cancels.
        sign = torch.where(row[..., 0] < 0.0, -1.0, 1.0).to(root.dtype)
        reflector[..., 0] += sign * norm
        square = (reflector * reflector).sum(-1)
        scale = torch.where(square > 0.0, 2.0 / torch.where(square > 0.0, square, 1.0), 0.0)
        below = rest[..., j:, j:]
        along = (below @ reflector[..., None]) * scale[..., None, None]
        # The reflected row is -sign * norm e_1; turned, the diagonal is not negative.
        reflected = below - along * reflector[..., None, :]
        rest[..., j:, j:] = reflected
        rest[..., j:, j] = -sign[..., None] * reflected[..., 0]
    return rest[..., :m].tril()


def semidefinite_cholesky(v: Float[Tensor, "B m m"]) -> Float[Tensor, "B m m"]:
    """Lower triangular L with L L^T = v; a pivot at rounding level makes a zero column."""
    lower = torch.zeros_like(v)
    level = 64.0 * torch.finfo(v.dtype).eps
    for j in range(v.shape[-1]):
        column = v[..., j:, j] - (lower[..., j:, :j] @ lower[..., j, :j, None])[..., 0]
        pivot = column[..., 0]
        good = pivot > level * v[..., j, j]
        root = torch.where(good, pivot, 1.0).sqrt()
        lower[..., j:, j] = torch.where(good[..., None], column / root[..., None], 0.0)
    return lower


def total_factor(factors: Float[Tensor, "B g m m"]) -> Float[Tensor, "B m m"]:
    """A factor of V = (1/g) sum of V_h, from factors of the Grams V_h of g groups of columns."""
    groups = factors.shape[1]
    root = factors.transpose(1, 2).flatten(-2) / math.sqrt(groups)
    return lower_factor(root)


def gaussian_branch(
    factor: Float[Tensor, "B m m"],
    branch: Float[Tensor, "B m c"],
    gamma: float,
    width: int,
    draws: Draws,
) -> Float[Tensor, "B m m"]:
    """A factor of the covariance of ``lambda X + gamma Z`` with Z = (branch) times Gaussian.

    X = sqrt(n) F Q with orthonormal rows Q (m, n), and the n columns of Z are independent
    N(0, branch branch^T). Z = branch W with W (c, n) Gaussian; W Q^T is a Gaussian H (c, m), and
    what is orthogonal to Q has the Gram of a Gaussian (c, n - m), whose law is Wishart. So

        V' = D D^T + E E^T,  D = lambda F + gamma branch H / sqrt n,  E = gamma branch B / sqrt n

    with B B^T ~ Wishart_c(n - m, I), exactly, and no n-dimensional object.
    """
    m, columns = factor.shape[-1], branch.shape[-1]
    gaussian = draws.normal(columns, m)
    rest = draws.wishart_factor(columns, width - m)
    scale = gamma / math.sqrt(width)
    along = math.sqrt(1.0 - gamma**2) * factor + scale * (branch @ gaussian)
    return lower_factor(torch.cat([along, scale * (branch @ rest)], dim=-1))
