"""Claims in the abstract of arXiv 2604.01978: weights drawn afresh in each layer and head.

H. Koubbi, B. Geshkovski, P. Rigollet, "Homogenized transformers" (2026). A layer is N(x_i + eta
u_i), with u_i = (1/H) sum_h V_h y_i^h and y^h = w_h x. Scores have mean 0 and E s_ik s_jl = beta^2
R_ij R_kl. The law of u enters cosines by S = E[w R w^T], divided by H.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from mpmath import cosh, exp, inf, mpf, pi, quad, sqrt, tanh
from sympy import (
    Expr,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    Symbol,
    diff,
    expand,
    series,
    symbols,
)

from symbolic.claims.gram_flow import COUNT
from symbolic.claims.inner_products import BETA
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, not_to_be_judged, proven, tested
from symbolic.claims.random_values import (
    COLUMN,
    OTHER_COLUMN,
    PAIR,
    WIDTH,
    D,
    R,
    drift,
    growth,
    summed,
)

HEADS, HEAD, OTHER_HEAD = symbols("H h k", integer=True, positive=True)
"""The number of heads, and two of them."""


def covariance_of_heads() -> Expr:
    """Return d E V_h,ab V_k,ac: only the same entry of the same head has a covariance."""
    return KroneckerDelta(COLUMN, OTHER_COLUMN) * KroneckerDelta(HEAD, OTHER_HEAD)


def _heads() -> tuple[Expr, Expr]:
    """Return the terms in h, b of d E u_a u'_a given the y_h, and of the claimed value.

    u = (1/H) sum_h V_h y_h, for symbols H and d; rows of V_h are independent.
    """
    y, other = IndexedBase("y"), IndexedBase("Y")
    term = y[HEAD, COLUMN] * other[OTHER_HEAD, OTHER_COLUMN] * covariance_of_heads() / HEADS**2
    found = summed(summed(term, OTHER_COLUMN, WIDTH), OTHER_HEAD, HEADS)
    # The mean over heads of <y_h, y'_h>, divided by H.
    return found, y[HEAD, COLUMN] * other[HEAD, COLUMN] / HEADS / HEADS


def _many_heads() -> Finding:
    found, claimed = _heads()
    return proven(
        "u_i is linear in the V_h, which have mean 0 and are independent of queries and keys and "
        "of each other: given these E u_i = 0, and of the sums over two heads and two columns only "
        "equal ones are left, for symbols H and d, so that each term of E <u_i, u_j> is that of "
        "(1/(H d)) times the mean over heads of <y_i^h, y_j^h>; then the expectation over queries "
        "and keys. Ito's formula uses these moments alone",
        vanishes(found - claimed),
    )


def normalised_step() -> tuple[Expr, Expr]:
    """Return the terms of N(x + eta u) in eta^2: the factors of P u and of x.

    They depend on a = <x, u> and b = |P u|^2.
    """
    eta, a, b = symbols("eta a b", real=True)
    inverse = series(((1 + eta * a) ** 2 + eta**2 * b) ** Rational(-1, 2), eta, 0, 3).removeO()
    terms = (eta * inverse, (1 + eta * a) * inverse)
    along, outward = (expand(term).coeff(eta, 2) for term in terms)
    return along, outward


def _no_drift() -> Finding:
    a, b = symbols("a b", real=True)
    along, outward = normalised_step()
    covariance = Matrix(3, 3, lambda i, j: Symbol(f"C_{min(i, j)}{max(i, j)}"))
    tangential = along.coeff(a, 1) * covariance[1:, 0]
    isotropic = {covariance[i, j]: int(i == j) for i, j in product(range(3), repeat=2)}
    return proven(
        "N(x + eta u) = x + eta P u - eta^2 (<x, u> P u + |P u|^2 x / 2) + ...: with E u = 0 and "
        "E u u^T = C the tokens drift along the sphere by -P C x, and Gaussian values have C = "
        "(E S_ii / (H d)) I (random-values-heads). It takes isotropy: other C have a drift. And "
        "the cosines of tokens have one: (d - 2) S_ij / d at a right angle",
        vanishes(along + a),
        vanishes(outward + b / 2),
        tangential.subs(isotropic) == Matrix.zeros(2, 1),
        tangential == -covariance[1:, 0],
        vanishes(drift(PAIR, Matrix([[1, BETA], [BETA, 1]]), 0, 1).subs(R, 0) - (D - 2) * BETA / D),
    )


def powers() -> tuple[Expr, Expr]:
    """Return the powers of L in drift and variance of L layers, given a mean field of order 1.

    The step is L^-a, there are L^b heads, and their sum is divided by H^c.
    """
    a, b, c = symbols("a b c", nonnegative=True)
    return 1 - a + b - b * c, 1 - 2 * a + b - 2 * b * c


def _scalings() -> Finding:
    mean, variance = powers()
    b = Symbol("b", nonnegative=True)
    return proven(
        "step L^-a, L^b heads, their sum divided by H^c: L layers have a drift of order L^m and a "
        "variance of order L^v with v = 2 m - 1 - b, whatever a and c. A drift of order 1 leaves "
        "no noise (v = -1 - b < 0); noise of order 1 needs the mean field to be 0 (else m = "
        "(1 + b)/2 > 0), as Gaussian values make it. All tokens share the values of a layer, so "
        "the noise is common",
        vanishes(variance - (2 * mean - 1 - b)),
        bool((-1 - b).is_negative) and bool(((1 + b) / 2).is_positive),
    )


def expected_s() -> tuple[Expr, Expr]:
    """Return E S_ii and E S_ij of N tokens with equal cosines r, up to beta^2.

    S = r + (1 - r) w w^T and w_ik - 1/N = (s_ik - mean of row i)/N + ...; terms of second order are
    no part of E w w^T at this order, since the rows of w sum to 1.
    """
    total = COUNT + COUNT * (COUNT - 1) * R
    spread = BETA**2 * (COUNT - total / COUNT) / COUNT**2
    own, other = (R + (1 - R) * (1 / COUNT + cosine * spread) for cosine in (Integer(1), R))
    return own, other


def claimed_speed() -> Expr:
    """Return the drift of the cosine r of equiangular tokens that the ledger claims."""
    spread = (1 - R) ** 2 * BETA**2 * (COUNT - 1) / COUNT**2
    return (1 - R) / D * ((D - 2 - R) * ((COUNT - 1) * R + 1) / COUNT - R * (1 + R) * spread)


def _mean(function: Callable[[mpf], mpf]) -> mpf:
    """Return the mean of a function of a standard normal number."""
    return quad(lambda z: function(z) * exp(-z * z / 2), [-inf, 0, inf]) / sqrt(2 * pi)


def _trade_offs() -> Finding:
    own, other = expected_s()
    speed = drift(PAIR, Matrix([[own, other], [other, own]]), 0, 1)
    slower = 2 * BETA * R * (1 + R) * (1 - R) ** 3 * (COUNT - 1) / (D * COUNT**2)
    beta, r = mpf("0.05"), mpf("0.3")
    square = _mean(lambda z: tanh(beta * sqrt((1 - r) / 2) * z) ** 2)
    exact = r + (1 - r) * (1 + square) / 2
    return proven(
        "E (w w^T)_ij = 1/N + beta^2 R_ij (tr R - 1^T R 1/N)/N^2 + O(beta^4) by the covariance of "
        "the scores (terms of third order are odd in the queries), and the drift follows. At a "
        "right angle it is (d - 2)/(d N); at acute angles beta slows it. E S_ii of two tokens "
        "agrees with its integral over a Gaussian difference of scores",
        vanishes(speed - claimed_speed()),
        vanishes(claimed_speed().subs(R, 0) - (D - 2) / (D * COUNT)),
        vanishes(diff(claimed_speed(), BETA) + slower),
        bool(abs(exact - own.subs({COUNT: 2, R: r, BETA: beta})) < beta**4),
    )


FLAT, SQUARE = symbols("f m", positive=True)
"""E cosh(beta Z)^-4 and E tanh(beta Z)^2 of a standard normal Z."""


def difference_of_scores(token: int) -> dict[int, int]:
    """Return a_i = s_i1 - s_i2 of token i: the factor of each s_ik, tokens 0 and 1."""
    return {0: 1, 1: -1}


def covariance_of_differences(i: int, j: int) -> Expr:
    """Return E a_i a_j, by E s_ik s_jl = beta^2 R_ij R_kl."""
    pairs = product(difference_of_scores(i).items(), difference_of_scores(j).items())
    return BETA**2 * sum(x * y * PAIR[i, j] * PAIR[k, l] for (k, x), (l, y) in pairs)


def mixed_by_differences() -> Expr:
    """Return <y_1, y_2> if w_i1 / w_i2 = exp(a_i), with t_i = tanh(a_i / 2) as symbols."""
    t = symbols("t_1:3", real=True)
    w = Matrix(2, 2, lambda i, k: (1 + difference_of_scores(i)[k] * t[i]) / 2)
    return expand((w * PAIR * w.T)[0, 1] - R - (1 - R) * (1 + t[0] * t[1]) / 2)


def antipode() -> Expr:
    """Return d times the exponent of 1 + r of two tokens at the antipode.

    S_ij = r + (1 - r) (1 + E tanh(a_i/2) tanh(a_j/2))/2, where a_i = s_i1 - s_i2 is Gaussian with
    E a_i^2 = 2 beta^2 (1 - r) and, for i != j, E a_i a_j = 2 beta^2 (1 - r) r; near r = -1 the two
    means add up to beta^2 (1 + r) f + ....
    """
    own = R + (1 - R) * (1 + SQUARE) / 2
    other = R + (1 - R) * (1 - SQUARE + BETA**2 * (1 + R) * FLAT) / 2
    return D * growth(Matrix([[own, other], [other, own]]), -1)[1]


def exponent_at(dimension: int, beta: float) -> mpf:
    """Return the value of `antipode`."""
    flat = _mean(lambda z: cosh(beta * z) ** -4)
    square = _mean(lambda z: tanh(beta * z) ** 2)
    return mpf(antipode().subs({D: dimension, BETA: beta, FLAT: flat, SQUARE: square}))


def _mitigated() -> Finding:
    exponent = antipode()
    return tested(
        "one cluster attracts for all d, N and beta: tokens near it have S = 1 up to second order, "
        "so the exponent of 1 - cos is -(d - 1)/d, over H. At the antipode that of 1 + cos is ((d "
        "- 3)(1 + beta^2 f) - (d - 1) m)/d, f = E cosh(beta Z)^-4, m = E tanh(beta Z)^2 < 1: "
        "negative for d = 2 and 3, growing with d, and for d = 4 positive at 13 values of beta "
        "from 1/16 to 64, the least 0.11/4 near 1.8. Long contexts delay: 1/N at a right angle",
        vanishes(growth(Matrix([[1, 1], [1, 1]]), 1)[1] + (D - 1) / D),
        mixed_by_differences() == 0,
        *[
            vanishes(covariance_of_differences(i, j) - 2 * BETA**2 * (1 - R) * PAIR[i, j])
            for i, j in product(range(2), repeat=2)
        ],
        vanishes(exponent - (D - 3) * (1 + BETA**2 * FLAT) + (D - 1) * SQUARE),
        bool(expand(exponent.subs(D, 2)).is_negative and expand(exponent.subs(D, 3)).is_negative),
        vanishes(diff(exponent, D) - (1 + BETA**2 * FLAT - SQUARE)),
        *[exponent_at(4, mpf(2) ** (k / mpf(2))) > 0.1 for k in (-8, -4, -2, *range(8), 10, 12)],
    )


CLAIMS = [
    Claim(
        "random-values-heads",
        "A layer (1/H) sum_h V_h y_i^h of H heads with independent random queries and keys, and "
        "Gaussian value matrices of mean 0, has no drift before the correction of the norm, and "
        "the covariance of one head with S = E[w R w^T], divided by H.",
        r"$E\,u_i=0$, $E\,u_iu_j^\top=\frac1{Hd}E[wRw^\top]_{ij}I$",
        Verdict.PROVEN,
        _many_heads,
    ),
    Claim(
        "homogenized-limit",
        "The dynamics have a homogenized limit; the mean field of the stochastic one solves a "
        "stochastic nonlinear Fokker-Planck equation.",
        r"$d\mu_t=\dots$",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "convergence of processes and of conditional laws is measure theory; the coefficients "
            "for Gaussian values are proven as random-values-limit and random-values-heads"
        ),
    ),
    Claim(
        "deterministic-or-stochastic",
        "Depending on the joint scaling of depth L, step and number of heads the limit is "
        "deterministic or stochastic with common noise.",
        r"drift $L^m$, variance $L^v$: $v=2m-1-b$ for $H=L^b$",
        Verdict.PROVEN,
        _scalings,
    ),
    Claim(
        "gaussian-drift-vanishes",
        "In the Gaussian setting the limiting drift of the tokens along the sphere vanishes.",
        r"$E\,\langle x,u\rangle P_xu=P_xCx=0$",
        Verdict.PROVEN,
        _no_drift,
    ),
    Claim(
        "collapse-by-dimension-length-temperature",
        "Dimension, context length and temperature trade off in the collapse. Computed: with many "
        "heads and small beta the cosine r of N equiangular tokens has the drift (1 - r)/d ((d - 2 "
        "- r)((N - 1) r + 1)/N - r (1 + r)(1 - r)^2 beta^2 (N - 1)/N^2), up to O(beta^4), over H.",
        r"$\frac{1-r}d\big((d-2-r)\frac{(N-1)r+1}N-\beta^2r(1+r)(1-r)^2\frac{N-1}{N^2}\big)$",
        Verdict.PROVEN,
        _trade_offs,
    ),
    Claim(
        "clustering-mitigated",
        "There are regimes in which clustering is mitigated. Computed, for many heads: one cluster "
        "attracts in every regime; two tokens can also end as antipodes for d <= 3, whatever beta, "
        "and meet almost surely for d >= 4.",
        r"$(d-3)(1+\beta^2E\cosh^{-4}\beta Z)<(d-1)E\tanh^2\beta Z$ iff $d\le3$",
        Verdict.TESTED,
        _mitigated,
    ),
]
