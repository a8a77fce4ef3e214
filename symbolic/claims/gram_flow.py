"""Claims on the flow of the Gram matrix on the sphere, and of tokens with equal cosines."""

from __future__ import annotations

from itertools import product

from sympy import Expr, Matrix, Symbol, cancel, exp, expand, symbols

from symbolic.claims.inner_products import BETA, gram_symbols
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, tested


def velocity(gram: Matrix, p: Matrix) -> Matrix:
    """Return the rate M + M^T - (diag(M) 1^T + 1 diag(M)^T) V, entrywise, with M = p V."""
    m = p * gram
    return Matrix(*gram.shape, lambda i, j: m[i, j] + m[j, i] - (m[i, i] + m[j, j]) * gram[i, j])


def velocity_by_weights(gram: Matrix, weights: Matrix, causal: bool = False) -> Matrix:
    """Return the rate of the cosines for weights w_ij normalised by row, all or j <= i."""
    seen = Matrix(*gram.shape, lambda i, j: weights[i, j] if j <= i or not causal else 0)
    return velocity(gram, Matrix(*gram.shape, lambda i, j: seen[i, j] / sum(seen.row(i))))


def _gram_flow() -> Finding:
    """Check dV_ij = <x_i', x_j> + <x_i, x_j'> against the matrix form, N = 2, 3, any weights."""
    cases = []
    for count in (2, 3):
        c, _ = gram_symbols(count)
        p = Matrix(count, count, symbols(f"p_1:{count**2 + 1}"))
        form = velocity(c, p)
        for i, j in product(range(count), repeat=2):
            direct = sum(
                p[i, k] * (c[k, j] - c[i, k] * c[i, j]) + p[j, k] * (c[k, i] - c[j, k] * c[j, i])
                for k in range(count)
            )
            cases.append(expand(direct - form[i, j]) == 0)
    return tested("inner products of the projected field, row weights as symbols, N = 2, 3", *cases)


COUNT = Symbol("N", positive=True)
COSINE = Symbol("g", real=True)


def rate_of_the_cosine(unnormalised: bool) -> Expr:
    """Return g' of N tokens with equal cosines g, as the paper has it."""
    own, other = exp(BETA), exp(BETA * COSINE)
    total = COUNT if unnormalised else own + (COUNT - 1) * other
    return 2 * other * (1 - COSINE) * ((COUNT - 1) * COSINE + 1) / total


def _equiangular(unnormalised: bool) -> Finding:
    own, other = exp(BETA), exp(BETA * COSINE)
    total = COUNT if unnormalised else own + (COUNT - 1) * other
    p_own, p_other = own / total, other / total
    # V = (1 - g) I + g 11^T: an off-diagonal and a diagonal entry of M = p V.
    off = p_own * COSINE + p_other * (1 + (COUNT - 2) * COSINE)
    diagonal = p_own + (COUNT - 1) * p_other * COSINE
    rate = 2 * off - 2 * diagonal * COSINE
    return proven(
        "Gram flow dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V at V = (1-g) I + g 11^T, any N",
        cancel(rate - rate_of_the_cosine(unnormalised)) == 0,
    )


CLAIMS = [
    Claim(
        "gram-flow",
        "On the sphere dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V entrywise, M = p V.",
        r"$\dot V = M + M^\top - (\mathrm{diag}(M)1^\top + 1\mathrm{diag}(M)^\top)\circ V$",
        Verdict.TESTED,
        _gram_flow,
    ),
    Claim(
        "equiangular-sa",
        "Equal cosines g: SA has g' = 2 e^(beta g) (1-g) ((N-1) g + 1) / (e^beta + (N-1) "
        "e^(beta g)).",
        r"SA: $\dot g = \frac{2e^{\beta g}(1-g)((N-1)g+1)}{e^\beta+(N-1)e^{\beta g}}$",
        Verdict.PROVEN,
        lambda: _equiangular(unnormalised=False),
    ),
    Claim(
        "equiangular-usa",
        "Equal cosines g: USA has g' = (2/N) e^(beta g) (1-g) ((N-1) g + 1).",
        r"USA: $\dot g = \frac2Ne^{\beta g}(1-g)((N-1)g+1)$",
        Verdict.PROVEN,
        lambda: _equiangular(unnormalised=True),
    ),
]
