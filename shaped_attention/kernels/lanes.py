"""Small-matrix algebra on tiles (rows, columns, LANES): one operation on all lanes at once.

Triangular factors are common here, and a product that skips their zeros costs half: `a_lower`
and `b_lower` say that a factor is lower triangular.
"""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.kernels.jit import LANES, kernel

PIVOT_EPSILONS = 64.0
"""Machine epsilons of its row up to which a pivot is zero, in every factorisation."""

_PIVOT_LEVEL = PIVOT_EPSILONS * float(np.finfo(np.float64).eps)


@kernel
def multiply(A, B, columns, out, start, a_lower, b_lower):  # type: ignore[no-untyped-def]
    """Write A B, for the first `columns` columns of B, into `out` from column `start` on."""
    rows, inner, _ = A.shape
    for i in range(rows):
        for j in range(columns):
            for p in range(LANES):
                out[i, start + j, p] = 0.0
            stop = min(i + 1, inner) if a_lower else inner
            for k in range(j if b_lower else 0, stop):
                for p in range(LANES):
                    out[i, start + j, p] += A[i, k, p] * B[k, j, p]


@kernel
def multiply_transposed(A, B, inner, out, a_lower, b_lower):  # type: ignore[no-untyped-def]
    """out = A B^T, summed over the first `inner` columns of both."""
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            for p in range(LANES):
                out[i, j, p] = 0.0
            stop = min(i + 1, inner) if a_lower else inner
            stop = min(j + 1, stop) if b_lower else stop
            for k in range(stop):
                for p in range(LANES):
                    out[i, j, p] += A[i, k, p] * B[j, k, p]


@kernel
def lower_factor(R, columns, out):  # type: ignore[no-untyped-def]
    """Lower triangular L with L L^T = R R^T, by modified Gram-Schmidt on the rows of R.

    R (m, c, LANES), of which the first `columns` columns count, is overwritten. Small singular
    values keep the relative accuracy that forming R R^T would square away. A row whose part
    orthogonal to the rows before it is at rounding level (`PIVOT_EPSILONS`) has no direction of its
    own: its column of L is zero.
    """
    m = R.shape[0]
    square = np.empty(LANES)
    whole = np.empty(LANES)
    inverse = np.empty(LANES)
    for j in range(m):
        square[:] = 0.0
        for c in range(columns):
            for p in range(LANES):
                square[p] += R[j, c, p] * R[j, c, p]
        for p in range(LANES):
            whole[p] = square[p]
        for k in range(j):
            for p in range(LANES):
                whole[p] += out[j, k, p] * out[j, k, p]
        for p in range(LANES):
            length = math.sqrt(square[p])
            # A difference: what is not finite is no zero pivot.
            zero = length - _PIVOT_LEVEL * math.sqrt(whole[p]) <= 0.0
            inverse[p] = 0.0 if zero else 1.0 / length
        for i in range(j):
            for p in range(LANES):
                out[i, j, p] = 0.0
        for i in range(j, m):
            for p in range(LANES):
                out[i, j, p] = 0.0
        for c in range(columns):
            for p in range(LANES):
                direction = R[j, c, p] * inverse[p]
                out[j, j, p] += R[j, c, p] * direction
                R[j, c, p] = direction
        for i in range(j + 1, m):
            for c in range(columns):
                for p in range(LANES):
                    out[i, j, p] += R[i, c, p] * R[j, c, p]
            for c in range(columns):
                for p in range(LANES):
                    R[i, c, p] -= out[i, j, p] * R[j, c, p]


@kernel
def cholesky(V, out):  # type: ignore[no-untyped-def]
    """Lower triangular L with L L^T = V for positive semidefinite V (its lower half is read).

    A pivot, which is a square, at rounding level (`PIVOT_EPSILONS` times V_jj) is a zero
    eigenvalue: its column is set to zero, so a singular V passes (Higham, *Accuracy and Stability*,
    2002, section 10.3).
    """
    m = V.shape[0]
    inverse = np.empty(LANES)
    for j in range(m):
        for i in range(j, m):
            for p in range(LANES):
                out[i, j, p] = V[i, j, p]
            for k in range(j):
                for p in range(LANES):
                    out[i, j, p] -= out[i, k, p] * out[j, k, p]
        for p in range(LANES):
            zero = out[j, j, p] - _PIVOT_LEVEL * V[j, j, p] <= 0.0
            inverse[p] = 0.0 if zero else 1.0 / math.sqrt(out[j, j, p])
        for i in range(j, m):
            for p in range(LANES):
                out[i, j, p] *= inverse[p]
        for i in range(j):
            for p in range(LANES):
                out[i, j, p] = 0.0


@kernel
def gram_lower(F, out):  # type: ignore[no-untyped-def]
    """The lower half of out = F F^T."""
    m, inner, _ = F.shape
    for i in range(m):
        for j in range(i + 1):
            for p in range(LANES):
                out[i, j, p] = 0.0
            for k in range(inner):
                for p in range(LANES):
                    out[i, j, p] += F[i, k, p] * F[j, k, p]


@kernel
def keep(alive, new, old):  # type: ignore[no-untyped-def]
    """Overwrite `old` by `new` in the lanes that are alive (1.0); the others (0.0) stay."""
    for i in range(old.shape[0]):
        for j in range(old.shape[1]):
            for p in range(LANES):
                old[i, j, p] = new[i, j, p] if alive[p] > 0.5 else old[i, j, p]


@kernel
def stop_outside(F, alive, stopping_time, radius, time):  # type: ignore[no-untyped-def]
    """Stop the living lanes of all tiles with |F F^T| >= radius (Frobenius norm) at this time.

    Since |V| <= tr V = |F|^2, the norm itself is computed only where the trace reaches radius.
    """
    tiles, m, inner, _ = F.shape
    trace = np.empty(LANES)
    V = np.empty((m, m, LANES))
    for t in range(tiles):
        trace[:] = 0.0
        for i in range(m):
            for k in range(inner):
                for p in range(LANES):
                    trace[p] += F[t, i, k, p] * F[t, i, k, p]
        near = 0
        for p in range(LANES):
            near += 1 if trace[p] >= radius else 0
        if near > 0:
            gram_lower(F[t], V)
            for p in range(LANES):
                total = 0.0
                for i in range(m):
                    total += V[i, i, p] * V[i, i, p]
                    for j in range(i):
                        total += 2.0 * V[i, j, p] * V[i, j, p]
                if alive[t, p] > 0.5 and math.sqrt(total) >= radius:
                    alive[t, p] = 0.0
                    stopping_time[t, p] = time


@kernel
def all_stopped(alive):  # type: ignore[no-untyped-def]
    """Whether no lane of a tile is alive."""
    living = 0.0
    for p in range(LANES):
        living += alive[p]
    return living == 0.0
