"""Claims on the flow of tokens on the sphere, and of their Gram matrix."""

from __future__ import annotations

from itertools import product

from sympy import Matrix, expand, symbols

from symbolic.claims.inner_products import XX, XY, gram_symbols
from symbolic.claims.ledger import Claim, Finding, Verdict, at, proven, tested


def _stays_on_the_sphere() -> Finding:
    rate = expand(2 * (XY - XY * XX))
    return proven(
        "d|x|^2/dt = 2 <x, P_x y> = 2 <x, y> (1 - |x|^2), which is 0 on the sphere, for every y",
        rate.subs(XX, 1) == 0,
        expand(rate - 2 * XY * (1 - XX)) == 0,
    )


def _gram_flow() -> Finding:
    """Check dV_ij = <x_i', x_j> + <x_i, x_j'> against the matrix form, N = 2, 3, any weights."""
    cases = []
    for count in (2, 3):
        c, _ = gram_symbols(count)
        p = Matrix(count, count, symbols(f"p_1:{count**2 + 1}"))
        m = p * c
        for i, j in product(range(count), repeat=2):
            direct = sum(
                p[i, k] * (c[k, j] - c[i, k] * c[i, j]) + p[j, k] * (c[k, i] - c[j, k] * c[j, i])
                for k in range(count)
            )
            form = m[i, j] + m[j, i] - (m[i, i] + m[j, j]) * c[i, j]
            cases.append(expand(direct - form) == 0)
    return tested("inner products of the projected field, row weights as symbols, N = 2, 3", *cases)


CLAIMS = [
    Claim(
        "sphere-invariant",
        "The projected field x' = P_x y keeps |x| = 1.",
        "",
        Verdict.PROVEN,
        _stays_on_the_sphere,
        passages=(at("002", 96), at("002", 99)),
    ),
    Claim(
        "gram-flow",
        "On the sphere dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V entrywise, M = p V.",
        r"$\dot V = M + M^\top - (\mathrm{diag}(M)1^\top + 1\mathrm{diag}(M)^\top)\circ V$",
        Verdict.TESTED,
        _gram_flow,
    ),
]
