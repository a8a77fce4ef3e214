"""Claims on tokens with equal cosines: their flow is one scalar equation."""

from __future__ import annotations

from sympy import Symbol, cancel, exp

from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Claim, Finding, Verdict, proven


def _equiangular(unnormalised: bool) -> Finding:
    count = Symbol("N", positive=True)
    g = Symbol("g", real=True)
    own, other = exp(BETA), exp(BETA * g)
    total = count if unnormalised else own + (count - 1) * other
    p_own, p_other = own / total, other / total
    # V = (1 - g) I + g 11^T: an off-diagonal and a diagonal entry of M = p V.
    off = p_own * g + p_other * (1 + (count - 2) * g)
    diagonal = p_own + (count - 1) * p_other * g
    rate = 2 * off - 2 * diagonal * g
    claimed = 2 * other * (1 - g) * ((count - 1) * g + 1) / total
    return proven(
        "Gram flow dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V at V = (1-g) I + g 11^T, any N",
        cancel(rate - claimed) == 0,
    )


CLAIMS = [
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
