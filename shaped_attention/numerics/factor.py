"""Factorisations in torch and NumPy, the twins of those of `tile_algebra`.

Everywhere the same rule applies to singular matrices: a pivot below 64 eps of its row is zero, and
so is its column. Equal tokens then remain equal, and all executors follow the same path.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics.tile_algebra import PIVOT, PIVOT_EPSILONS

Array: TypeAlias = NDArray[np.float64]


def lower_factor(root: Float[Tensor, "*B m c"]) -> Float[Tensor, "*B m m"]:
    """Return the lower triangular L, diagonal >= 0, with L L^T = root root^T.

    Modified Gram-Schmidt on the rows, for the whole batch at once: small singular values keep the
    relative accuracy that forming root root^T would lose. If the part of a row orthogonal to the
    previous rows is at most 64 eps of its length, the column is zero.
    """
    m = root.shape[-2]
    level = PIVOT_EPSILONS * torch.finfo(root.dtype).eps
    original = torch.linalg.vector_norm(root, dim=-1)
    rest = root
    columns = []
    for j in range(m):
        row = rest[..., 0, :]
        length = torch.linalg.vector_norm(row, dim=-1)
        # Tested as a difference, so that a non-finite pivot does not count as zero.
        zero = length - level * original[..., j] <= 0.0
        unit = torch.where(zero[..., None], 0.0, row / torch.where(zero, 1.0, length)[..., None])
        below = (rest[..., 1:, :] @ unit[..., None])[..., 0]
        head = root.new_zeros(*root.shape[:-2], j)
        diagonal = torch.where(zero, 0.0, length)[..., None]
        columns.append(torch.cat([head, diagonal, below], dim=-1))
        rest = rest[..., 1:, :] - below[..., None] * unit[..., None, :]
    return torch.stack(columns, dim=-1)


def gram_schmidt(rest: Array, out: Array, level: float = PIVOT) -> None:
    """Write the `lower_factor` of one matrix, with a given pivot level; overwrite `rest`."""
    out.fill(0.0)
    original = np.linalg.norm(rest, axis=1)
    update = np.empty_like(rest)
    for j, unit in enumerate(rest):
        length = float(np.linalg.norm(unit))
        if length - level * original[j] <= 0.0:
            continue
        unit /= length
        below = rest[j + 1 :]
        np.matmul(below, unit, out=out[j + 1 :, j])
        out[j, j] = length
        np.multiply(out[j + 1 :, j, None], unit, out=update[j + 1 :])
        below -= update[j + 1 :]


def semidefinite_cholesky(v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """Return the lower triangular L with L L^T = v; a pivot at rounding level has a zero column."""
    level = PIVOT_EPSILONS * torch.finfo(v.dtype).eps
    columns: list[Tensor] = []
    for j in range(v.shape[-1]):
        column = v[..., j:, j]
        for k, done in enumerate(columns):
            column = column - done[..., j - k :] * done[..., j - k, None]
        pivot = column[..., 0]
        zero = pivot - level * v[..., j, j] <= 0.0
        root = torch.where(zero, 1.0, pivot).sqrt()
        columns.append(torch.where(zero[..., None], 0.0, column / root[..., None]))
    padded = [torch.nn.functional.pad(column, (k, 0)) for k, column in enumerate(columns)]
    return torch.stack(padded, dim=-1)
