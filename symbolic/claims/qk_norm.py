"""Claims on QK-norm: queries and keys of size d are divided by their lengths."""

from __future__ import annotations

from collections.abc import Sequence

from sympy import (
    Expr,
    Matrix,
    Rational,
    Symbol,
    asin,
    diff,
    expand_func,
    factorial,
    gamma,
    pi,
    rf,
    simplify,
)
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra
from symbolic.claims.centres import symbolic_centre
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, refuted, tested
from symbolic.claims.rotary import RotaryAttention, differences, stated_drift
from symbolic.series import HALF

D = Symbol("d", positive=True)
"""The size of a head."""

LARGEST = 4
"""The kernel is compared in the powers x, x^3, ..., x^(2 LARGEST + 1)."""


ROOT = gamma((D + 1) / 2) / gamma(D / 2)
"""E sqrt t for t = |u|^2/2, u ~ N(0, I_d), which has the Gamma law of shape d/2."""


def laguerre(degree: int) -> list[Expr]:
    """Return the coefficients of t^0, ..., t^degree of the polynomial L_degree^(d/2)(t)."""
    return [
        (-1) ** i * _rising(D / 2 + i + 1, degree - i) / (factorial(degree - i) * factorial(i))
        for i in range(degree + 1)
    ]


def kernel_coefficient(j: int) -> Expr:
    """Return the coefficient of x^(2j + 1) in E u.v / (|u| |v|) for Gaussians of correlation x.

    u_1 L_j^(d/2)(|u|^2/2) is a Hermite polynomial of degree 2j + 1, so by Mehler's formula the
    coefficient is d times the square of its inner product with u_1 / |u|, over its square norm.
    By symmetry u_1^2 may be replaced by |u|^2 / d = 2 t / d.
    """
    polynomial = laguerre(j)
    # E t^(i + 1/2) = ROOT (d/2 + 1/2)_i, and E t^i = (d/2)_i.
    inner = sum(c * _rising(D / 2 + HALF, i) for i, c in enumerate(polynomial)) * ROOT / D
    norm = sum(
        first * second * _rising(D / 2, i + k + 1) / D
        for i, first in enumerate(polynomial)
        for k, second in enumerate(polynomial)
    )
    return D * inner**2 / norm


def stated_coefficient(j: int) -> Expr:
    """Return that of x (2/d) (Gamma((d+1)/2) / Gamma(d/2))^2 2F1(1/2, 1/2; d/2 + 1; x^2)."""
    series = _rising(HALF, j) ** 2 / (_rising(D / 2 + 1, j) * factorial(j))
    return 2 * ROOT**2 / D * series


def _rising(start: Expr, count: int) -> Expr:
    return expand_func(rf(start, count))


def _kernel() -> Finding:
    x = Symbol("x")
    arc = 2 / pi * asin(x)
    return tested(
        "expansion in Laguerre polynomials of |u|^2/2, as functions of d, to order x^9; d = 1 is "
        "(2/pi) arcsin x",
        *[
            vanishes((kernel_coefficient(j) - stated_coefficient(j)) / ROOT**2)
            for j in range(LARGEST + 1)
        ],
        *[
            simplify(
                stated_coefficient(j).subs(D, 1)
                - diff(arc, x, 2 * j + 1).subs(x, 0) / factorial(2 * j + 1)
            )
            == 0
            for j in range(LARGEST + 1)
        ],
    )


def _covariance_itself() -> Finding:
    slopes = [simplify(stated_coefficient(0).subs(D, size)) for size in (1, 2, 64)]
    return refuted(
        f"d = 1: queries and keys are signs, and rho_d(x) = (2/pi) arcsin x, whose slope at 0 is "
        f"{slopes[0]}; it is {slopes[1]} for d = 2 and {slopes[2].evalf(4)} for d = 64",
        claim_fails=slopes[0] != 1,
        correction_holds=vanishes((kernel_coefficient(0) - stated_coefficient(0)) / ROOT**2)
        and bool(1 - slopes[2].evalf() < Rational(1, 100)),
    )


class NormalisedScores(RotaryAttention):
    """Attention with E[S_ab S_cd] = W_ac W_bd r(b - a - d + c), W_aa = 1 and symbols off it."""

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters and the entries of W."""
        entries = [_entry(a, b) for a in range(v.rows) for b in range(a)]
        return [*super().generators(v), *entries]

    def inner(self, algebra: Algebra) -> DomainMatrix:
        """Return W."""
        size = range(algebra.tokens)
        return algebra.matrix([[1 if a == b else _entry(a, b) for b in size] for a in size])


def _entry(a: int, b: int) -> Symbol:
    return Symbol(f"W_{min(a, b) + 1}{max(a, b) + 1}", real=True)


def _drift() -> Finding:
    return tested(
        "difference of polynomials in V, W, w, h, cos and sin is 0: m = 2 with one and two "
        "angles, m = 3 with one",
        *[
            not differences(NormalisedScores(n, centre=symbolic_centre(m)), m, stated_drift)
            for m, n in ((2, 1), (2, 2), (3, 1))
        ],
    )


CLAIMS = [
    Claim(
        "qk-norm-kernel",
        "With QK-norm V is replaced by W = rho_d(R) in E[S_ab S_cd], rho_d(x) = E u.v/(|u| |v|) = "
        "x Gamma((d+1)/2)^2/(Gamma(d/2) Gamma(d/2+1)) 2F1(1/2, 1/2; d/2+1; x^2), R the "
        "correlations.",
        r"$\rho_d(x)=x\frac{\Gamma(\frac{d+1}2)^2}{\Gamma(\frac d2)\Gamma(\frac d2+1)}"
        r"{}_2F_1(\tfrac12,\tfrac12;\tfrac d2+1;x^2)$",
        Verdict.TESTED,
        _kernel,
    ),
    Claim(
        "qk-norm-drift",
        "With QK-norm the drift is that of `rotary-drift` with W in place of V in the scores; the "
        "V of the values, in T and in A2 V, stays.",
        r"$B_1=\frac2{d}\sum_j[(W\circ C_j)\circ T(W\circ C_j)+(W\circ S_j)\circ T(W\circ S_j)]"
        r"+u\,W\circ T(W)$",
        Verdict.TESTED,
        _drift,
    ),
    Claim(
        "qk-norm-correlations",
        "With QK-norm the scores have the covariance R_ac R_bd at any head size.",
        r"$E[S_{ab}S_{cd}]=R_{ac}R_{bd}$",
        Verdict.FALSE,
        _covariance_itself,
        "It is rho_d(R_ac) rho_d(R_bd), and rho_d(x) tends to x only for large d.",
        r"$\rho_d(R_{ac})\rho_d(R_{bd})$",
    ),
]
