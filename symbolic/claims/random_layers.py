"""Claims on layers with random values, heads and MLPs, and on speeds under norms."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, combinations_with_replacement, product

import mpmath
from sympy import (
    E,
    Expr,
    Function,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    Symbol,
    acos,
    asin,
    cancel,
    cos,
    cosh,
    diff,
    exp,
    expand,
    factor,
    factorial,
    floor,
    fraction,
    gammasimp,
    integrate,
    limit,
    log,
    ones,
    oo,
    pi,
    series,
    simplify,
    sin,
    sinh,
    sqrt,
    symbols,
    tanh,
)
from sympy.concrete.delta import deltasummation

from symbolic.claims.explosion import vanishes
from symbolic.claims.ledger import Finding, imprecise, proven, tested
from symbolic.claims.particles import BETA, COSINE, COUNT, rate_of_the_cosine
from symbolic.gaussian import isserlis

# Claims on the sphere with Gaussian value matrices of mean 0, new in each layer.
#
# dx_i = P_i dW y_i and the correction that keeps |x_i| = 1, with y_i = sum_j w_ij x_j and entries
# of dW of variance dt / d. R_ij = <x_i, x_j> and S_ij = <y_i, y_j> = (w R w^T)_ij.

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


def random_values_limit() -> Finding:
    drifts, brackets = _ito(4)
    return proven(_gaussian_moments(), *[expression == 0 for expression in (*drifts, *brackets)])


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


def random_values_two_tokens() -> Finding:
    b, a = of_two_tokens()
    squares, ratio = P**2 + Q**2, exp(BETA * (1 - R))
    own, other = exp(BETA), exp(BETA * R)
    return proven(
        vanishes(b - (1 - R**2) * ((D - 2) * 2 * P * Q - squares * R) / D),
        vanishes(a - 2 * squares * (1 - R**2) ** 2 / D),
        vanishes(slope_in_z(b, a) - (D - 2) * 2 * P * Q / squares - R),
        *[simplify(own / z / (other / z) - ratio) == 0 for z in (own + other, Integer(2))],
        simplify((2 * ratio / (ratio**2 + 1) - APART).rewrite(exp)) == 0,
    )


def random_values_antipode() -> Finding:
    u, end = Symbol("u", positive=True), SLOPE.subs(R, -1)
    # u = e^(2 z) = (1 + r) / (1 - r) near the antipode; near 1 it is e^(-2 z) = (1 - r) / (1 + r).
    near = SLOPE.subs(R, (u - 1) / (u + 1))
    other = SLOPE.subs(R, (1 - u) / (1 + u))
    return proven(
        simplify(end * cosh(2 * BETA) - (D - 2 - cosh(2 * BETA))) == 0,
        simplify(SLOPE.subs(R, 1) - (D - 1)) == 0,
        simplify(near.subs(u, 0) - end) == 0,
        # Finite derivatives at u = 0: int (g - g(-1)) dz = int (g - g(-1)) / (2 u) du converges.
        *[diff(side, u).subs(u, 0).is_finite for side in (near, other)],
    )


def random_values_angle() -> Finding:
    b, a = of_two_tokens()
    first = diff(acos(R), R)
    generator = b * first + a * diff(first, R) / 2
    return proven(
        simplify(generator.subs(D, 2)) == 0,
        simplify(generator.subs(Q, 0)) == 0,
        simplify(generator + (D - 2) * 2 * P * Q * sqrt(1 - R**2) / D) == 0,
        vanishes(slope_in_z(b, a).subs(Q, 0) - R),
    )


# Claims in the abstract of arXiv 2601.21942: what noise does to one cluster and to antipodes.
#
# L. Fedorov, M. Sander, R. Elie, P. Marion, M. Lauriere, "Clustering in deep stochastic
# transformers" (2026). The model is that of `random_values`, which proves the limit and the law of
# two tokens.

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


def noise_prevents_one_cluster() -> Finding:
    at_antipode = SLOPE.subs(R, -1)
    return imprecise(
        part_that_holds=bool(at_antipode.subs({D: 8, BETA: 2}) < 0)
        and bool(at_antipode.subs({D: 2, BETA: 1}) < 0),
        part_that_fails=bool(at_antipode.subs({D: 8, BETA: 1}) > 0)
        and vanishes(growth(ones(2, 2), 1)[1] + (D - 1) / D),
    )


def antipodes_of_deterministic_flows() -> Finding:
    value = Symbol("v", real=True)
    slope = diff(speed(value), R).subs(R, -1)
    return imprecise(
        part_that_holds=vanishes(slope - 4 * value * Q) and bool(slope.subs(value, 1) > 0),
        part_that_fails=bool(slope.subs(value, -1) < 0),
    )


def antipodal_formations() -> Finding:
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
        part_that_holds=vanishes(drift(equal, s, 0, 1))
        and vanishes(across - (D - 2 - cosh_of_two) / (D * cosh_squared))
        and vanishes(inside + (D - 1) / D * tanh**2),
        part_that_fails=vanishes(away - (D - 1) / (2 * D) * (lengths[0] - lengths[1]) ** 2)
        and bool(away.subs({N: 2, M: 1, D: 3, X: 2}) > 0),
    )


# Claims in the abstract of arXiv 2604.01978: weights drawn afresh in each layer and head.
#
# H. Koubbi, B. Geshkovski, P. Rigollet, "Homogenized transformers" (2026). A layer is N(x_i + eta
# u_i), with u_i = (1/H) sum_h V_h y_i^h and y^h = w_h x. Scores have mean 0 and E s_ik s_jl =
# beta^2 R_ij R_kl. The law of u enters cosines by S = E[w R w^T], divided by H.

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


def random_values_heads() -> Finding:
    found, claimed = _heads()
    return proven(vanishes(found - claimed))


def normalised_step() -> tuple[Expr, Expr]:
    """Return the terms of N(x + eta u) in eta^2: the factors of P u and of x.

    They depend on a = <x, u> and b = |P u|^2.
    """
    eta, a, b = symbols("eta a b", real=True)
    inverse = series(((1 + eta * a) ** 2 + eta**2 * b) ** Rational(-1, 2), eta, 0, 3).removeO()
    terms = (eta * inverse, (1 + eta * a) * inverse)
    along, outward = (expand(term).coeff(eta, 2) for term in terms)
    return along, outward


def gaussian_drift_vanishes() -> Finding:
    a, b = symbols("a b", real=True)
    along, outward = normalised_step()
    covariance = Matrix(3, 3, lambda i, j: Symbol(f"C_{min(i, j)}{max(i, j)}"))
    tangential = along.coeff(a, 1) * covariance[1:, 0]
    isotropic = {covariance[i, j]: int(i == j) for i, j in product(range(3), repeat=2)}
    return proven(
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


def deterministic_or_stochastic() -> Finding:
    mean, variance = powers()
    b = Symbol("b", nonnegative=True)
    return proven(
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


def _mean(function: Callable[[mpmath.mpf], mpmath.mpf]) -> mpmath.mpf:
    """Return the mean of a function of a standard normal number."""
    return mpmath.quad(
        lambda z: function(z) * mpmath.exp(-z * z / 2), [-mpmath.inf, 0, mpmath.inf]
    ) / mpmath.sqrt(2 * mpmath.pi)


def collapse_by_dimension_length_temperature() -> Finding:
    own, other = expected_s()
    speed = drift(PAIR, Matrix([[own, other], [other, own]]), 0, 1)
    slower = 2 * BETA * R * (1 + R) * (1 - R) ** 3 * (COUNT - 1) / (D * COUNT**2)
    beta, r = mpmath.mpf("0.05"), mpmath.mpf("0.3")
    square = _mean(lambda z: mpmath.tanh(beta * mpmath.sqrt((1 - r) / 2) * z) ** 2)
    exact = r + (1 - r) * (1 + square) / 2
    return proven(
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


def exponent_at(dimension: int, beta: float) -> mpmath.mpf:
    """Return the value of `antipode`."""
    flat = _mean(lambda z: mpmath.cosh(beta * z) ** -4)
    square = _mean(lambda z: mpmath.tanh(beta * z) ** 2)
    return mpmath.mpf(antipode().subs({D: dimension, BETA: beta, FLAT: flat, SQUARE: square}))


def clustering_mitigated() -> Finding:
    exponent = antipode()
    return tested(
        vanishes(growth(Matrix([[1, 1], [1, 1]]), 1)[1] + (D - 1) / D),
        mixed_by_differences() == 0,
        *[
            vanishes(covariance_of_differences(i, j) - 2 * BETA**2 * (1 - R) * PAIR[i, j])
            for i, j in product(range(2), repeat=2)
        ],
        vanishes(exponent - (D - 3) * (1 + BETA**2 * FLAT) + (D - 1) * SQUARE),
        bool(expand(exponent.subs(D, 2)).is_negative and expand(exponent.subs(D, 3)).is_negative),
        vanishes(diff(exponent, D) - (1 + BETA**2 * FLAT - SQUARE)),
        *[
            exponent_at(4, mpmath.mpf(2) ** (k / mpmath.mpf(2))) > 0.1
            for k in (-8, -4, -2, *range(8), 10, 12)
        ],
    )


# Claims on the sphere with heads whose queries and keys are random, and with random MLPs.
#
# Given the first matrices of a layer its noise is Gaussian with the covariance S / d between
# tokens: S = (1/H) sum_h w_h R w_h^T for heads, S = (1/p) sum_a phi(u_a) phi(u_a)^T for an MLP,
# where the u_a are normal with the covariance R. Drift and bracket of R are those of
# `random_values`.

A, K, B = symbols("A K B", positive=True)
"""kappa(1) = E phi^2, kappa'(1) = E phi'^2, and S_01."""

KAPPA = Function("kappa")
ANGLE = Symbol("t", positive=True)


def random_weights_mean() -> Finding:
    r, s, t = (symmetric(name, 4) for name in "RST")
    c = Symbol("c", real=True)
    pairs = list(combinations(range(4), 2))
    return proven(
        *[
            vanishes(f(r, s + c * t, *of) - f(r, s, *of) - c * f(r, t, *of))
            for f, cases in ((drift, pairs), (bracket, product(pairs[:1], pairs)))
            for of in cases
        ]
    )


def next_hermite(polynomial: Expr, u: Symbol) -> Expr:
    """Return He_(n+1) from He_n by the definition (-1)^n D^(n) / D, D = exp(-u^2 / 2)."""
    density = exp(-(u**2) / 2)
    return expand(simplify(-diff(polynomial * density, u) / density))


def by_parts(polynomial: Expr, u: Symbol) -> Expr:
    """Return phi' f D - phi (u f - f') D - (phi f D)', D the density: 0 for all phi and f."""
    function, density = Function("phi")(u), exp(-(u**2) / 2)
    left = (diff(function, u) * polynomial - function * next_hermite(polynomial, u)) * density
    return simplify(left - diff(function * polynomial * density, u))


def relu_kernel() -> Expr:
    """Return E relu(u) relu(v) of normals with the correlation cos t, in polar coordinates."""
    x = Symbol("x", real=True)
    both = expand(cos(x) * cos(x - ANGLE), trig=True)
    return simplify(integrate(both, (x, ANGLE - pi / 2, pi / 2)) / pi)


def random_mlp_kernel() -> Finding:
    s, t, u = symbols("s t u")
    n = Symbol("n", integer=True, nonnegative=True)
    generating, any_polynomial = exp(s * u - s**2 / 2), Function("He")(u)
    following = next_hermite(any_polynomial, u)
    # E exp(s u + t v) = exp((s^2 + t^2 + 2 r s t) / 2).
    exponent = (s**2 + t**2 + 2 * R * s * t) / 2 - s**2 / 2 - t**2 / 2
    kernel = relu_kernel()
    at_one = kernel.subs(ANGLE, 0), limit(diff(kernel, ANGLE) / -sin(ANGLE), ANGLE, 0)
    return proven(
        expand(exponent - R * s * t) == 0,
        expand(following - u * any_polynomial + diff(any_polynomial, u)) == 0,
        generating.subs(s, 0) == 1,
        simplify(diff(generating, s) - next_hermite(generating, u)) == 0,
        # E phi' f - E phi (u f - f'), with the density, is the integral of a derivative.
        by_parts(any_polynomial, u) == 0,
        # The squared ratio of the two coefficients, E phi He_n+1 over sqrt(n!) and sqrt((n + 1)!).
        gammasimp(factorial(n + 1) / factorial(n)) == n + 1,
        simplify(kernel - (sin(ANGLE) + (pi - ANGLE) * cos(ANGLE)) / (2 * pi)) == 0,
        tuple(simplify(value - Rational(1, 2)) for value in at_one) == (0, 0),
        simplify(kernel.subs(ANGLE, pi)) == 0,
    )


def mlp_of_two_tokens() -> tuple[Expr, Expr]:
    """Return drift and bracket of the cosine r of two tokens with S = [[A, B], [B, A]]."""
    return of_two_tokens(Matrix([[A, B], [B, A]]))


TOWARDS, ACROSS = B - R * A, A - R * B

MLP_SLOPE = (D - 2) * TOWARDS / ACROSS + R
"""g: the scale density in z = artanh r is exp(-int g)."""


def random_mlp_two_tokens() -> Finding:
    b, a = mlp_of_two_tokens()
    p, q = P, Q
    values = {A: p**2 + q**2 + 2 * p * q * R, B: 2 * p * q + (p**2 + q**2) * R}
    return proven(
        vanishes(b - ((D - 2) * TOWARDS - R * ACROSS) / D),
        vanishes(a - 2 * (1 - R**2) * ACROSS / D),
        vanishes(slope_in_z(b, a) - MLP_SLOPE),
        vanishes(MLP_SLOPE.subs(values) - slope_in_z(*of_two_tokens())),
    )


def _at_one(slope: Expr) -> Expr:
    """Return the limit of a slope at r = 1 for B = kappa(r), by l'Hopital's rule."""
    quotient = (slope - R).subs(B, KAPPA(R)).together()
    above, below = quotient.as_numer_denom()
    ends = {KAPPA(R).diff(R): K, KAPPA(R): A}
    if any(simplify(part.subs(ends).subs(R, 1)) != 0 for part in (above, below)):
        raise ArithmeticError("numerator and denominator do not both vanish at r = 1")
    above, below = (diff(part, R).subs(ends).subs(R, 1) for part in (above, below))
    return simplify(above / below + 1)


def attraction_of_one_cluster() -> Expr:
    """Return (d - 1) A - (d - 3) K: one cluster attracts iff it is positive."""
    return (D - 1) * A - (D - 3) * K


def last_dimension(kernel: Expr) -> Expr:
    """Return the largest d with (d - 1) A > (d - 3) K, for a kernel in r with K > A."""
    value, slope = kernel.subs(R, 1), diff(kernel, R).subs(R, 1)
    if not slope.evalf() > value.evalf():
        raise ArithmeticError("there is no such dimension")
    return floor((3 * slope - value) / (slope - value))


def random_mlp_synchronises() -> Finding:
    end = _at_one(MLP_SLOPE)
    n = Symbol("n", positive=True)
    return proven(
        simplify((A + K) * end - attraction_of_one_cluster()) == 0,
        # a_n^2 of kappa, and its part in K - A and in the two slopes.
        simplify(diff(R**n - R, R).subs(R, 1) - (n - 1)) == 0,
        simplify(diff(1 - R ** (n + 1), R).subs(R, 1) + n + 1) == 0,
        last_dimension(sinh(R) / E) == 9,
        last_dimension(2 * asin(2 * R / 3) / pi) == 11,
        simplify(end.subs(K, A)) == 1,
    )


def random_mlp_attention() -> Finding:
    sigma, sign = Symbol("sigma", positive=True), Symbol("s", real=True)
    b, a = mlp_of_two_tokens()
    flow = 2 * sign * Rational(1, 2) * (1 - R**2)
    end = _at_one(simplify(slope_in_z(sigma**2 * b + flow, sigma**2 * a)))
    known = attraction_of_one_cluster() + 2 * sign * D / sigma**2
    return proven(simplify((A + K) * end - known) == 0)


def random_mlp_antipode() -> Finding:
    b, a = mlp_of_two_tokens()
    there, half = Symbol("kappa_-1", real=True), Symbol("k", integer=True, nonnegative=True)
    # What a power r^n adds to kappa(1) + kappa(-1): for even and for odd n.
    even, odd = (1 + Integer(-1) ** (2 * half + rest) for rest in range(2))
    ends = {R: -1, B: there}
    rate = cancel(a / (1 + R)).subs(ends)
    flipped = {R: -R, B: -B}
    return proven(
        vanishes(MLP_SLOPE.subs(flipped, simultaneous=True) + MLP_SLOPE),
        vanishes(b.subs(ends).subs(there, -A)),
        vanishes(b.subs(ends) - (D - 1) * (A + there) / D),
        simplify(4 * b.subs(ends) / rate - (D - 1)) == 0,
        (simplify(even), simplify(odd)) == (2, 0),
    )


def score_moment(width: int, indices: tuple[tuple[int, ...], ...]) -> Expr:
    """Return E of a product of scores <Q x_i, K x_j> / sqrt k of unit tokens, (i, j) each."""

    def covariance(x: tuple[str, int, int], y: tuple[str, int, int]) -> Expr:
        return PAIR[x[2], y[2]] if x[:2] == y[:2] else Integer(0)

    total = sum(
        isserlis(
            [label for a, (i, j) in zip(entries, indices, strict=True)
             for label in (("q", a, i), ("k", a, j))],
            covariance,
        )
        for entries in product(range(width), repeat=len(indices))
    )  # fmt: skip
    return expand(total / sqrt(width) ** len(indices))


def moments_of_a_sum(second: Expr, fourth: Expr, count: Expr) -> tuple[Expr, Expr]:
    """Return both moments of a sum of independent equal terms of mean 0, divided by sqrt(count).

    Only powers 4 and pairs of squares are left of the fourth: 3 for each two of the terms.
    """
    pairs = 3 * count * (count - 1) * second**2
    return count * second / count, (count * fourth + pairs) / count**2


def random_heads_scores() -> Finding:
    pairs, width = list(product(range(2), repeat=2)), Symbol("k", integer=True, positive=True)
    one = [score_moment(1, ((0, 1),) * power) for power in (2, 4)]
    variance, kurtosis = moments_of_a_sum(one[0], one[1], width)
    return proven(
        simplify(variance - 1) == 0,
        simplify(kurtosis - 3 - 6 / width) == 0,
        *[
            expand(score_moment(width, (first, second)) - PAIR[first[0], second[0]]
                   * PAIR[first[1], second[1]]) == 0
            for width in (1, 2, 3) for first, second in product(pairs, repeat=2)
        ],
        *[
            score_moment(width, ((0, 1),) * 4) == 3 + Integer(6) / width for width in (1, 2, 3)
        ],
    )  # fmt: skip


# Claims in the abstract of arXiv 2604.26898, on synchronisation by the noise of an MLP.
#
# A. Agazzi, G. Bruno, E. Mosig Garcia, S. Saviozzi, M. Romito, "Stochastic scaling limits and
# synchronization by noise in deep transformer models" (2026).
#
# A wide MLP with fresh Gaussian weights is noise with S_ij = kappa(R_ij), kappa(r) = E phi(z)
# phi(w) for standard normal z, w of covariance r, scaled to kappa(1) = 1. What decides is k =
# kappa'(1) = E phi'^2 / E phi^2.

KERNEL_SLOPE = Symbol("k", positive=True)
"""kappa'(1)."""


def at_end(end: int) -> tuple[Expr, Expr]:
    """Return the growth of 1 - r or, for odd activations, of 1 + r."""
    kernel = end * (1 - KERNEL_SLOPE * (1 - end * R))
    return growth(Matrix([[1, kernel], [kernel, 1]]), end)


def slope(function: Expr, z: Symbol, start: Expr = -oo) -> Expr:
    """Return E phi'^2 / E phi^2 for a function that is 0 below `start`."""

    def mean(f: Expr) -> Expr:
        return integrate(expand(f) * exp(-(z**2) / 2), (z, start, oo)) / sqrt(2 * pi)

    return mean(function.diff(z) ** 2) / mean(function**2)


def synchronisation_by_noise() -> Finding:
    typical, other = at_end(1)[1], at_end(-1)[1]
    return imprecise(
        part_that_holds=vanishes(
            D * typical + attraction_of_one_cluster().subs({A: 1, K: KERNEL_SLOPE})
        )
        and vanishes(typical.subs(KERNEL_SLOPE, 1) + 2 / D),
        part_that_fails=typical.subs({KERNEL_SLOPE: 3, D: 8}) == 1 and vanishes(other - typical),
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


def dissipation_of_energy_on_average() -> Finding:
    kernel = 1 - KERNEL_SLOPE * (1 - R)
    speed = drift(PAIR, Matrix([[1, kernel], [kernel, 1]]), 0, 1)
    bound = ((D - 3) - (D - 1) * KERNEL_SLOPE) / D
    surplus = expand(D * cancel(speed / (1 - R) - bound))
    value, weight = symbols("v q", positive=True)
    attention = 2 * value * weight * (1 - R**2)
    return proven(
        powers_are_above_their_tangents(),
        vanishes(surplus - (1 - R) - KERNEL_SLOPE * (1 - R**2)),
        vanishes(at_end(1)[0] + bound),
        vanishes(cancel(attention / (1 - R)).subs({R: 1, weight: Integer(1) / 2}) - 2 * value),
    )


def coercive_activations() -> Finding:
    z, s = Symbol("z", real=True), Symbol("s", positive=True)
    return proven(
        *[slope(f, z, start) == 1 for f, start in ((z, -oo), (z, Integer(0)))],
        *[
            simplify((slope(f, z) - k).rewrite(exp)) == 0
            for f, k in (
                (exp(s * z), s**2),
                (sin(s * z), s**2 / tanh(s**2)),
                (cos(s * z), s**2 * tanh(s**2)),
            )
        ],
        vanishes(factor(at_end(1)[0].subs(KERNEL_SLOPE, 1)) - 2 / D),
    )


# Claims on where the layers on the sphere normalise: this sets the speed of every token.
#
# A token is x = r u with |u| = 1, and A is its attention, which sees directions only. As h -> 0,
#
# Post-LN  x' = N(x + h A),    Peri-LN  x' = x + h N(A),           N(y) = y / |y|,
# Pre-LN   x' = x + h A,       nGPT     x' = N(x + alpha h N(A)),
#
# and Mix-LN is Post-LN up to some time, Pre-LN from then on.

STEP, LENGTH, SIZE, ALPHA = symbols("h r a alpha", positive=True)
ALONG = Symbol("b", real=True)
"""Step; |x|; |A|; weight of the branch of nGPT; <u, A>."""

"""Weights of the token itself and of each other one."""

ONE = Integer(1)
SCHEMES: dict[str, tuple[Expr, Expr, Expr, Expr]] = {
    "Post-LN": (ONE, ONE, ONE, ALONG),
    "Pre-LN": (LENGTH, ONE, LENGTH, ALONG),
    "Peri-LN": (LENGTH, 1 / SIZE, LENGTH * SIZE, ALONG / SIZE),
    "nGPT": (ONE, ALPHA / SIZE, SIZE / ALPHA, ALPHA * ALONG / SIZE),
}
"""|x|, the factor of A in a layer, the claimed s, and the growth of |x| before it is normalised."""


def motion(length: Expr, factor: Expr, kept: Expr = ONE) -> tuple[Expr, Expr]:
    """Return k and r' if N(k(h) r u + h f A) moves u by k P_u A, and its length is r + h r'.

    With <u, A> and |A| as symbols this is every dimension.

    Raises
    ------
    ArithmeticError
        If u moves in another direction than P_u A = A - <u, A> u.
    """
    square = (kept * length) ** 2 + 2 * STEP * factor * kept * length * ALONG
    size = sqrt(square + (STEP * factor * SIZE) ** 2)
    on_u, on_attention, growth = (
        simplify(diff(part, STEP).subs(STEP, 0))
        for part in (kept * length / size, STEP * factor / size, size)
    )
    if simplify(on_u + ALONG * on_attention) != 0:
        raise ArithmeticError("the direction does not move along P_u A")
    return on_attention, growth


def normalisation_speeds() -> Finding:
    weighted = motion(ONE, ALPHA / SIZE, 1 - ALPHA * STEP)[0]
    return proven(
        *[
            simplify(moved * divisor - 1) == 0 and simplify(growth - grown) == 0
            for length, factor, divisor, grown in SCHEMES.values()
            for moved, growth in [motion(length, factor)]
        ],
        simplify(weighted - ALPHA / SIZE) == 0,
    )


def along(g: Expr = COSINE) -> Expr:
    """Return <u, A> of tokens with equal cosines."""
    return P + (COUNT - 1) * Q * g


def square(g: Expr = COSINE) -> Expr:
    """Return |A|^2 of tokens with equal cosines: A = (p - q) u_i + q sum_j u_j."""
    total = 1 + (COUNT - 1) * g
    return (P - Q) ** 2 + 2 * (P - Q) * Q * total + Q**2 * COUNT * total


def with_softmax(expression: Expr) -> Expr:
    """Return an expression in p and q for the weights of SA."""
    total = exp(BETA) + (COUNT - 1) * exp(BETA * COSINE)
    return expression.subs({P: exp(BETA) / total, Q: exp(BETA * COSINE) / total})


def normalisation_equal_cosines() -> Finding:
    other = P * COSINE + Q * (1 + (COUNT - 2) * COSINE)
    rate = 2 * (other - along() * COSINE)
    written = P**2 + 2 * P * Q * (COUNT - 1) * COSINE
    written += Q**2 * (COUNT - 1) * (1 + (COUNT - 2) * COSINE)
    return proven(
        expand(rate - 2 * Q * (1 - COSINE) * (1 + (COUNT - 1) * COSINE)) == 0,
        cancel(with_softmax(rate) - rate_of_the_cosine(unnormalised=False)) == 0,
        expand(square() - written) == 0,
    )


def first_speeds() -> tuple[Expr, Expr]:
    """Return g' of orthogonal tokens of length 1 with s = 1 and, squared, with s = |A|."""
    slow = rate_of_the_cosine(unnormalised=False).subs(COSINE, 0)
    return slow, slow**2 / with_softmax(square()).subs(COSINE, 0)


def normalisation_start() -> Finding:
    slow, fast = first_speeds()
    faster = cancel(fast / slow**2)
    missing = (COUNT - 1) * (exp(BETA) - 1) ** 2 / (exp(2 * BETA) + COUNT - 1)
    return proven(
        cancel(slow - 2 / (exp(BETA) + COUNT - 1)) == 0,
        cancel(fast - 4 / (exp(2 * BETA) + COUNT - 1)) == 0,
        cancel(COUNT - faster - missing) == 0,
        limit(faster / COUNT, COUNT, oo) == 1,
        limit(faster, BETA, oo) == 1,
    )


def closing(divisor: Expr = ONE) -> Expr:
    """Return g' / (1 - g) of SA at g = 1, where |A| = 1."""
    rate = cancel(rate_of_the_cosine(unnormalised=False) / (1 - COSINE))
    return simplify((rate / divisor.subs(SIZE, 1)).subs(COSINE, 1))


def normalisation_exponential() -> Finding:
    return proven(
        cancel(with_softmax(square()).subs(COSINE, 1)) == 1,
        closing(SCHEMES["Post-LN"][2]) == 2,
        simplify(closing(SCHEMES["nGPT"][2]) - 2 * ALPHA) == 0,
    )


def growth_of_scheme(scheme: str) -> Expr:
    """Return d log r / dg of SA as a function of g."""
    _, _, divisor, grown = SCHEMES[scheme]
    ratio = (grown * divisor / LENGTH).subs(ALONG, with_softmax(along()))
    return cancel(ratio / rate_of_the_cosine(unnormalised=False))


def normalisation_powers() -> Finding:
    weighted = [cancel(growth_of_scheme(scheme) * (1 - COSINE)) for scheme in ("Pre-LN", "Peri-LN")]
    return proven(
        cancel(weighted[0] - weighted[1]) == 0,
        cancel(weighted[0] - with_softmax(along() / (2 * Q * (1 + (COUNT - 1) * COSINE)))) == 0,
        weighted[0].subs(COSINE, 1) == Rational(1, 2),
        closing() == 2,
    )


def normalisation_order() -> Finding:
    # For SA p + (N - 1) q = 1.
    one = (P + (COUNT - 1) * Q) ** 2
    left = (1 - COSINE) * (COUNT - 1) * Q * (2 * P + (COUNT - 2) * Q)
    return proven(
        expand(one - square() - left) == 0,
        along().subs(COSINE, 0) == P,
        diff(along(), COSINE) == (COUNT - 1) * Q,
        closing() == 2,
    )


# Claims on long contexts: N tokens with equal cosines and beta = gamma log N, as N -> oo.
#
# With x = e^(beta (1 - g)) / N = N^(gamma (1 - g) - 1) the weights of SA are p = x q N and
# q = 1 / (x N + N - 1). Everything is rational in x and 1/N; x tends to 0, 1 or infinity if
# gamma (1 - g) is below, at or above 1.

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


def long_context_step() -> Finding:
    cosine = output_cosine()
    scale = exp(GAMMA * log(COUNT) * (1 - COSINE)) / COUNT
    return proven(
        simplify(scale - COUNT ** (GAMMA * (1 - COSINE) - 1)) == 0,
        value(cosine, Integer(0)) == 1,
        simplify(value(cosine, Integer(1)) - 4 * COSINE / (1 + 3 * COSINE)) == 0,
        simplify(value(cosine, oo) - COSINE) == 0,
    )


def of_orthogonal_tokens() -> Expr:
    """Return the cosine of outputs at g = 0."""
    return cancel(output_cosine().subs(COSINE, 0))


def long_context_orthogonal() -> Finding:
    written = (2 * RATIO - 2 * INVERSE + 1) / (RATIO**2 / INVERSE + 1 - INVERSE)
    small, share = symbols("s y", positive=True)
    scaled = cancel(written.subs({RATIO: sqrt(share) * small, INVERSE: small**2}))
    return proven(
        cancel(of_orthogonal_tokens() - written) == 0,
        simplify(scaled.subs(small, 0) - 1 / (1 + share)) == 0,
        value(in_the_ratio(P), Integer(0)) == 0,
        value(in_the_ratio(P), Integer(1)) == Rational(1, 2),
    )


def relative_speed() -> Expr:
    """Return g' / (2 g (1 - g)) of tokens with equal cosines under SA."""
    return in_the_ratio(Q * (1 + (COUNT - 1) * COSINE) / COSINE)


def long_context_flow() -> Finding:
    speed, size = relative_speed(), in_the_ratio(square())
    return proven(
        cancel(with_softmax(2 * Q * (1 - COSINE) * (1 + (COUNT - 1) * COSINE))
               - rate_of_the_cosine(unnormalised=False)) == 0,
        *[value(speed, at) == limit for at, limit in ((0, 1), (1, Rational(1, 2)), (oo, 0))],
        simplify(value(size, Integer(0)) - COSINE) == 0,
        value(size, oo) == 1,
    )  # fmt: skip
