"""Compiled faces of `shaped_attention.blocks.mlp`."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.kernels.jit import LANES, kernel
from shaped_attention.kernels.lanes import all_stopped, cholesky, gram_lower
from shaped_attention.kernels.threefry import fill_normals
from shaped_attention.kernels.vectormath import arccos
from shaped_attention.kernels.wishart import gaussian_branch

_COLUMNS = 64
"""Hidden units drawn at once in the compiled chain; even, so pairs of normals stay together."""


@kernel
def mlp_chain(  # type: ignore[no-untyped-def]
    F, alive, width, gamma, plus, minus, scale, key, first, step, slot
):
    """Advance factors by one layer, as `ShapedMLP.chain_step`; `scale` is c / n."""
    tiles, m = F.shape[0], F.shape[1]
    hidden = np.empty((m, LANES))
    normals = np.empty((m * _COLUMNS, LANES))
    buffer = np.empty((m * (m + 1) + 1, LANES))
    B = np.empty((m, m + 1, LANES))
    R = np.empty((m, 2 * m + 1, LANES))
    gram = np.empty((m, m, LANES))
    branch = np.empty((m, m, LANES))
    scratch = np.empty((m, m, LANES))
    for t in range(tiles):
        if all_stopped(alive[t]):
            continue
        sample = first + t * LANES
        tile = F[t]
        gram[:] = 0.0
        for start in range(0, width, _COLUMNS):
            count = min(_COLUMNS, width - start)
            fill_normals(normals, count * m, 1.0, key, sample, step, slot, start * m // 2)
            for column in range(count):
                for i in range(m):
                    for p in range(LANES):
                        hidden[i, p] = 0.0
                    for k in range(i + 1):
                        for p in range(LANES):
                            hidden[i, p] += tile[i, k, p] * normals[column * m + k, p]
                    for p in range(LANES):
                        hidden[i, p] = (plus if hidden[i, p] > 0.0 else minus) * hidden[i, p]
                    for j in range(i + 1):
                        for p in range(LANES):
                            gram[i, j, p] += hidden[i, p] * hidden[j, p]
        for i in range(m):
            for j in range(i + 1):
                for p in range(LANES):
                    gram[i, j, p] *= scale
        cholesky(gram, branch)
        gaussian_branch(
            tile, alive[t], branch, True, gamma, width,
            scratch, B, R, gram, buffer, key, sample, step, slot + 1,
        )  # fmt: skip


@kernel
def mlp_flow(F, decay):  # type: ignore[no-untyped-def]
    """Apply `ShapedMLP.flow` and factorise, in place; `decay` is exp(-kappa pi h)."""
    tiles, m = F.shape[0], F.shape[1]
    V = np.empty((m, m, LANES))
    for t in range(tiles):
        gram_lower(F[t], V)
        for i in range(m):
            for j in range(i):
                for p in range(LANES):
                    scale = math.sqrt(V[i, i, p] * V[j, j, p])
                    r = V[i, j, p] / scale if scale > 0.0 else 0.0
                    r = max(-1.0, min(1.0, r))
                    J = math.sqrt(1.0 - r * r) + r * (math.pi - arccos(r))
                    V[i, j, p] = decay * V[i, j, p] + (1.0 - decay) / math.pi * scale * J
        cholesky(V, F[t])
