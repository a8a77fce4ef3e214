"""Claims on layers with random values, heads and MLPs, and on speeds under norms."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import mpmath

from sympy import (  # isort: skip
    E, Expr, Function, IndexedBase, Integer, KroneckerDelta, Matrix, Rational, Symbol, acos, asin,
    cancel, cos, cosh, diff, exp, expand, factor, factorial, floor, fraction, gammasimp, integrate,
    limit, log, ones, oo, pi, series, simplify, sin, sinh, sqrt, symbols, tanh,
)  # fmt: skip
from sympy.concrete.delta import deltasummation

from symbolic.algebra import symbolic_covariance, vech, vech_pairs
from symbolic.claims.explosion import Ito, vanishes
from symbolic.claims.ledger import Finding, imprecise, proven, tested
from symbolic.claims.particles import BETA, COSINE, COUNT, OTHER, OWN, TOTALS, rate_of_the_cosine
from symbolic.gaussian import half_gaussian_moment, isserlis

# The sphere with Gaussian value matrices of mean 0, new in each layer: dx_i = P_i dW y_i and the
# correction that keeps |x_i| = 1, with y_i = sum_j w_ij x_j and entries of dW of variance dt / d.
# R_ij = <x_i, x_j> and S_ij = <y_i, y_j> = (w R w^T)_ij.

D, R = Symbol("d", positive=True), Symbol("r", real=True)
P, Q = symbols("p q", positive=True)
"""Dimension; cosine of two tokens; their weights p = w_00 and q = w_01."""

Pair = tuple[int, int]


def of_equal(own: Expr, other: Expr) -> Matrix:
    """Return the matrix of two tokens with one entry for both, and one for the pair."""
    return Matrix([[own, other], [other, own]])


PAIR, WEIGHTS = of_equal(Integer(1), R), of_equal(P, Q)
MIXED = WEIGHTS * PAIR * WEIGHTS.T
"""Gram matrix, weights and S of two tokens."""


def drift(r: Matrix, s: Matrix, i: int, j: int) -> Expr:
    """Return the claimed drift of R_ij."""
    return (D - 2 + r[i, j] ** 2) * s[i, j] / D - (D - 1) / (2 * D) * r[i, j] * (s[i, i] + s[j, j])


def bracket(r: Matrix, s: Matrix, first: Pair, second: Pair) -> Expr:
    """Return the claimed bracket of R_ij and R_kl."""
    return sum(
        s[i, k]
        * (r[j, l] - r[i, j] * r[i, l] - r[k, l] * r[j, k] + r[i, j] * r[i, k] * r[k, l])
        / D
        for (i, j), (k, l) in product((first, first[::-1]), (second, second[::-1]))
    )


WIDTH, ROW, OTHER_ROW, COLUMN, OTHER_COLUMN = symbols("n a c b e", integer=True, positive=True)
"""The dimension as the length of sums, rows a and c and columns b and e of dW."""


def summed(term: Expr, *ranges: tuple[Symbol, Symbol]) -> Expr:
    """Return the sum of a term with Kronecker deltas over indices from 1 to symbolic sizes."""
    for index, size in ranges:
        term = deltasummation(term, (index, 1, size), no_piecewise=True)
    return term


def _gaussian_moments() -> tuple[Expr, Expr]:
    """Return E <dW y, dW y'> / dt and E <x, dW y> <x', dW y'> / dt less their values, by terms."""
    x, x_, y, y_ = map(IndexedBase, ("x", "X", "y", "Y"))
    same_entry = KroneckerDelta(ROW, OTHER_ROW) * KroneckerDelta(COLUMN, OTHER_COLUMN) / WIDTH
    term, dot = y[COLUMN] * y_[OTHER_COLUMN] * same_entry, y[COLUMN] * y_[COLUMN]
    square = summed(term.subs(OTHER_ROW, ROW), (OTHER_COLUMN, WIDTH), (ROW, WIDTH))
    term *= x[ROW] * x_[OTHER_ROW]
    cross = summed(term, (OTHER_ROW, WIDTH), (OTHER_COLUMN, WIDTH))
    return square - dot, cross - x[ROW] * x_[ROW] * dot / WIDTH


def random_values_limit() -> Finding:
    # Before the tokens are normalised, G_ij = <x_i, x_j> has the drift S_ij and the bracket (1/d)
    # sum of S_ik G_jl over the four pairings; R_ij = G_ij / sqrt(G_ii G_jj).
    g, s, pairs = symbolic_covariance(4, "R"), symbolic_covariance(4, "S"), vech_pairs(4)

    def raw(first: Pair, second: Pair) -> Expr:
        choices = product((first, first[::-1]), (second, second[::-1]))
        return sum(s[i, k] * g[j, l] for (i, j), (k, l) in choices) / D

    brackets = Matrix(len(pairs), len(pairs), lambda a, b: raw(pairs[a], pairs[b]))
    ito, units = Ito(vech(g), Matrix(vech(s)), brackets), {g[i, i]: Integer(1) for i in range(4)}
    cosine = {(i, j): g[i, j] / sqrt(g[i, i] * g[j, j]) for i, j in combinations(range(4), 2)}
    r = g.subs(units)
    defects = [ito.drift(cosine[0, 1]).subs(units) - drift(r, s, 0, 1)]
    for pair, function in cosine.items():
        derived = ito.covariation(cosine[0, 1], function).subs(units)
        defects.append(derived - bracket(r, s, (0, 1), pair))
    return proven(*map(vanishes, _gaussian_moments()), *[expand(e) == 0 for e in defects])


def of_two_tokens(s: Matrix = MIXED) -> tuple[Expr, Expr]:
    """Return drift and bracket of the cosine r of two tokens."""
    return drift(PAIR, s, 0, 1), bracket(PAIR, s, (0, 1), (0, 1))


def growth(s: Matrix, end: int) -> tuple[Expr, Expr]:
    """Return the rate of E u and the drift of log u, for the small distance u of r from 1 or -1.

    Tokens at this end attract if the second is negative. `s` is S as a function of R.
    """
    u = Symbol("u", positive=True)
    b, a = (e.subs(R, end * (1 - u)) for e in of_two_tokens(s))
    rate, square = cancel(-end * b / u).subs(u, 0), cancel(a / u**2).subs(u, 0)
    return rate, rate - square / 2


def slope_in_z(b: Expr, a: Expr) -> Expr:
    """Return g = 2 drift / bracket of z = artanh r, where the scale density is exp(-int g)."""
    first = diff(log((1 + R) / (1 - R)) / 2, R)
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
    near, other = (SLOPE.subs(R, sign * (u - 1) / (u + 1)) for sign in (1, -1))
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


# arXiv 2601.21942: what noise does to one cluster and to antipodes, in that model.

N, M, X = symbols("n m x", positive=True)
"""Numbers of tokens of two clusters; exp(beta)."""


def of_two_clusters(count: Expr, other: Expr) -> tuple[Matrix, Matrix]:
    """Return R and S of clusters of `count` and `other` tokens at opposite points."""
    r, w = of_equal(1, -1), Matrix([[count * X, other / X], [count / X, other * X]])
    w = Matrix(2, 2, lambda i, j: w[i, j] / sum(w.row(i)))
    return r, w * r * w.T


def speed(value: Expr) -> Expr:
    """Return r' of two tokens without noise, for V = value I and weights p and q."""
    pull = value * WEIGHTS * PAIR
    return sum(pull[i, 1 - i] - R * pull[i, i] for i in range(2))


def noise_prevents_one_cluster() -> Finding:
    one, *two = (SLOPE.subs({R: -1, D: d, BETA: b}) for d, b in ((8, 1), (8, 2), (2, 1)))
    cluster_attracts = vanishes(growth(ones(2, 2), 1)[1] + (D - 1) / D)
    return imprecise(all(end < 0 for end in two), bool(one > 0) and cluster_attracts)


def antipodes_of_deterministic_flows() -> Finding:
    value = Symbol("v", real=True)
    slope = diff(speed(value), R).subs(R, -1)
    holds = vanishes(slope - 4 * value * Q) and bool(slope.subs(value, 1) > 0)
    return imprecise(holds, part_that_fails=bool(slope.subs(value, -1) < 0))


def antipodal_formations() -> Finding:
    x = X**2  # e^(2 beta), in which tanh beta, cosh 2 beta and cosh^2 beta are rational.
    tanh_squared, cosh_of_two = (x - 1) ** 2 / (x + 1) ** 2, (x + 1 / x) / 2
    first, second = ((a * x - b) / (a * x + b) for a, b in ((N, M), (M, N)))
    (equal, s), w = of_two_clusters(N, N), of_equal(x, 1) / (x + 1)
    across, inside = growth(w * PAIR * w.T, -1)[1], growth(s[0, 0] * ones(2, 2), 1)[1]
    away = drift(*of_two_clusters(N, M), 0, 1)
    return imprecise(
        part_that_holds=vanishes(drift(equal, s, 0, 1))
        and vanishes(across - (D - 2 - cosh_of_two) * 4 * x / (D * (x + 1) ** 2))
        and vanishes(inside + (D - 1) / D * tanh_squared),
        part_that_fails=vanishes(away - (D - 1) / (2 * D) * (first - second) ** 2)
        and bool(away.subs({N: 2, M: 1, D: 3, X: 2}) > 0),
    )


# arXiv 2604.01978: weights drawn afresh in each layer and head. A layer is N(x_i + eta u_i), with
# u_i = (1/H) sum_h V_h y_i^h and y^h = w_h x. Scores have mean 0 and E s_ik s_jl = beta^2 R_ij
# R_kl. The law of u enters cosines by S = E[w R w^T], divided by H.

HEADS, HEAD, OTHER_HEAD = symbols("H h k", integer=True, positive=True)
HEAD_COVARIANCE = KroneckerDelta(COLUMN, OTHER_COLUMN) * KroneckerDelta(HEAD, OTHER_HEAD)
"""The number of heads, and two of them; d E V_h,ab V_k,ac: only the same entry has a covariance."""


def random_values_heads() -> Finding:
    # The terms in h, b of d E u_a u'_a given the y_h; rows of V_h are independent.
    y, other = IndexedBase("y"), IndexedBase("Y")
    term = y[HEAD, COLUMN] * other[OTHER_HEAD, OTHER_COLUMN] * HEAD_COVARIANCE / HEADS**2
    found = summed(term, (OTHER_COLUMN, WIDTH), (OTHER_HEAD, HEADS))
    # The mean over heads of <y_h, y'_h>, divided by H.
    return proven(vanishes(found - y[HEAD, COLUMN] * other[HEAD, COLUMN] / HEADS / HEADS))


def normalised_step() -> tuple[Expr, Expr]:
    """Return the factors of P u and of x in the eta^2 of N(x + eta u): a = <x, u>, b = |P u|^2."""
    eta, a, b = symbols("eta a b", real=True)
    inverse = series(((1 + eta * a) ** 2 + eta**2 * b) ** Rational(-1, 2), eta, 0, 3).removeO()
    along, outward = (expand(e * inverse).coeff(eta, 2) for e in (eta, 1 + eta * a))
    return along, outward


def gaussian_drift_vanishes() -> Finding:
    a, b = symbols("a b", real=True)
    along, outward = normalised_step()
    covariance = symbolic_covariance(3, "C")
    tangential = along.coeff(a, 1) * covariance[1:, 0]
    isotropic = {covariance[i, j]: int(i == j) for i, j in vech_pairs(3)}
    return proven(
        vanishes(along + a),
        vanishes(outward + b / 2),
        tangential.subs(isotropic) == Matrix.zeros(2, 1),
        tangential == -covariance[1:, 0],
        vanishes(drift(PAIR, of_equal(1, BETA), 0, 1).subs(R, 0) - (D - 2) * BETA / D),
    )


_A, _B, _C = symbols("a b c", nonnegative=True)
POWERS = 1 - _A + _B - _B * _C, 1 - 2 * _A + _B - 2 * _B * _C
"""The powers of L in drift and variance: steps L^-a, and L^b = H heads, over H^c."""


def deterministic_or_stochastic() -> Finding:
    (mean, variance), b = POWERS, Symbol("b", nonnegative=True)
    signs = bool((-1 - b).is_negative) and bool(((1 + b) / 2).is_positive)
    return proven(vanishes(variance - (2 * mean - 1 - b)), signs)


def expected_s() -> tuple[Expr, Expr]:
    """Return E S_ii and E S_ij of N tokens with equal cosines r, up to beta^2.

    S = r + (1 - r) w w^T, w_ik - 1/N = (s_ik - mean of row i)/N + ..., and the rows of w sum to 1.
    """
    spread = BETA**2 * (COUNT - 1) * (1 - R) / COUNT**2
    own, other = (R + (1 - R) * (1 / COUNT + cosine * spread) for cosine in (Integer(1), R))
    return own, other


def _mean(function: Callable[[mpmath.mpf], mpmath.mpf]) -> mpmath.mpf:
    """Return the mean of a function of a standard normal number."""
    ends, root = [-mpmath.inf, 0, mpmath.inf], mpmath.sqrt(2 * mpmath.pi)
    return mpmath.quad(lambda z: function(z) * mpmath.exp(-z * z / 2), ends) / root


def collapse_by_dimension_length_temperature() -> Finding:
    own, other = expected_s()
    spread = (1 - R) ** 2 * BETA**2 * (COUNT - 1) / COUNT**2
    mean = ((COUNT - 1) * R + 1) / COUNT
    claimed = (1 - R) / D * ((D - 2 - R) * mean - R * (1 + R) * spread)
    slower = 2 * BETA * R * (1 + R) * (1 - R) ** 3 * (COUNT - 1) / (D * COUNT**2)
    beta, r = mpmath.mpf("0.05"), mpmath.mpf("0.3")
    square = _mean(lambda z: mpmath.tanh(beta * mpmath.sqrt((1 - r) / 2) * z) ** 2)
    exact = r + (1 - r) * (1 + square) / 2
    return proven(
        vanishes(drift(PAIR, of_equal(own, other), 0, 1) - claimed),
        vanishes(claimed.subs(R, 0) - (D - 2) / (D * COUNT)),
        vanishes(diff(claimed, BETA) + slower),
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


def antipode() -> Expr:
    """Return d times the exponent of 1 + r of two tokens at the antipode.

    S_ij = r + (1 - r) (1 + E tanh(a_i/2) tanh(a_j/2))/2, where a_i = s_i1 - s_i2 is Gaussian; near
    r = -1 the means at i = j and i != j add up to beta^2 (1 + r) f + ....
    """
    means = SQUARE, BETA**2 * (1 + R) * FLAT - SQUARE
    return D * growth(of_equal(*(R + (1 - R) * (1 + mean) / 2 for mean in means)), -1)[1]


def means_at(beta: mpmath.mpf) -> dict[Symbol, mpmath.mpf]:
    flat = _mean(lambda z: mpmath.cosh(beta * z) ** -4)
    return {BETA: beta, FLAT: flat, SQUARE: _mean(lambda z: mpmath.tanh(beta * z) ** 2)}


def clustering_mitigated() -> Finding:
    exponent, t = antipode(), symbols("t_1:3", real=True)
    # w_i1 / w_i2 = exp(a_i), and t_i = tanh(a_i / 2).
    w = Matrix(2, 2, lambda i, k: (1 + difference_of_scores(i)[k] * t[i]) / 2)
    covariance = Matrix(2, 2, covariance_of_differences)
    betas = [mpmath.sqrt(2) ** k for k in (-8, -4, -2, *range(8), 10, 12)]
    return tested(
        vanishes(growth(ones(2, 2), 1)[1] + (D - 1) / D),
        expand((w * PAIR * w.T)[0, 1] - R - (1 - R) * (1 + t[0] * t[1]) / 2) == 0,
        all(map(vanishes, covariance - 2 * BETA**2 * (1 - R) * PAIR)),
        vanishes(exponent - (D - 3) * (1 + BETA**2 * FLAT) + (D - 1) * SQUARE),
        all(expand(exponent.subs(D, d)).is_negative for d in (2, 3)),
        vanishes(diff(exponent, D) - (1 + BETA**2 * FLAT - SQUARE)),
        all(exponent.subs({D: 4, **means_at(beta)}) > 0.1 for beta in betas),
    )


# Heads with random queries and keys, and random MLPs. Given the first matrices of a layer its noise
# is that of random values with S = (1/H) sum_h w_h R w_h^T for heads, and
# S = (1/p) sum_a phi(u_a) phi(u_a)^T for an MLP, where the u_a are normal with the covariance R.

A, K, B = symbols("A K B", positive=True)
"""kappa(1) = E phi^2, kappa'(1) = E phi'^2, and S_01."""

ATTRACTION = (D - 1) * A - (D - 3) * K
"""One cluster attracts iff it is positive."""

TOWARDS, ACROSS = B - R * A, A - R * B
MLP_SLOPE = (D - 2) * TOWARDS / ACROSS + R
"""g: the scale density in z = artanh r is exp(-int g)."""


def random_weights_mean() -> Finding:
    r, s, t = (symbolic_covariance(4, name) for name in "RST")
    c, pairs = Symbol("c", real=True), list(combinations(range(4), 2))
    cases = [(drift, pair) for pair in pairs] + [(bracket, (pairs[0], pair)) for pair in pairs]
    return proven(
        *[vanishes(f(r, s + c * t, *of) - f(r, s, *of) - c * f(r, t, *of)) for f, of in cases]
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


def random_mlp_kernel() -> Finding:
    s, t, u = symbols("s t u")
    n, angle = Symbol("n", integer=True, nonnegative=True), Symbol("t", positive=True)
    generating, any_polynomial = exp(s * u - s**2 / 2), Function("He")(u)
    following = next_hermite(any_polynomial, u)
    # E exp(s u + t v) = exp((s^2 + t^2 + 2 r s t) / 2).
    exponent = (s**2 + t**2 + 2 * R * s * t) / 2 - s**2 / 2 - t**2 / 2
    # E relu(u) relu(v) of normals with the correlation cos t.
    kernel = half_gaussian_moment(angle)
    at_one = kernel.subs(angle, 0), limit(diff(kernel, angle) / -sin(angle), angle, 0)
    return proven(
        expand(exponent - R * s * t) == 0,
        expand(following - u * any_polynomial + diff(any_polynomial, u)) == 0,
        generating.subs(s, 0) == 1,
        simplify(diff(generating, s) - next_hermite(generating, u)) == 0,
        # E phi' f - E phi (u f - f'), with the density, is the integral of a derivative.
        by_parts(any_polynomial, u) == 0,
        # The squared ratio of the two coefficients, E phi He_n+1 over sqrt(n!) and sqrt((n + 1)!).
        gammasimp(factorial(n + 1) / factorial(n)) == n + 1,
        simplify(kernel - (sin(angle) + (pi - angle) * cos(angle)) / (2 * pi)) == 0,
        tuple(simplify(value - Rational(1, 2)) for value in at_one) == (0, 0),
        simplify(kernel.subs(angle, pi)) == 0,
    )


def random_mlp_two_tokens() -> Finding:
    b, a = of_two_tokens(of_equal(A, B))
    softmax = {A: P**2 + Q**2 + 2 * P * Q * R, B: 2 * P * Q + (P**2 + Q**2) * R}
    return proven(
        vanishes(b - ((D - 2) * TOWARDS - R * ACROSS) / D),
        vanishes(a - 2 * (1 - R**2) * ACROSS / D),
        vanishes(slope_in_z(b, a) - MLP_SLOPE),
        vanishes(MLP_SLOPE.subs(softmax) - slope_in_z(*of_two_tokens())),
    )


def _at_one(slope: Expr) -> Expr:
    """Return the limit of a slope at r = 1 for B = kappa(r), by l'Hopital's rule."""
    kappa = Function("kappa")(R)
    parts = (slope - R).subs(B, kappa).together().as_numer_denom()
    ends = {kappa.diff(R): K, kappa: A}
    if any(simplify(part.subs(ends).subs(R, 1)) != 0 for part in parts):
        raise ArithmeticError("numerator and denominator do not both vanish at r = 1")
    above, below = (diff(part, R).subs(ends).subs(R, 1) for part in parts)
    return simplify(above / below + 1)


def last_dimension(kernel: Expr) -> Expr:
    """Return the largest d with (d - 1) A > (d - 3) K, for a kernel in r with K > A."""
    value, slope = kernel.subs(R, 1), diff(kernel, R).subs(R, 1)
    if not slope.evalf() > value.evalf():
        raise ArithmeticError("there is no such dimension")
    return floor((3 * slope - value) / (slope - value))


def random_mlp_synchronises() -> Finding:
    end, n = _at_one(MLP_SLOPE), Symbol("n", positive=True)
    return proven(
        simplify((A + K) * end - ATTRACTION) == 0,
        # a_n^2 of kappa, and its part in K - A and in the two slopes.
        simplify(diff(R**n - R, R).subs(R, 1) - (n - 1)) == 0,
        simplify(diff(1 - R ** (n + 1), R).subs(R, 1) + n + 1) == 0,
        last_dimension(sinh(R) / E) == 9,
        last_dimension(2 * asin(2 * R / 3) / pi) == 11,
        simplify(end.subs(K, A)) == 1,
    )


def random_mlp_attention() -> Finding:
    sigma, sign = Symbol("sigma", positive=True), Symbol("s", real=True)
    b, a = of_two_tokens(of_equal(A, B))
    flow = 2 * sign * Rational(1, 2) * (1 - R**2)
    end = _at_one(simplify(slope_in_z(sigma**2 * b + flow, sigma**2 * a)))
    known = ATTRACTION + 2 * sign * D / sigma**2
    return proven(simplify((A + K) * end - known) == 0)


def random_mlp_antipode() -> Finding:
    b, a = of_two_tokens(of_equal(A, B))
    there, half = Symbol("kappa_-1", real=True), Symbol("k", integer=True, nonnegative=True)
    ends = {R: -1, B: there}
    return proven(
        vanishes(MLP_SLOPE.subs({R: -R, B: -B}, simultaneous=True) + MLP_SLOPE),
        vanishes(b.subs(ends).subs(there, -A)),
        vanishes(b.subs(ends) - (D - 1) * (A + there) / D),
        simplify(4 * b.subs(ends) / cancel(a / (1 + R)).subs(ends) - (D - 1)) == 0,
        # What a power r^n adds to kappa(1) + kappa(-1): for even and for odd n.
        [simplify(1 + Integer(-1) ** (2 * half + rest)) for rest in range(2)] == [2, 0],
    )


def score_moment(width: int, indices: tuple[Pair, ...]) -> Expr:
    """Return E of a product of scores <Q x_i, K x_j> / sqrt k of unit tokens, (i, j) each."""
    total = Integer(0)
    for entries in product(range(width), repeat=len(indices)):
        both = zip(entries, indices, strict=True)
        labels = [label for a, (i, j) in both for label in (("q", a, i), ("k", a, j))]
        total += isserlis(labels, lambda x, y: PAIR[x[2], y[2]] if x[:2] == y[:2] else Integer(0))
    return expand(total / sqrt(width) ** len(indices))


def moments_of_a_sum(second: Expr, fourth: Expr, count: Expr) -> tuple[Expr, Expr]:
    """Return both moments of a sum of independent equal terms of mean 0, divided by sqrt(count)."""
    pairs = 3 * count * (count - 1) * second**2  # 3 for each two of the terms.
    return count * second / count, (count * fourth + pairs) / count**2


def random_heads_scores() -> Finding:
    pairs, k = list(product(range(2), repeat=2)), Symbol("k", integer=True, positive=True)
    second, fourth = (score_moment(1, ((0, 1),) * power) for power in (2, 4))
    variance, kurtosis = moments_of_a_sum(second, fourth, k)
    return proven(
        simplify(variance - 1) == 0,
        simplify(kurtosis - 3 - 6 / k) == 0,
        *[
            expand(score_moment(width, ((a, b), (c, d))) - PAIR[a, c] * PAIR[b, d]) == 0
            for width, (a, b), (c, d) in product((1, 2, 3), pairs, pairs)
        ],
        *[score_moment(width, ((0, 1),) * 4) == 3 + Integer(6) / width for width in (1, 2, 3)],
    )


# arXiv 2604.26898: synchronisation by the noise of a wide MLP with fresh Gaussian weights. S_ij is
# kappa(R_ij), scaled to kappa(1) = 1; what decides is k = kappa'(1) = E phi'^2 / E phi^2.

KERNEL_SLOPE = Symbol("k", positive=True)


def at_end(end: int) -> tuple[Expr, Expr]:
    """Return the growth of 1 - r or, for odd activations, of 1 + r."""
    return growth(of_equal(1, end * (1 - KERNEL_SLOPE * (1 - end * R))), end)


def slope(function: Expr, z: Symbol, start: Expr = -oo) -> Expr:
    """Return E phi'^2 / E phi^2 for a function that is 0 below `start`."""
    square, other = (
        expand(integrate(expand(f.rewrite(exp) ** 2) * exp(-(z**2) / 2), (z, start, oo)))
        for f in (function.diff(z), function)
    )
    return square / other


def synchronisation_by_noise() -> Finding:
    typical, other = at_end(1)[1], at_end(-1)[1]
    attraction = ATTRACTION.subs({A: 1, K: KERNEL_SLOPE})
    return imprecise(
        part_that_holds=vanishes(D * typical + attraction)
        and vanishes(typical.subs(KERNEL_SLOPE, 1) + 2 / D),
        part_that_fails=typical.subs({KERNEL_SLOPE: 3, D: 8}) == 1 and vanishes(other - typical),
    )


def above_the_tangent(power: Expr) -> Expr:
    return R**power - 1 + power * (1 - R)


def dissipation_of_energy_on_average() -> Finding:
    # r^j >= 1 - j (1 - r) for |r| <= 1 by induction: from j to j + 1 the difference grows by
    # (1 - r) (1 - r^j) >= 0, and at j = 0 it is 0.
    j = Symbol("j", integer=True, nonnegative=True)
    step = above_the_tangent(j + 1) - above_the_tangent(j) - (1 - R) * (1 - R**j)
    speed = drift(PAIR, of_equal(1, 1 - KERNEL_SLOPE * (1 - R)), 0, 1)
    bound = ((D - 3) - (D - 1) * KERNEL_SLOPE) / D
    surplus = expand(D * cancel(speed / (1 - R) - bound))
    value, weight = symbols("v q", positive=True)
    attention = 2 * value * weight * (1 - R**2)
    return proven(
        expand(step) == 0 and above_the_tangent(Integer(0)) == 0,
        vanishes(surplus - (1 - R) - KERNEL_SLOPE * (1 - R**2)),
        vanishes(at_end(1)[0] + bound),
        vanishes(cancel(attention / (1 - R)).subs({R: 1, weight: Integer(1) / 2}) - 2 * value),
    )


def coercive_activations() -> Finding:
    z, s = Symbol("z", real=True), Symbol("s", positive=True)
    slopes = {exp: s**2, sin: s**2 / tanh(s**2), cos: s**2 * tanh(s**2)}
    return proven(
        *[slope(z, z, start) == 1 for start in (-oo, Integer(0))],
        *[simplify((slope(f(s * z), z) - k).rewrite(exp)) == 0 for f, k in slopes.items()],
        vanishes(factor(at_end(1)[0].subs(KERNEL_SLOPE, 1)) - 2 / D),
    )


# Where the layers on the sphere normalise, for tokens x = r u, |u| = 1, and N(y) = y / |y|. Post-LN
# N(x + h A), Pre-LN x + h A, Peri-LN x + h N(A), nGPT N(x + alpha h N(A)), as h -> 0.

STEP, LENGTH, SIZE, ALPHA = symbols("h r a alpha", positive=True)
ALONG, ONE = Symbol("b", real=True), Integer(1)
"""Step; |x|; |A|; weight of the branch of nGPT; <u, A>."""

SCHEMES: dict[str, tuple[Expr, Expr, Expr, Expr]] = {
    "Post-LN": (ONE, ONE, ONE, ALONG),
    "Pre-LN": (LENGTH, ONE, LENGTH, ALONG),
    "Peri-LN": (LENGTH, 1 / SIZE, LENGTH * SIZE, ALONG / SIZE),
    "nGPT": (ONE, ALPHA / SIZE, SIZE / ALPHA, ALPHA * ALONG / SIZE),
}
"""|x|, the factor of A in a layer, the claimed s, and the growth of |x| before it is normalised."""


def motion(length: Expr, weight: Expr, kept: Expr = ONE) -> tuple[Expr, Expr]:
    """Return k and r' if N(k(h) r u + h f A) moves u by k P_u A, and its length is r + h r'.

    Raises
    ------
    ArithmeticError
        If u moves in another direction than P_u A = A - <u, A> u.
    """
    square = (kept * length) ** 2 + 2 * STEP * weight * kept * length * ALONG
    size = sqrt(square + (STEP * weight * SIZE) ** 2)
    parts = kept * length / size, STEP * weight / size, size
    on_u, on_attention, growth = (simplify(diff(part, STEP).subs(STEP, 0)) for part in parts)
    if simplify(on_u + ALONG * on_attention) != 0:
        raise ArithmeticError("the direction does not move along P_u A")
    return on_attention, growth


def normalisation_speeds() -> Finding:
    facts = []
    for length, weight, divisor, grown in SCHEMES.values():
        moved, growth = motion(length, weight)
        facts.append(simplify(moved * divisor - 1) == 0 and simplify(growth - grown) == 0)
    weighted = motion(ONE, ALPHA / SIZE, 1 - ALPHA * STEP)[0]
    return proven(*facts, simplify(weighted - ALPHA / SIZE) == 0)


def along(g: Expr = COSINE) -> Expr:
    """Return <u, A> of tokens with equal cosines."""
    return P + (COUNT - 1) * Q * g


def square(g: Expr = COSINE) -> Expr:
    """Return |A|^2 of tokens with equal cosines: A = (p - q) u_i + q sum_j u_j."""
    total = 1 + (COUNT - 1) * g
    return (P - Q) ** 2 + 2 * (P - Q) * Q * total + Q**2 * COUNT * total


def with_softmax(expression: Expr) -> Expr:
    """Return an expression in p and q for the weights of SA."""
    return expression.subs({P: OWN / TOTALS[False], Q: OTHER / TOTALS[False]})


def normalisation_equal_cosines() -> Finding:
    rest = 1 + (COUNT - 2) * COSINE
    rate = 2 * (P * COSINE + Q * rest - along() * COSINE)
    written = P**2 + 2 * P * Q * (COUNT - 1) * COSINE + Q**2 * (COUNT - 1) * rest
    return proven(
        expand(rate - 2 * Q * (1 - COSINE) * (1 + (COUNT - 1) * COSINE)) == 0,
        cancel(with_softmax(rate) - rate_of_the_cosine(unnormalised=False)) == 0,
        expand(square() - written) == 0,
    )


def normalisation_start() -> Finding:
    # g' of orthogonal tokens of length 1 with s = 1 and, squared, with s = |A|.
    slow = rate_of_the_cosine(unnormalised=False).subs(COSINE, 0)
    fast = slow**2 / with_softmax(square()).subs(COSINE, 0)
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


def normalisation_powers() -> Finding:
    # d log r / dg of SA as a function of g, times 1 - g.
    relative = (1 - COSINE) / rate_of_the_cosine(unnormalised=False)
    pre, peri = (
        cancel((grown * divisor / LENGTH).subs(ALONG, with_softmax(along())) * relative)
        for _, _, divisor, grown in (SCHEMES["Pre-LN"], SCHEMES["Peri-LN"])
    )
    return proven(
        cancel(pre - peri) == 0,
        cancel(pre - with_softmax(along() / (2 * Q * (1 + (COUNT - 1) * COSINE)))) == 0,
        pre.subs(COSINE, 1) == Rational(1, 2),
        closing() == 2,
    )


def normalisation_order() -> Finding:
    # For SA p + (N - 1) q = 1.
    left = (1 - COSINE) * (COUNT - 1) * Q * (2 * P + (COUNT - 2) * Q)
    return proven(
        expand((P + (COUNT - 1) * Q) ** 2 - square() - left) == 0,
        along().subs(COSINE, 0) == P,
        diff(along(), COSINE) == (COUNT - 1) * Q,
        closing() == 2,
    )


# Long contexts: N -> oo tokens, equal cosines, beta = gamma log N. With x = e^(beta (1 - g)) / N
# = N^(gamma (1 - g) - 1) the weights of SA are p = x q N and q = 1 / (x N + N - 1). x tends to 0, 1
# or infinity if gamma (1 - g) is below, at or above 1.

RATIO, INVERSE, GAMMA = symbols("x e gamma", positive=True)
"""p / (N q); 1 / N; beta / log N."""


def in_the_ratio(expression: Expr) -> Expr:
    """Return an expression in p, q, N as a rational function of x and 1/N."""
    q = 1 / (RATIO * COUNT + COUNT - 1)
    return cancel(expression.subs({P: RATIO * COUNT * q, Q: q}).subs(COUNT, 1 / INVERSE))


def output_cosine() -> Expr:
    """Return the cosine of two outputs A_i, A_j = (p - q) u + q sum_k u_k of one attention."""
    return in_the_ratio(1 - (P - Q) ** 2 * (1 - COSINE) / square())


def value(expression: Expr, ratio: Expr | int) -> Expr:
    """Return the limit as N -> oo and x tends to 0, 1 or infinity.

    Raises
    ------
    ArithmeticError
        If it depends on how they do: the expression is not continuous in x (or 1/x) and 1/N.
    """
    if ratio == oo:
        expression, ratio = expression.subs(RATIO, 1 / RATIO), 0
    parts = fraction(cancel(expression))
    numerator, denominator = (part.subs({RATIO: ratio, INVERSE: 0}) for part in parts)
    if denominator == 0:
        raise ArithmeticError("the limit depends on how x and 1/N tend to 0")
    return simplify(numerator / denominator)


def long_context_step() -> Finding:
    cosine, scale = output_cosine(), exp(GAMMA * log(COUNT) * (1 - COSINE)) / COUNT
    limits = {0: ONE, 1: 4 * COSINE / (1 + 3 * COSINE), oo: COSINE}
    return proven(
        simplify(scale - COUNT ** (GAMMA * (1 - COSINE) - 1)) == 0,
        *[simplify(value(cosine, at) - known) == 0 for at, known in limits.items()],
    )


def long_context_orthogonal() -> Finding:
    written = (2 * RATIO - 2 * INVERSE + 1) / (RATIO**2 / INVERSE + 1 - INVERSE)
    small, share = symbols("s y", positive=True)
    scaled = cancel(written.subs({RATIO: sqrt(share) * small, INVERSE: small**2}))
    return proven(
        cancel(output_cosine().subs(COSINE, 0) - written) == 0,
        simplify(scaled.subs(small, 0) - 1 / (1 + share)) == 0,
        value(in_the_ratio(P), 0) == 0,
        value(in_the_ratio(P), 1) == Rational(1, 2),
    )


def relative_speed() -> Expr:
    """Return g' / (2 g (1 - g)) of tokens with equal cosines under SA."""
    return in_the_ratio(Q * (1 + (COUNT - 1) * COSINE) / COSINE)


def long_context_flow() -> Finding:
    speed, size = relative_speed(), in_the_ratio(square())
    rate = with_softmax(2 * Q * (1 - COSINE) * (1 + (COUNT - 1) * COSINE))
    return proven(
        cancel(rate - rate_of_the_cosine(unnormalised=False)) == 0,
        *[value(speed, at) == limit for at, limit in ((0, 1), (1, Rational(1, 2)), (oo, 0))],
        simplify(value(size, 0) - COSINE) == 0,
        value(size, oo) == 1,
    )
