"""Claims on long contexts: N tokens with equal cosines and beta = gamma log N, as N -> oo.

With x = e^(beta (1 - g)) / N = N^(gamma (1 - g) - 1) the weights of SA are p = x q N and
q = 1 / (x N + N - 1). Everything is rational in x and 1/N; x tends to 0, 1 or infinity if
gamma (1 - g) is below, at or above 1.
"""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Rational,
    Symbol,
    cancel,
    exp,
    fraction,
    log,
    oo,
    simplify,
    sqrt,
    symbols,
)

from symbolic.claims.gram_flow import COSINE, COUNT, rate_of_the_cosine
from symbolic.claims.ledger import Claim, Finding, Verdict, proven
from symbolic.claims.normalisation_speeds import P, Q, square, with_softmax

RATIO, INVERSE, GAMMA = (Symbol(name, positive=True) for name in ("x", "e", "gamma"))
"""p / (N q); 1 / N; beta / log N."""


def in_the_ratio(expression: Expr) -> Expr:
    """Return an expression in p, q, N as a rational function of x and 1/N."""
    q = 1 / (RATIO * COUNT + COUNT - 1)
    return cancel(expression.subs({P: RATIO * COUNT * q, Q: q}).subs(COUNT, 1 / INVERSE))


def output_cosine() -> Expr:
    """Return the cosine of two outputs A_i, A_j = (p - q) u + q sum_k u_k of one attention."""
    product = square() - (P - Q) ** 2 * (1 - COSINE)
    return in_the_ratio(product / square())


def value(expression: Expr, ratio: Expr | int) -> Expr:
    """Return the limit as N -> oo and x tends to 0, 1 or infinity, however fast.

    Raises
    ------
    ArithmeticError
        If the expression is not continuous there, in x (or 1/x) and 1/N.
    """
    if ratio == oo:
        expression, ratio = cancel(expression.subs(RATIO, 1 / RATIO)), 0
    numerator, denominator = (
        part.subs({RATIO: ratio, INVERSE: 0}) for part in fraction(cancel(expression))
    )
    if denominator == 0:
        raise ArithmeticError("the limit depends on how x and 1/N tend to 0")
    return simplify(numerator / denominator)


def _one_step() -> Finding:
    cosine = output_cosine()
    scale = exp(GAMMA * log(COUNT) * (1 - COSINE)) / COUNT
    return proven(
        "the cosine of A_i and A_j is rational in x = N^(gamma (1 - rho) - 1) and 1/N, and "
        "continuous where they tend to 0, 1 or oo and to 0, for 0 < rho < 1",
        simplify(scale - COUNT ** (GAMMA * (1 - COSINE) - 1)) == 0,
        value(cosine, Integer(0)) == 1,
        simplify(value(cosine, Integer(1)) - 4 * COSINE / (1 + 3 * COSINE)) == 0,
        simplify(value(cosine, oo) - COSINE) == 0,
    )


def of_orthogonal_tokens() -> Expr:
    """Return the cosine of outputs at g = 0."""
    return cancel(output_cosine().subs(COSINE, 0))


def _orthogonal() -> Finding:
    written = (2 * RATIO - 2 * INVERSE + 1) / (RATIO**2 / INVERSE + 1 - INVERSE)
    small, share = symbols("s y", positive=True)
    scaled = cancel(written.subs({RATIO: sqrt(share) * small, INVERSE: small**2}))
    return proven(
        "the cosine is (2 x + 1 - 2/N)/(y + 1 - 1/N), y = x^2 N = N^(2 gamma - 1), x = "
        "N^(gamma - 1): at y = 1 it tends to 1/2, above to 0, since also x/y = N^(-gamma) does. "
        "The weights turn at gamma = 1 only",
        cancel(of_orthogonal_tokens() - written) == 0,
        simplify(scaled.subs(small, 0) - 1 / (1 + share)) == 0,
        value(in_the_ratio(P), Integer(0)) == 0,
        value(in_the_ratio(P), Integer(1)) == Rational(1, 2),
    )


def relative_speed() -> Expr:
    """Return g' / (2 g (1 - g)) of tokens with equal cosines under SA."""
    return in_the_ratio(Q * (1 + (COUNT - 1) * COSINE) / COSINE)


def _flow() -> Finding:
    speed, size = relative_speed(), in_the_ratio(square())
    return proven(
        "g' is rational in x = N^(gamma (1 - g) - 1) and 1/N, with the limits of 1/(1 + x). The "
        "limit of |A|^2 is between g and 1, so that normalised branches change no power of N",
        cancel(with_softmax(2 * Q * (1 - COSINE) * (1 + (COUNT - 1) * COSINE))
               - rate_of_the_cosine(unnormalised=False)) == 0,
        *[value(speed, at) == limit for at, limit in ((0, 1), (1, Rational(1, 2)), (oo, 0))],
        simplify(value(size, Integer(0)) - COSINE) == 0,
        value(size, oo) == 1,
    )  # fmt: skip


CLAIMS = [
    Claim(
        "long-context-step",
        "Abstract: attention in long contexts has a phase transition. For tokens with the cosine "
        "0 < rho < 1 and beta = gamma log N it is at gamma = 1 / (1 - rho): as N -> oo the cosine "
        "of two outputs of one attention tends to 1 below, to rho above and to 4 rho / (1 + 3 rho) "
        "at it (the threshold is that of Chen, Lin, Polyanskiy and Rigollet, arXiv 2510.05554).",
        r"$\beta_N=\gamma\log N$, $\gamma_c=\frac1{1-\rho}$",
        Verdict.PROVEN,
        _one_step,
    ),
    Claim(
        "long-context-orthogonal",
        "For orthogonal tokens, rho = 0, that cosine turns at gamma = 1/2: it tends to 1 below, "
        "1/2 at it and 0 above; each output is its own token only for gamma > 1.",
        r"$\rho=0$: $\gamma_c=\frac12$",
        Verdict.PROVEN,
        _orthogonal,
    ),
    Claim(
        "long-context-flow",
        "Tokens with equal cosines g under SA with beta = gamma log N: as N -> oo g' / (2 g (1 - "
        "g)) tends to 1 if gamma (1 - g) < 1, to 1/2 if it is 1, and to 0 above. For gamma <= 1 "
        "no cosine g > 0 stands still; for gamma > 1 those below 1 - 1/gamma do.",
        r"$\dot g\to2g(1-g)$ or $0$ for $\gamma(1-g)<1$ or $>1$",
        Verdict.PROVEN,
        _flow,
    ),
]
