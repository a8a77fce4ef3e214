"""Claims on the sphere with Gaussian value matrices of mean 0, new in each layer.

dx_i = P_i dW y_i and the correction that keeps |x_i| = 1, with y_i = sum_j w_ij x_j and entries of
dW of variance dt / d. R_ij = <x_i, x_j> and S_ij = <y_i, y_j> = (w R w^T)_ij.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from sympy import (
    Expr,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Matrix,
    Symbol,
    acos,
    cancel,
    cosh,
    diff,
    exp,
    expand,
    log,
    simplify,
    sqrt,
    symbols,
)
from sympy.concrete.delta import deltasummation

from symbolic.claims.inner_products import BETA
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven

D = Symbol("d", positive=True)
R = Symbol("r", real=True)
P, Q = symbols("p q", positive=True)
"""Dimension; cosine of two tokens; their weights p = w_00 and q = w_01."""

PAIR = Matrix([[1, R], [R, 1]])
"""The Gram matrix of two tokens."""


def symmetric(name: str, count: int) -> Matrix:
    """Return a symmetric matrix of symbols."""
    return Matrix(count, count, lambda i, j: Symbol(f"{name}_{min(i, j)}{max(i, j)}", real=True))


def drift(r: Matrix, s: Matrix, i: int, j: int) -> Expr:
    """Return the claimed drift of R_ij."""
    return (D - 2 + r[i, j] ** 2) * s[i, j] / D - (D - 1) / (2 * D) * r[i, j] * (s[i, i] + s[j, j])


def bracket(r: Matrix, s: Matrix, first: tuple[int, int], second: tuple[int, int]) -> Expr:
    """Return the claimed bracket of R_ij and R_kl."""
    return sum(
        s[i, k]
        * (r[j, l] - r[i, j] * r[i, l] - r[k, l] * r[j, k] + r[i, j] * r[i, k] * r[k, l])
        / D
        for (i, j), (k, l) in product((first, first[::-1]), (second, second[::-1]))
    )


WIDTH, ROW, OTHER_ROW, COLUMN, OTHER_COLUMN = symbols("n a c b e", integer=True, positive=True)
"""The dimension as the length of sums, rows a and c and columns b and e of dW."""


def summed(term: Expr, index: Symbol, size: Symbol) -> Expr:
    """Return the sum of a term with Kronecker deltas over an index from 1 to a symbolic size."""
    return deltasummation(term, (index, 1, size), no_piecewise=True)


def entry_covariance() -> Expr:
    """Return E dW_ab dW_ce / dt."""
    return KroneckerDelta(ROW, OTHER_ROW) * KroneckerDelta(COLUMN, OTHER_COLUMN) / WIDTH


def _gaussian_moments() -> bool:
    """Check E <dW y, dW y'> = <y, y'> dt and E <x, dW y> <x', dW y'> = <x, x'> <y, y'> dt / d.

    For every dimension: the terms that are left of sums over all entries are compared.
    """
    x, x_, y, y_ = map(IndexedBase, ("x", "X", "y", "Y"))
    term = y[COLUMN] * y_[OTHER_COLUMN] * entry_covariance()
    square = summed(summed(term.subs(OTHER_ROW, ROW), OTHER_COLUMN, WIDTH), ROW, WIDTH)
    term *= x[ROW] * x_[OTHER_ROW]
    cross = summed(summed(term, OTHER_ROW, WIDTH), OTHER_COLUMN, WIDTH)
    dots = x[ROW] * x_[ROW], y[COLUMN] * y_[COLUMN]
    return simplify(square - dots[1]) == 0 and simplify(cross - dots[0] * dots[1] / WIDTH) == 0


def _ito(count: int) -> tuple[list[Expr], list[Expr]]:
    """Return Ito's drift of R_01 and brackets of R_01 with all R_kl, each less the claimed one.

    Before the tokens are normalised, G_ij = <x_i, x_j> has the drift S_ij and the bracket
    (1/d) sum of S_ik R_jl over the four pairings; R_ij = G_ij / sqrt(G_ii G_jj).
    """
    g, s = symmetric("R", count), symmetric("S", count)
    pairs = list(combinations_with_replacement(range(count), 2))
    units = {g[i, i]: Integer(1) for i in range(count)}

    def raw(first: tuple[int, int], second: tuple[int, int]) -> Expr:
        choices = product((first, first[::-1]), (second, second[::-1]))
        return sum(s[i, k] * g[j, l] for (i, j), (k, l) in choices) / D

    def cosine(i: int, j: int) -> Expr:
        return g[i, j] / sqrt(g[i, i] * g[j, j])

    def slopes(function: Expr) -> dict[tuple[int, int], Expr]:
        found = {pair: diff(function, g[pair]) for pair in pairs}
        return {pair: slope for pair, slope in found.items() if slope != 0}

    first = slopes(cosine(0, 1))
    total = sum(slope * s[pair] for pair, slope in first.items())
    for pair, slope in first.items():
        total += sum(rate * raw(pair, other) / 2 for other, rate in slopes(slope).items())
    r = g.subs(units)
    drifts = [expand(total.subs(units) - drift(r, s, 0, 1))]
    brackets = []
    for k, l in pairs:
        if k == l:
            continue
        second = slopes(cosine(k, l))
        both = sum(
            a * b * raw(one, other) for one, a in first.items() for other, b in second.items()
        )
        brackets.append(expand(both.subs(units) - bracket(r, s, (0, 1), (k, l))))
    return drifts, brackets


def _limit() -> Finding:
    drifts, brackets = _ito(4)
    return proven(
        "G_ij = <x_i, x_j> before normalisation has drift S_ij and bracket (1/d) S_ik R_jl over "
        "the four pairings, from E dW_ab dW_ce = [a = c] [b = e] dt/d (so the 1/d is the variance "
        "of an entry); Ito's formula for G_ij / sqrt(G_ii G_jj) with symbols R, S and d, all pairs "
        "of four tokens, which is every case of indices",
        _gaussian_moments(),
        *[expression == 0 for expression in (*drifts, *brackets)],
    )


def growth(s: Matrix, end: int) -> tuple[Expr, Expr]:
    """Return how fast the distance u of the cosine r from 1 or -1 grows while it is small.

    The first is the rate of the mean, E u; the second, the drift of log u, decides: tokens at this
    end attract if it is negative. `s` is S as a function of R.
    """
    u = Symbol("u", positive=True)
    near = {R: end * (1 - u)}
    b, a = of_two_tokens(s)
    rate = cancel(-end * b.subs(near) / u).subs(u, 0)
    square = cancel(a.subs(near) / u**2).subs(u, 0)
    return rate, rate - square / 2


WEIGHTS = Matrix([[P, Q], [Q, P]])
MIXED = WEIGHTS * PAIR * WEIGHTS.T
"""S of two tokens with the weights p and q."""


def of_two_tokens(s: Matrix = MIXED) -> tuple[Expr, Expr]:
    """Return drift and bracket of the cosine r of two tokens."""
    return drift(PAIR, s, 0, 1), bracket(PAIR, s, (0, 1), (0, 1))


def slope_in_z(b: Expr, a: Expr) -> Expr:
    """Return g = 2 drift / bracket of z = artanh r, from those of r.

    The scale density in z is exp(-int g).
    """
    z = log((1 + R) / (1 - R)) / 2
    first = diff(z, R)
    return 2 * (b * first + a * diff(first, R) / 2) / (a * first**2)


APART = 1 / cosh(BETA * (1 - R))
"""2 p q / (p^2 + q^2), as p / q = exp(beta (1 - r))."""

SLOPE = (D - 2) * APART + R
"""g of softmax weights."""


def _two_tokens() -> Finding:
    b, a = of_two_tokens()
    squares, ratio = P**2 + Q**2, exp(BETA * (1 - R))
    own, other = exp(BETA), exp(BETA * R)
    return proven(
        "S = w R w^T for w = [[p, q], [q, p]] in the drift and bracket of R; Ito's formula for "
        "artanh r; SA and USA have the same p / q and so the same g",
        vanishes(b - (1 - R**2) * ((D - 2) * 2 * P * Q - squares * R) / D),
        vanishes(a - 2 * squares * (1 - R**2) ** 2 / D),
        vanishes(slope_in_z(b, a) - (D - 2) * 2 * P * Q / squares - R),
        *[simplify(own / z / (other / z) - ratio) == 0 for z in (own + other, Integer(2))],
        simplify((2 * ratio / (ratio**2 + 1) - APART).rewrite(exp)) == 0,
    )


def _antipode() -> Finding:
    u, end = Symbol("u", positive=True), SLOPE.subs(R, -1)
    # u = e^(2 z) = (1 + r) / (1 - r) near the antipode; near 1 it is e^(-2 z) = (1 - r) / (1 + r).
    near = SLOPE.subs(R, (u - 1) / (u + 1))
    other = SLOPE.subs(R, (1 - u) / (1 + u))
    return proven(
        "in z = artanh r the scale density is exp(-int g), and g is analytic in u = exp(-2 |z|) at "
        "both ends, so exp(-int g) is a positive constant times exp(-g(-1) z) (1 + o(1)) as "
        "z -> -oo: integrable iff g(-1) < 0, also at equality, where it is a constant. "
        "cosh(2 beta) g(-1) = d - 2 - cosh(2 beta), and g(1) = d - 1 > 0. By Feller's test r then "
        "tends to -1 with a probability between 0 and 1, or to 1 almost surely",
        simplify(end * cosh(2 * BETA) - (D - 2 - cosh(2 * BETA))) == 0,
        simplify(SLOPE.subs(R, 1) - (D - 1)) == 0,
        simplify(near.subs(u, 0) - end) == 0,
        # Finite derivatives at u = 0: int (g - g(-1)) dz = int (g - g(-1)) / (2 u) du converges.
        *[diff(side, u).subs(u, 0).is_finite for side in (near, other)],
    )


def _angle() -> Finding:
    b, a = of_two_tokens()
    first = diff(acos(R), R)
    generator = b * first + a * diff(first, R) / 2
    return proven(
        "the drift of arccos r is that of the formula times (d - 2) q: it vanishes in two "
        "dimensions and for q = 0, and the angle stops at 0 or pi, so that its mean is pi P(-1)",
        simplify(generator.subs(D, 2)) == 0,
        simplify(generator.subs(Q, 0)) == 0,
        simplify(generator + (D - 2) * 2 * P * Q * sqrt(1 - R**2) / D) == 0,
        vanishes(slope_in_z(b, a).subs(Q, 0) - R),
    )


CLAIMS = [
    Claim(
        "random-values-limit",
        "With y = w x, S = w R w^T and independent N(0, dt/d) entries of dW, the Gram matrix of "
        "dx_i = P_i dW y_i + correction has drift ((d - 2 + R_ij^2) S_ij - (d - 1) R_ij (S_ii + "
        "S_jj) / 2) / d, and d<R_ij, R_kl> = (1/d) times the sum over the four pairings of S_ik "
        "<P_i x_j, P_k x_l>.",
        r"$\frac1d\big((d-2+R_{ij}^2)S_{ij}-\tfrac{d-1}2R_{ij}(S_{ii}+S_{jj})\big)$, "
        r"$d\langle R_{ij},R_{kl}\rangle=\frac1d\sum S_{ik}\langle P_ix_j,P_kx_l\rangle dt$",
        Verdict.PROVEN,
        _limit,
    ),
    Claim(
        "random-values-two-tokens",
        "Two tokens: with A = p^2 + q^2, B = 2 p q, r has drift (1 - r^2) ((d - 2) B - A r) / d "
        "and bracket 2 A (1 - r^2)^2 / d; the scale density in artanh r is exp(-int g), g = "
        "(d - 2) / cosh(beta (1 - r)) + r, for SA and USA.",
        r"$g=\frac{d-2}{\cosh\beta(1-r)}+r$",
        Verdict.PROVEN,
        _two_tokens,
    ),
    Claim(
        "random-values-antipode",
        "Two tokens whose value matrices have mean 0: the antipode r = -1 attracts if and only if "
        "d - 2 < cosh(2 beta); r = 1 always attracts.",
        r"$r\to-1$ with positive probability iff $d-2<\cosh2\beta$",
        Verdict.PROVEN,
        _antipode,
    ),
    Claim(
        "random-values-angle",
        "In two dimensions, and for tokens that see only themselves in any dimension, the angle of "
        "two tokens is a martingale: P(r -> -1) = angle / pi, whatever beta.",
        r"$d=2$: $P(r\to-1)=\arccos(r_0)/\pi$",
        Verdict.PROVEN,
        _angle,
    ),
]
