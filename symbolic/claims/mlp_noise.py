"""Claims in the abstract of arXiv 2604.26898, on synchronisation by the noise of an MLP.

A. Agazzi, G. Bruno, E. Mosig Garcia, S. Saviozzi, M. Romito, "Stochastic scaling limits and
synchronization by noise in deep transformer models" (2026).

A wide MLP with fresh Gaussian weights is noise with S_ij = kappa(R_ij), kappa(r) = E phi(z) phi(w)
for standard normal z, w of covariance r, scaled to kappa(1) = 1. What decides is k = kappa'(1) =
E phi'^2 / E phi^2.
"""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Matrix,
    Symbol,
    cancel,
    cos,
    exp,
    expand,
    factor,
    integrate,
    oo,
    pi,
    simplify,
    sin,
    sqrt,
    symbols,
    tanh,
)

from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, imprecise, not_to_be_judged, proven
from symbolic.claims.random_mlp import A, K, attraction_of_one_cluster
from symbolic.claims.random_values import PAIR, D, R, drift, growth

SLOPE = Symbol("k", positive=True)
"""kappa'(1)."""


def at_end(end: int) -> tuple[Expr, Expr]:
    """Return the growth of 1 - r or, for odd activations, of 1 + r."""
    kernel = end * (1 - SLOPE * (1 - end * R))
    return growth(Matrix([[1, kernel], [kernel, 1]]), end)


def slope(function: Expr, z: Symbol, start: Expr = -oo) -> Expr:
    """Return E phi'^2 / E phi^2 for a function that is 0 below `start`."""

    def mean(f: Expr) -> Expr:
        return integrate(expand(f) * exp(-(z**2) / 2), (z, start, oo)) / sqrt(2 * pi)

    return mean(function.diff(z) ** 2) / mean(function**2)


def _synchronisation() -> Finding:
    typical, other = at_end(1)[1], at_end(-1)[1]
    return imprecise(
        "noise only: the exponent of 1 - r has the sign of the criterion of "
        "random-mlp-synchronises, with K / A = k. Tokens that are near each other meet for k = 1, "
        "as of linear maps and ReLU, at the rate 2/d, but for k = 3 (third Hermite polynomial) in "
        "d = 8 they part at the rate 1. For odd activations the antipode has the same exponent: "
        "tokens agree up to their signs",
        part_that_holds=vanishes(D * typical + attraction_of_one_cluster().subs({A: 1, K: SLOPE}))
        and vanishes(typical.subs(SLOPE, 1) + 2 / D),
        part_that_fails=typical.subs({SLOPE: 3, D: 8}) == 1 and vanishes(other - typical),
    )


def above_the_tangent(power: Expr) -> Expr:
    """Return r^j less its tangent at r = 1."""
    return R**power - 1 + power * (1 - R)


def powers_are_above_their_tangents() -> bool:
    """Check by induction on j that r^j >= 1 - j (1 - r) for |r| <= 1.

    From j to j + 1 the difference grows by (1 - r) (1 - r^j) >= 0, and at j = 0 it is 0.
    """
    j = Symbol("j", integer=True, nonnegative=True)
    step = above_the_tangent(j + 1) - above_the_tangent(j) - (1 - R) * (1 - R**j)
    return expand(step) == 0 and above_the_tangent(Integer(0)) == 0


def _dissipation() -> Finding:
    kernel = 1 - SLOPE * (1 - R)
    speed = drift(PAIR, Matrix([[1, kernel], [kernel, 1]]), 0, 1)
    bound = ((D - 3) - (D - 1) * SLOPE) / D
    surplus = expand(D * cancel(speed / (1 - R) - bound))
    value, weight = symbols("v q", positive=True)
    attention = 2 * value * weight * (1 - R**2)
    return proven(
        "r^j >= 1 - j (1 - r) for |r| <= 1, by induction: from j to j + 1 the difference grows by "
        "(1 - r)(1 - r^j). So kappa(r) = sum a_j r^j with a_j >= 0 and sum 1 lies above its "
        "tangent at 1, 1 - k (1 - r), and the drift of 1 - R_ij is at most -(1 - R_ij) lambda for "
        "any number of tokens, with lambda = ((d - 3) - (d - 1) k)/d: E sum (1 - R_ij) decays at "
        "least at this rate if k < (d - 3)/(d - 1), and near one cluster at just this rate. Two "
        "tokens: v I adds "
        "-2 v q (1 + r) (1 - r) to it, near one cluster the rate 2 v (q = 1/2), so only v < 0 "
        "needs noise to outweigh it",
        powers_are_above_their_tangents(),
        vanishes(surplus - (1 - R) - SLOPE * (1 - R**2)),
        vanishes(at_end(1)[0] + bound),
        vanishes(cancel(attention / (1 - R)).subs({R: 1, weight: Integer(1) / 2}) - 2 * value),
    )


def _activations() -> Finding:
    z, s = Symbol("z", real=True), Symbol("s", positive=True)
    return proven(
        "k = sum j a_j >= sum of a_j, j >= 1, = 1 - (E phi)^2 for E phi^2 = 1: so k < (d - 3)/(d - "
        "1) needs a mean with (E phi)^2 > 2/(d - 1), and odd functions have k >= 1. By integrals: "
        "linear, ReLU and |x| 1, sin(s x) s^2 / tanh(s^2), cos(s x) s^2 tanh(s^2), exp(s x) s^2. "
        "The last two are coercive for small s, in d > 3",
        *[slope(f, z, start) == 1 for f, start in ((z, -oo), (z, Integer(0)))],
        *[
            simplify((slope(f, z) - k).rewrite(exp)) == 0
            for f, k in (
                (exp(s * z), s**2),
                (sin(s * z), s**2 / tanh(s**2)),
                (cos(s * z), s**2 * tanh(s**2)),
            )
        ],
        vanishes(factor(at_end(1)[0].subs(SLOPE, 1)) - 2 / D),
    )


CLAIMS = [
    Claim(
        "stochastic-scaling-limits",
        "Layers converge pathwise to a stochastic interacting particle system, the law of tokens "
        "to an SPDE (propagation of chaos), with quantitative bounds, and the limits commute.",
        r"$L,N\to\infty$",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "convergence of processes and of random measures is measure theory, not computation"
        ),
    ),
    Claim(
        "synchronisation-by-noise",
        "The limiting model displays synchronisation by noise.",
        r"$x_i-x_j\to0$",
        Verdict.IMPRECISE,
        _synchronisation,
        "Without attention it does if the activation satisfies the criterion of "
        "random-mlp-synchronises, as every activation does for d <= 3 and ReLU in every "
        "dimension; if phi is odd, it does up to signs (random-mlp-antipode).",
        r"$r\to1$, or $\pm1$ for odd $\varphi$, if $E\,\varphi'^2\leq E\,\varphi^2$",
    ),
    Claim(
        "dissipation-of-energy-on-average",
        "The interaction energy decays exponentially on average if the common noise is coercive "
        "enough relative to the drift of attention. Computed, for sum_ij (1 - R_ij): noise of an "
        "MLP is coercive if kappa'(1) < (d - 3)/(d - 1).",
        r"$E\,\sum_{ij}(1-R_{ij})\le Ce^{-\lambda t}$, $\lambda=\frac{(d-3)-(d-1)\kappa'(1)}d$",
        Verdict.PROVEN,
        _dissipation,
    ),
    Claim(
        "coercive-activations",
        "The activations whose noise is coercive can be characterised. Computed: E phi'^2 / "
        "E phi^2 < (d - 3)/(d - 1), which implies (E phi)^2 > 2/(d - 1) E phi^2. No odd function "
        "satisfies it, nor does ReLU.",
        r"$\frac{E\varphi'^2}{E\varphi^2}<\frac{d-3}{d-1}$",
        Verdict.PROVEN,
        _activations,
    ),
]
