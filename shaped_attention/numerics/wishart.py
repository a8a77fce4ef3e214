"""Factors of Wishart matrices on tiles."""

from __future__ import annotations

import numpy as np

from shaped_attention.numerics.jit import LANES, compiled_once, kernel
from shaped_attention.numerics.threefry import fill_chi, fill_normals


@kernel
def fill_bartlett(buf, out, rows, dof, work, key, paths, slot):  # type: ignore[no-untyped-def]
    """Write Bartlett's lower triangular factor of a Wishart_rows(dof, I) matrix at row `out`.

    The diagonal has chi variables with dof, dof - 1, ... degrees of freedom (slot + 1), and below
    it are normals (slot), row by row (Bartlett 1933; Muirhead, *Aspects of Multivariate
    Statistical Theory*, thm 3.2.14). It requires dof >= rows + 2 and scratch for the normals, one
    extra row, and the chi variables.
    """
    below = rows * (rows - 1) // 2
    fill_normals(buf[work : work + below + 1], below, 1.0, key, paths, slot, compiled_once(0))
    chi = work + below + 1
    degrees = np.empty(rows)
    for i in range(rows):
        degrees[i] = dof - i
    fill_chi(buf[chi : chi + rows], degrees, key, paths, slot + 1)
    row = work
    for i in range(rows):
        for p in range(LANES):
            buf[out + i * rows + i, p] = buf[chi + i, p]
        for j in range(i):
            for p in range(LANES):
                buf[out + i * rows + j, p] = buf[row, p]
            row += 1
        for j in range(i + 1, rows):
            for p in range(LANES):
                buf[out + i * rows + j, p] = 0.0
