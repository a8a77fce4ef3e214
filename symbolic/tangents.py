"""The drift of values and tangents, from the recursion of two copies of the tokens.

A layer takes tokens X to f(X), and tangents X._k to the derivative of f along X._k. Two copies
X + e X._k and X + f X._l go through the same layer, each for itself: attention does not look from
one to the other. Their covariance (2m, 2m) is

    V + e (C_k + C_k^T) + O(e^2)      V + e C_k^T + f C_l + e f D_kl
    its transpose                     V + f (C_l + C_l^T) + O(f^2)

with C_k = X X._k^T / n and D_kl = X._k X._l^T / n. Its drift is known from `derive`, and in the
block between the copies the coefficient of 1 is the drift of V, that of f the drift of C_l, and
that of e f the drift of D_kl.
"""

from __future__ import annotations

from sympy import Matrix, Symbol, diff, zeros

from symbolic.algebra import symbolic_covariance
from symbolic.checks import Mask, allowed_sets, check_count, check_tokens
from symbolic.limit import Layer, derive


def two_copies(mask: Mask, tokens: int) -> list[list[bool]]:
    """Return the mask of two copies of the tokens, each of which sees itself only."""
    sets = allowed_sets(mask, check_tokens(tokens))
    rows = [[b in allowed for b in range(tokens)] for allowed in sets]
    nothing = [False] * tokens
    return [[*row, *nothing] for row in rows] + [[*nothing, *row] for row in rows]


def joint_covariance(tokens: int, tangents: int) -> Matrix:
    """Return U ((1 + p) m square) in symbols U[0,0], ...: rows of values, then of tangents."""
    return symbolic_covariance((1 + tangents) * tokens, "U")


def tangent_drift(layer: Layer, tokens: int, tangents: int = 1) -> Matrix:
    """Return the drift ((1 + p) m square) of U in the entries of `joint_covariance`.

    Parameters
    ----------
    layer
        Blocks for two copies of the tokens: attention with the mask `two_copies`.
    tokens, tangents
        Numbers m and p of the tokens and of their tangents.

    Raises
    ------
    NoLimitError, ValueError
        As in `derive`.
    """
    m, count = check_tokens(tokens), check_count("tangents", tangents)
    v = symbolic_covariance(2 * m)
    drift = derive(layer, 2 * m).drift[:m, m:]
    u, e, f = joint_covariance(m, count), Symbol("e"), Symbol("f")

    def between(k: int, l: int) -> Matrix:
        return u[k * m : (k + 1) * m, l * m : (l + 1) * m]

    result = zeros(u.rows, u.rows)
    for k in range(1 + count):
        for l in range(1 + count):
            first = e * (between(0, k) + between(k, 0)) if k else zeros(m, m)
            second = f * (between(0, l) + between(l, 0)) if l else zeros(m, m)
            upper = between(0, 0)
            upper += e * between(k, 0) if k else zeros(m, m)
            upper += f * between(0, l) if l else zeros(m, m)
            upper += e * f * between(k, l) if k and l else zeros(m, m)
            copies = Matrix([[between(0, 0) + first, upper], [upper.T, between(0, 0) + second]])
            places = [(a, b) for a in range(2 * m) for b in range(2 * m)]
            moved = drift.xreplace({v[a, b]: copies[a, b] for a, b in places})
            for variable, wanted in ((e, k), (f, l)):
                moved = diff(moved, variable) if wanted else moved
            result[k * m : (k + 1) * m, l * m : (l + 1) * m] = moved.subs({e: 0, f: 0})
    return result
