"""Claims in the abstract of arXiv 2601.21942: what noise does to one cluster and to antipodes.

L. Fedorov, M. Sander, R. Elie, P. Marion, M. Lauriere, "Clustering in deep stochastic transformers"
(2026). The model is that of `random_values`, which proves the limit and the law of two tokens.
"""

from __future__ import annotations

from sympy import Expr, Matrix, Symbol, diff, ones, symbols

from symbolic.claims.inner_products import BETA
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, imprecise, not_to_be_judged
from symbolic.claims.random_values import PAIR, SLOPE, WEIGHTS, D, Q, R, drift, growth

N, M, X = symbols("n m x", positive=True)
"""Numbers of tokens of two clusters; exp(beta)."""


def of_two_clusters(count: Expr, other: Expr) -> tuple[Matrix, Matrix]:
    """Return R and S of clusters of `count` and `other` tokens at opposite points."""
    r = Matrix([[1, -1], [-1, 1]])
    w = Matrix([[count * X, other / X], [count / X, other * X]])
    w = Matrix(2, 2, lambda i, j: w[i, j] / (w[i, 0] + w[i, 1]))
    return r, w * r * w.T


def speed(value: Expr) -> Expr:
    """Return r' of two tokens without noise, for V = value I and weights p and q."""
    pull = value * WEIGHTS * PAIR
    return sum(pull[i, 1 - i] - R * pull[i, i] for i in range(2))


def _collapse() -> Finding:
    at_antipode = SLOPE.subs(R, -1)
    return imprecise(
        "two tokens become antipodes with positive probability iff d - 2 < cosh(2 beta): so at "
        "d = 8 for beta = 2, but at beta = 1 (6 > cosh 2) they meet almost surely. Tokens near "
        "one cluster have S = 1 up to second order, and 1 - cos grows at the exponent "
        "-(d - 1)/d: for every N, d >= 2 and beta one cluster still attracts",
        part_that_holds=bool(at_antipode.subs({D: 8, BETA: 2}) < 0)
        and bool(at_antipode.subs({D: 2, BETA: 1}) < 0),
        part_that_fails=bool(at_antipode.subs({D: 8, BETA: 1}) > 0)
        and vanishes(growth(ones(2, 2), 1)[1] + (D - 1) / D),
    )


def _deterministic() -> Finding:
    value = Symbol("v", real=True)
    slope = diff(speed(value), R).subs(R, -1)
    return imprecise(
        "r' = 2 v q (1 - r^2) for V = v I, with the slope 4 v q at r = -1: antipodes repel for "
        "v > 0, but attract for v < 0 without any noise",
        part_that_holds=vanishes(slope - 4 * value * Q) and bool(slope.subs(value, 1) > 0),
        part_that_fails=bool(slope.subs(value, -1) < 0),
    )


def _formations() -> Finding:
    square = X**2
    tanh, cosh_of_two, cosh_squared = (
        (square - 1) / (square + 1),
        (square + 1 / square) / 2,
        (square + 1) ** 2 / (4 * square),
    )
    lengths = [(a * square - b) / (a * square + b) for a, b in ((N, M), (M, N))]
    equal, s = of_two_clusters(N, N)
    w = Matrix([[square, 1], [1, square]]) / (square + 1)
    across = growth(w * PAIR * w.T, -1)[1]
    inside = growth(s[0, 0] * ones(2, 2), 1)[1]
    away = drift(*of_two_clusters(N, M), 0, 1)
    return imprecise(
        "n tokens at c and m at -c have y = tanh(beta + log(n/m)/2) c and -tanh(beta - "
        "log(n/m)/2) c, and their cosine -1 has the drift (d - 1)/(2d) times the square of the "
        "difference of the two, which is 0 iff n = m. For n = m both clusters contract at the "
        "exponent -(d - 1)/d tanh(beta)^2, and 1 + cos across has the exponent (d - 2 - cosh(2 "
        "beta))/(d cosh(beta)^2), as for two tokens",
        part_that_holds=vanishes(drift(equal, s, 0, 1))
        and vanishes(across - (D - 2 - cosh_of_two) / (D * cosh_squared))
        and vanishes(inside + (D - 1) / D * tanh**2),
        part_that_fails=vanishes(away - (D - 1) / (2 * D) * (lengths[0] - lengths[1]) ** 2)
        and bool(away.subs({N: 2, M: 1, D: 3, X: 2}) > 0),
    )


CLAIMS = [
    Claim(
        "discrete-dynamics-converge",
        "As the number of layers goes to infinity, the discrete dynamics with tokenwise RMS norm "
        "converge to particles on the sphere with a common matrix-valued Brownian noise.",
        r"$dx_i=P_{x_i}\,dW\,y_i+\dots$",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "convergence of processes is measure theory; the limit's coefficients, which are what "
            "can be computed, are proven as random-values-limit"
        ),
    ),
    Claim(
        "noise-prevents-one-cluster",
        "Initialisation noise prevents the collapse to a single cluster.",
        r"$P(x_i-x_j\to0)=0$",
        Verdict.IMPRECISE,
        _collapse,
        "It makes the collapse of two tokens uncertain if d - 2 < cosh(2 beta); otherwise they "
        "still meet almost surely. One cluster attracts for every N, d and beta.",
        r"$0<P(r\to1)<1$ iff $d-2<\cosh2\beta$; otherwise $P(r\to1)=1$",
    ),
    Claim(
        "antipodes-of-deterministic-flows",
        "Unlike in deterministic attention flows, antipodes attract with positive probability.",
        r"$r'>0$ near $r=-1$",
        Verdict.IMPRECISE,
        _deterministic,
        "Unlike in flows with V = I: with V = -I antipodes attract without noise.",
        r"$r'=2vq(1-r^2)$ for $V=vI$: $-1$ repels iff $v>0$",
    ),
    Claim(
        "antipodal-formations",
        "Antipodal formations persist for more than two tokens.",
        r"$R_{ij}=-1$ for all $t$",
        Verdict.IMPRECISE,
        _formations,
        "Two opposite clusters of n tokens each persist, and attract iff d - 2 < cosh(2 beta), as "
        "two tokens do. Clusters of unequal size, such as those of three tokens, leave exact "
        "opposition at once; at large beta slowly.",
        r"drift of $R_{ij}$ at $-1$: $\frac{d-1}{2d}\big(\tanh(\beta+\tfrac12\log\tfrac nm)-"
        r"\tanh(\beta-\tfrac12\log\tfrac nm)\big)^2$",
    ),
    Claim(
        "noise-and-accuracy",
        "Without the noise of the initial weights accuracy degrades.",
        r"accuracy",
        Verdict.NOT_JUDGED,
        not_to_be_judged("an experiment with trained models, which this package does not train"),
    ),
]
