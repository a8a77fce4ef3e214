"""Compiled faces of `shaped_attention.blocks.attention`."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.kernels.jit import LANES, kernel
from shaped_attention.kernels.lanes import all_stopped, multiply, multiply_transposed
from shaped_attention.kernels.threefry import fill_normals
from shaped_attention.kernels.vectormath import exp
from shaped_attention.kernels.wishart import factor_columns, fill_wishart, gaussian_branch


@kernel
def attention_chain(  # type: ignore[no-untyped-def]
    F, alive, width, keys, gamma, logit_scale, w, projection, key, first, step, slot
):
    """Advance factors by one layer, as `ShapedAttention.chain_step`; w (m, m) is the centre."""
    tiles, m = F.shape[0], F.shape[1]
    buffer = np.empty((m * (m + 1) + 1, LANES))
    B = np.empty((m, m + 1, LANES))
    K = np.empty((m, m + 1, LANES))
    Y = np.empty((m, m, LANES))
    T = np.empty((m, m, LANES))
    branch = np.empty((m, m, LANES))
    R = np.empty((m, 2 * m + 1, LANES))
    row_max = np.empty(LANES)
    row_sum = np.empty(LANES)
    inner = factor_columns(m, keys)
    bartlett = keys >= m + 2
    for t in range(tiles):
        if all_stopped(alive[t]):
            continue
        sample = first + t * LANES
        tile = F[t]
        fill_wishart(B, buffer, keys, key, sample, step, slot)
        fill_normals(buffer, m * inner, 1.0, key, sample, step, slot + 2, 0)
        for i in range(m):
            for j in range(inner):
                for p in range(LANES):
                    K[i, j, p] = buffer[i * inner + j, p]
        multiply_transposed(B, K, inner, T, bartlett, False)
        multiply(tile, T, m, Y, 0, True, False)
        multiply_transposed(Y, tile, m, T, False, True)
        for a in range(m):
            row_max[:] = -np.inf
            row_sum[:] = 0.0
            for b in range(m):
                if w[a, b] > 0.0:
                    for p in range(LANES):
                        row_max[p] = max(row_max[p], T[a, b, p])
            for b in range(m):
                if w[a, b] > 0.0:
                    for p in range(LANES):
                        weight = exp(logit_scale * (T[a, b, p] - row_max[p]))
                        T[a, b, p] = weight
                        row_sum[p] += weight
            for p in range(LANES):
                row_sum[p] = 1.0 / row_sum[p]
            for b in range(m):
                if w[a, b] > 0.0:
                    for p in range(LANES):
                        T[a, b, p] = T[a, b, p] * row_sum[p] - w[a, b]
                else:
                    for p in range(LANES):
                        T[a, b, p] = 0.0
        multiply(T, tile, m, branch, 0, False, True)
        for i in range(m):
            for j in range(m):
                for p in range(LANES):
                    branch[i, j, p] += tile[i, j, p]
        next_slot = slot + 3
        if projection:
            fill_wishart(B, buffer, width, key, sample, step, next_slot)
            multiply(branch, B, m, Y, 0, False, width >= m + 2)
            for i in range(m):
                for j in range(m):
                    for p in range(LANES):
                        branch[i, j, p] = Y[i, j, p] / math.sqrt(width)
            next_slot += 2
        gaussian_branch(
            tile, alive[t], branch, False, gamma, width,
            T, B, R, Y, buffer, key, sample, step, next_slot,
        )  # fmt: skip


@kernel
def attention_sde(F, increments, row, multiplier, drift, gamma, tau0, heads, step):  # type: ignore[no-untyped-def]
    """Step of the factor without a mask.

    With C F the factor minus its column means and P = (C F)^T (C F), the noise is
    gamma^2 / (tau_0 m sqrt H) F dZ P; the drift is that of `ShapedAttention.factor_drift`.
    """
    tiles, m = F.shape[0], F.shape[1]
    CF = np.empty((m, m, LANES))
    P = np.empty((m, m, LANES))
    s = np.empty((m, LANES))
    mean = np.empty(LANES)
    square = np.empty(LANES)
    shift = np.empty((m, LANES))
    noise_scale = gamma * gamma / (tau0 * m * math.sqrt(heads))
    drift_scale = step * (gamma / tau0) ** 2
    for t in range(tiles):
        for j in range(m):
            mean[:] = 0.0
            for i in range(m):
                for p in range(LANES):
                    mean[p] += F[t, i, j, p]
            for i in range(m):
                for p in range(LANES):
                    CF[i, j, p] = F[t, i, j, p] - mean[p] / m
        square[:] = 0.0
        for i in range(m):
            for j in range(i + 1):
                for p in range(LANES):
                    P[i, j, p] = 0.0
                for k in range(m):
                    for p in range(LANES):
                        P[i, j, p] += CF[k, i, p] * CF[k, j, p]
                weight = 1.0 if i == j else 2.0
                for p in range(LANES):
                    square[p] += weight * P[i, j, p] * P[i, j, p]
                    P[j, i, p] = P[i, j, p]
        for i in range(m):
            for j in range(m):
                for k in range(m):
                    for p in range(LANES):
                        multiplier[t, i, j, p] += (
                            noise_scale * increments[t, row + i * m + k, p] * P[k, j, p]
                        )
        # s is centred, so that E A_2 F = q (s^T F) / (2 m tau_0^2)
        mean[:] = 0.0
        for i in range(m):
            for p in range(LANES):
                s[i, p] = 0.0
            for j in range(m):
                for p in range(LANES):
                    s[i, p] += CF[i, j, p] * CF[i, j, p]
            for p in range(LANES):
                mean[p] += s[i, p] / m
        for j in range(m):
            for p in range(LANES):
                shift[j, p] = 0.0
            for i in range(m):
                for p in range(LANES):
                    shift[j, p] += (s[i, p] - mean[p]) * F[t, i, j, p]
        for i in range(m):
            mean[:] = 0.0
            for j in range(m):
                for p in range(LANES):
                    mean[p] += F[t, i, j, p] * F[t, i, j, p]
            for j in range(m):
                for p in range(LANES):
                    drift[t, i, j, p] += drift_scale * (
                        0.5 * (1.0 - gamma * gamma / heads) / (m * m) * square[p] * F[t, i, j, p]
                        + 0.5 / m * mean[p] * shift[j, p]
                    )
