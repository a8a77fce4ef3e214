"""Factors of Wishart matrices, and the Gaussian residual branch that every block ends with."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.kernels.jit import LANES, kernel
from shaped_attention.kernels.lanes import keep, lower_factor, multiply
from shaped_attention.kernels.threefry import fill_chi, fill_normals


@kernel
def factor_columns(m, dof):  # type: ignore[no-untyped-def]
    """Columns of the factor that `fill_wishart` writes: m, or dof when dof < m + 2."""
    return m if dof >= m + 2 else dof


@kernel
def fill_wishart(out, buffer, dof, key, first, step, slot):  # type: ignore[no-untyped-def]
    """Write B (m, columns) with B B^T ~ Wishart_m(dof, I) into the first columns of `out`.

    For dof >= m + 2 it is Bartlett's lower triangular factor: chi variables with dof, dof - 1,
    ... degrees of freedom (slot + 1) on the diagonal, normals (slot) below it, row by row
    (Bartlett 1933; Muirhead, *Aspects of Multivariate Statistical Theory*, thm 3.2.14). Below
    that the Gaussian matrix itself is drawn. `buffer` (rows, LANES) needs m (m + 1) + 1 rows.
    """
    m = out.shape[0]
    if dof >= m + 2:
        below = m * (m - 1) // 2
        fill_normals(buffer, below, 1.0, key, first, step, slot, 0)
        row = 0
        for i in range(m):
            for j in range(m):
                if j < i:
                    for p in range(LANES):
                        out[i, j, p] = buffer[row, p]
                    row += 1
                elif j > i:
                    for p in range(LANES):
                        out[i, j, p] = 0.0
        degrees = np.empty(m)
        for i in range(m):
            degrees[i] = dof - i
        fill_chi(buffer, degrees, key, first, step, slot + 1)
        for i in range(m):
            for p in range(LANES):
                out[i, i, p] = buffer[i, p]
    else:
        fill_normals(buffer, m * dof, 1.0, key, first, step, slot, 0)
        for i in range(m):
            for j in range(dof):
                for p in range(LANES):
                    out[i, j, p] = buffer[i * dof + j, p]


@kernel
def gaussian_branch(  # type: ignore[no-untyped-def]
    F, alive, mixed, mixed_lower, gamma, width, H, B, R, new, buffer, key, first, step, slot
):
    """Replace F by a factor of (lambda X + gamma Z)(lambda X + gamma Z)^T / n.

    X = sqrt(n) F Q and Z has n independent columns N(0, mixed mixed^T): the part of Z in the m
    directions of Q is mixed H, the rest has a Wishart_m(n - m) Gram (derived in
    `shaped_attention.blocks.branch`). H (m, m), B (m, m + 1), R (m, 2 m + 1), new (m, m) and
    buffer are scratch. Normals come from `slot`, the Wishart factor from `slot` + 1 and `slot` + 2.
    """
    m = F.shape[0]
    fill_normals(buffer, m * m, 1.0, key, first, step, slot, 0)
    for i in range(m):
        for j in range(m):
            for p in range(LANES):
                H[i, j, p] = buffer[i * m + j, p]
    rest = factor_columns(m, width - m)
    bartlett = width - m >= m + 2
    fill_wishart(B, buffer, width - m, key, first, step, slot + 1)
    multiply(mixed, H, m, R, 0, mixed_lower, False)
    multiply(mixed, B, rest, R, m, mixed_lower, bartlett)
    skip = math.sqrt(1.0 - gamma * gamma)
    scale = gamma / math.sqrt(width)
    for i in range(m):
        for j in range(m):
            for p in range(LANES):
                R[i, j, p] = skip * F[i, j, p] + scale * R[i, j, p]
        for j in range(m, m + rest):
            for p in range(LANES):
                R[i, j, p] *= scale
    lower_factor(R, m + rest, new)
    keep(alive, new, F)
