"""Claims on clusters of tokens on the sphere: curvature, theorems, rates, repulsion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from sympy import (
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    cancel,
    cos,
    diff,
    exp,
    expand,
    eye,
    limit,
    log,
    nsolve,
    oo,
    pi,
    simplify,
    sin,
    symbols,
    zeros,
)

from symbolic.claims.explosion import vanishes
from symbolic.claims.ledger import Finding, imprecise, proven, refuted, tested
from symbolic.claims.particles import (
    BETA,
    COSINE,
    COUNT,
    PROJECTED_SQUARE,
    XX,
    XY,
    YY,
    gram_symbols,
    projected,
    rate_of_the_cosine,
    velocity_by_weights,
)

# Second derivatives of N^2 E along great circles, in inner products: a pair of tokens contributes
# exp(beta <x, y>) / beta.

C = Symbol("c", real=True)
"""Cosine of two tokens."""
S, AB, AA, BB = symbols("s ab aa bb", real=True)
"""<a, y> + <x, b>, <a, b>, |a|^2 and |b|^2, for tokens x and y with velocities a and b."""
DIMENSION, ANGLE = symbols("d a", positive=True)
MORE = Symbol("n", positive=True)
"""One less than the number of tokens."""
AT_LEAST_3 = 3 + Symbol("k", nonnegative=True)


def curvature_of_a_pair() -> Expr:
    """Return d^2/dt^2 exp(beta <x, y>) / beta at 0 along great circles with velocities a and b."""
    t = Symbol("t")
    # x + t a - t^2 |a|^2 x / 2 + O(t^3), and the same for y.
    cosine = C + t * S + t**2 * (AB - (AA + BB) * C / 2)
    return expand(diff(exp(BETA * cosine) / BETA, t, 2).subs(t, 0))


def every_point_has_a_way_up(dimension: Expr) -> bool:
    """Return whether the mean curvature is positive for every cosine from -1 to 1.

    It is that for a = P_x g and b = P_y g, one standard Gaussian vector g, so that
    s = (1 - c) <g, x + y> and <a, b> = |g|^2 - <g, x>^2 - <g, y>^2 + c <g, x> <g, y>.
    """
    square = (1 - C) ** 2 * (2 + 2 * C)
    means = {S**2: square, AB: DIMENSION - 2 + C**2, AA: DIMENSION - 1, BB: DIMENSION - 1}
    bracket = BETA * (1 - C) * (1 + C) + DIMENSION - 2 - C
    stated = 2 * exp(BETA * C) * (1 - C) * bracket
    s, r = Symbol("s", positive=True), Symbol("r", nonnegative=True)  # 1 - c and 1 + c
    terms = BETA * s * r + dimension - 3 + s
    return bool(expand(curvature_of_a_pair().subs(means) - stated) == 0 and terms.is_positive)


def curvature_of_one_token() -> Expr:
    """Return the trace over the directions a of one token x of the curvature of the pair (x, y)."""
    # The sum over an orthonormal basis of <a, y>^2 is 1 - c^2, of |a|^2 it is d - 1; b = 0.
    sums = {S**2: 1 - C**2, AB: 0, AA: DIMENSION - 1, BB: 0}
    return expand(curvature_of_a_pair().subs(sums))


# Claims on convergence to one cluster, from almost every start, for Q = K = V = I.
#
# USA is the gradient flow of the energy, SA that in the metric weighted by Z. Each trajectory of
# such an analytic flow on a compact manifold converges to a critical point (Lojasiewicz 1963), and
# the starts of those that converge to strict saddles, with a direction of positive second
# derivative, have measure zero (centre-stable manifolds: M. Shub, 1987, Theorem III.7). What
# remains is that every critical point other than one cluster is a strict saddle:
#
# d >= 3, any beta: the mean over directions P_i g with one Gaussian vector g is positive;
# any d, beta <= 1/n: if no single token can move up, all are in an open hemisphere, and then equal;
# d = 2, large beta: the tokens between two wide gaps move up together; with one wide gap only all
# are in an open half-circle.


def _hemisphere() -> bool:
    """Check d<x_i, e>/dt = sum w_ij (p (1 - c_ij) + q_j) if <x_i, e> = p and <x_j, e> = p + q_j.

    If p > 0 is the least of them, q_j >= 0. At a critical point it is 0, so all c_ij = 1.
    """
    (p, w), (q, s) = symbols("p w", positive=True), symbols("q s", nonnegative=True)
    return bool((w * expand(p + q - (1 - s) * p)).is_nonnegative)


def one_cluster_at_beta_zero() -> Finding:
    x, y = (Matrix(symbols(f"{name}_1:4")) for name in "xy")
    first, second = (exp(BETA * x.dot(z)) for z in (x, y))
    average = (first * x + second * y) / (first + second)
    return proven(
        (average.subs(BETA, 0) - (x + y) / 2).expand().is_zero_matrix,
        expand(curvature_of_one_token().subs(BETA, 0) + (DIMENSION - 1) * C) == 0,
        _hemisphere(),
    )


def index_of_the_token() -> Finding:
    tokens = [Matrix(place) for place in ([1, 0], [0, 1], [-1, 0])]
    speeds = [projected(x, sum(tokens, zeros(2, 1)) / 3) for x in tokens]
    return imprecise(
        part_that_holds=speeds[0] == Matrix([0, Rational(1, 3)]),
        part_that_fails=speeds[1] != speeds[0],
    )


def one_cluster_at_small_beta() -> Finding:
    count, beta, constant = symbols("n beta_1 C", positive=True)
    u = Symbol("u", positive=True)
    # (e^(beta c) - 1) c <= e^beta - 1 on [-1, 1]: convex in c for beta < 2. And for beta <= 1/n
    # (n - 1) (e^beta - 1) < 1, which is 1/n < -log(1 - 1/n).
    excess, logarithm = (exp(BETA * C) - 1) * C, -log(1 - u) - u
    trace = exp(BETA * C) * (BETA * (1 - C**2) - (DIMENSION - 1) * C)
    return imprecise(
        part_that_holds=expand(curvature_of_one_token() - trace) == 0
        and expand(diff(excess, C, 2) - BETA * exp(BETA * C) * (2 + BETA * C)) == 0
        and expand(excess.subs(C, 1) - excess.subs(C, -1) * exp(BETA)) == 0
        and vanishes(diff(logarithm, u) - u / (1 - u))
        and logarithm.subs(u, 0) == 0
        and _hemisphere(),
        part_that_fails=(constant / count).subs(constant, beta * count) == beta,
    )


def one_cluster_at_large_beta() -> Finding:
    # The curvature in u = cos a is concave, -1 at 1 and 1 at -1: positive from -1 to its root.
    u, (z, count) = Symbol("u", real=True), symbols("z n", positive=True)
    quadratic, kernel = BETA * (1 - u**2) - u, exp(BETA * cos(ANGLE))
    # With z = a^2, (sin a / a)^2 - cos a is at least z/6 - z^2/72 for a <= pi/2, since
    # sin a >= a - a^3/6 >= 0 and cos a <= 1 - z/2 + z^2/24.
    below = (1 - z / 6) ** 2 - (1 - z / 2 + z**2 / 24)
    least = count**2 / pi**2 - ((count - 1) / pi) ** 2
    return proven(
        simplify(diff(kernel / BETA, ANGLE, 2) / kernel - quadratic.subs(u, cos(ANGLE))) == 0,
        bool(diff(quadratic, u, 2).is_negative),
        quadratic.subs(u, 1) == -1,
        quadratic.subs(u, -1) == 1,
        expand(below - z / 6 * (1 - z / 12)) == 0,
        bool(pi**2 / 4 < 6),
        expand(least - (2 * count - 1) / pi**2) == 0,
        _hemisphere(),
        every_point_has_a_way_up(AT_LEAST_3),
    )


def one_cluster_in_three_dimensions() -> Finding:
    g, x, y = (Matrix(symbols(f"{name}_1:4")) for name in "gxy")
    gx, gy, xy = g.dot(x), g.dot(y), x.dot(y)
    a, b = projected(x, g), projected(y, g)
    # The two sums in `every_point_has_a_way_up`.
    first = a.dot(y) + x.dot(b) - (1 - xy) * (gx + gy)
    second = a.dot(b) - (g.dot(g) - gx**2 - gy**2 + xy * gx * gy)
    place = Matrix([3, 4, 0]) / 5
    return imprecise(
        part_that_holds=expand(first) == expand(second) == 0
        and every_point_has_a_way_up(AT_LEAST_3),
        part_that_fails=projected(place, -place).is_zero_matrix,
    )


def lojasiewicz() -> Finding:
    energy, step = exp(BETA * cos(ANGLE)) / BETA, Symbol("h", positive=True)
    ratios = []
    for place in (Integer(0), pi):
        ratio = diff(energy, ANGLE) ** 2 / (energy.subs(ANGLE, place) - energy)
        ratios.append(simplify(limit(ratio.subs(ANGLE, place + step), step, 0)))
    return tested(ratios == [2 * exp(BETA), -2 * exp(-BETA)])


# Claims on how fast tokens reach one cluster, and whether they do in finite time.


def linear_rate(unnormalised: bool) -> Expr:
    """Return k in y_i' = k (mean(y) - y_i) for displacements y of N tokens at one cluster.

    The velocity of token i depends on y_j by k/N, and on y_i by k/N - k, times the identity on the
    tangent plane; so differences decay as e^(-k t).
    """
    cluster, tangents = Matrix([0, 0, 1]), (symbols("y_1:3"), symbols("z_1:3"))
    # A token, one other, and N - 2 at the cluster.
    x, other = (cluster + Matrix([*tangent, 0]) for tangent in tangents)
    places = ((x, 1), (other, 1), (cluster, COUNT - 2))
    weights = [number * exp(BETA * x.dot(place)) for place, number in places]
    pull = sum((w * place for w, (place, _) in zip(weights, places, strict=True)), zeros(3, 1))
    field = projected(x, pull / (COUNT if unnormalised else sum(weights)))[:2, :]
    here = dict.fromkeys((*tangents[0], *tangents[1]), 0)
    on_own, on_other = (field.jacobian(y).subs(here).applyfunc(cancel) for y in tangents)
    rate = cancel(COUNT * on_other[0, 0])
    defects = on_other - rate / COUNT * eye(2), on_own - (rate / COUNT - rate) * eye(2)
    if not all(defect.expand().is_zero_matrix for defect in defects):
        raise ArithmeticError("displacements do not move as k (mean(y) - y)")
    return rate


def rate_of_convergence() -> Finding:
    orthogonal = rate_of_the_cosine(unnormalised=False).subs(COSINE, 0)
    return imprecise(
        part_that_holds=vanishes(orthogonal - 2 / (exp(BETA) + COUNT - 1))
        and linear_rate(unnormalised=True) == exp(BETA),
        part_that_fails=linear_rate(unnormalised=False) == 1,
    )


def excess_of_the_slope(unnormalised: bool) -> tuple[Expr, Expr]:
    """Return <D X v, v> plus 1 (SA) or plus the mean kernel (USA), and a sum of terms >= 0.

    The field X is the gradient of (1/beta) log sum k_j, k_j = w_j exp(beta <x, y_j>), or of the sum
    without the logarithm, so <D X v, v> is a second derivative along a great circle. Three places
    y_j with any weights.
    """
    gaps, along = symbols("u_1:4", nonnegative=True), symbols("s_1:4", real=True)
    kernels, t = symbols("k_1:4", positive=True), Symbol("t", real=True)
    places = list(zip(kernels, gaps, along, strict=True))
    # <x, y> = 1 - u and <v, y> = s on the great circle x cos t + v sin t.
    moved = sum(k * exp(BETA * ((1 - u) * (cos(t) - 1) + s * sin(t))) for k, u, s in places)
    total = sum(kernels)
    if unnormalised:
        # In the average over the places e^beta is at least each kernel e^(beta (1 - u)).
        slope = diff(moved / BETA, t, 2).subs(t, 0) + total
        return slope, sum(k * (BETA * s**2 + u) for k, u, s in places)
    p = [k / total for k in kernels]
    spread = sum(p[i] * p[j] * (along[i] - along[j]) ** 2 for i, j in ((0, 1), (0, 2), (1, 2)))
    slope = diff(log(moved) / BETA, t, 2).subs(t, 0) + 1
    return slope, BETA * spread + sum(a * u for a, u in zip(p, gaps, strict=True))


def collapse_in_finite_time() -> Finding:
    # a sin a <= 2 (1 - cos a): the difference has the second derivative a sin a, and is 0 twice.
    apart = 2 * (1 - cos(ANGLE)) - ANGLE * sin(ANGLE)
    return refuted(
        claim_fails=all(vanishes(a - b) for a, b in map(excess_of_the_slope, (False, True)))
        and expand(diff(apart, ANGLE, 2) - ANGLE * sin(ANGLE)) == 0
        and apart.subs(ANGLE, 0) == diff(apart, ANGLE).subs(ANGLE, 0) == 0,
        correction_holds=cancel(pace().subs(COSINE, 1)) == 2,
    )


# Claims on the long run: clusters, how long they last, and at what pace they form.


PULL, OWN, (A, B) = exp(BETA * COSINE), exp(BETA), symbols("a b", positive=True)
CLOSING = B * PULL / (A * OWN + B * PULL) + A * PULL / (B * OWN + A * PULL)
"""g' / (1 - g^2) of the cosine of two clusters of masses a and b, SA with V = Id.

x' = P_x y multiplied by b e^(beta g) / Z_x, and <P_x y, y> = 1 - g^2; the same for y.
"""


def clusters_in_the_long_run() -> Finding:
    place, turn = Matrix([3, 4]) / 5, Matrix([[0, -1], [1, 0]])
    first, second = angular_field((-ANGLE / 2, ANGLE / 2), normalised=True)
    return imprecise(
        part_that_holds=CLOSING.is_positive
        and bool(simplify((second - first) / sin(ANGLE)).is_negative),
        part_that_fails=angular_field((Integer(0), pi), normalised=True) == [0, 0]
        and projected(place, turn * place).norm() == 1,
    )


def two_clusters_last() -> Finding:
    scaled = (CLOSING * exp(BETA * (1 - COSINE))).subs({A: 2, B: 1})
    places = Rational(-1, 2), Rational(0), Rational(1, 2)
    return imprecise(
        part_that_holds={limit(scaled.subs(COSINE, g), BETA, oo) for g in places}
        == {Rational(5, 2)},
        part_that_fails=CLOSING.is_positive,
    )


def pace() -> Expr:
    """Return the rate of log(1/(1 - g)) of N tokens with equal cosines."""
    return cancel(rate_of_the_cosine(unnormalised=False) / (1 - COSINE))


def linear_pace() -> Finding:
    rate = rate_of_the_cosine(unnormalised=False)
    return refuted(
        claim_fails=rate.subs(COSINE, -1 / (COUNT - 1)) == rate.subs(COSINE, 1) == 0
        and rate.subs(COUNT, MORE + 1).subs(COSINE, 0).is_positive
        and vanishes(pace().subs({COSINE: 0, COUNT: 2}) - 2 / (exp(BETA) + 1)),
        correction_holds=cancel(pace().subs(COSINE, 1)) == 2,
    )


# Claims on the interaction energy F = (1/2) sum exp(-(beta/2) |x_i - x_j|^2): which force belongs
# to it, and where it is largest.


def gaussian_energy(cosine: Expr) -> Expr:
    """Return a summand of F for two unit vectors."""
    return exp(-(BETA / 2) * (2 - 2 * cosine)) / 2


def two_energies() -> Finding:
    summand = exp(BETA * COSINE) / (2 * BETA)
    return proven((gaussian_energy(COSINE) / summand - BETA * exp(-BETA)).simplify() == 0)


def energy_of(tokens: Sequence[int]) -> Expr:
    """Return F of tokens on the circle, at multiples of 30 degrees."""
    return sum(gaussian_energy(cos((a - b) * pi / 6)) for a in tokens for b in tokens)


def energy_of_a_measure() -> Finding:
    single, double = energy_of([0, 3]), energy_of([0, 3, 0, 3])
    return imprecise(
        part_that_holds=vanishes(double / 16 - single / 4),
        part_that_fails=vanishes(double - 4 * single) and single != 0,
    )


def angular_field(angles: Sequence[Expr], normalised: bool) -> list[Expr]:
    """Return the velocities of tokens at these angles on the circle, V = Id."""
    result = []
    for a in angles:
        kernel = {b: exp(BETA * cos(b - a)) for b in angles}
        moved = sum(k * sin(b - a) for b, k in kernel.items())
        result.append(moved / sum(kernel.values()) if normalised else moved)
    return result


def gradient_flow_of_the_energy() -> Finding:
    angles = symbols("t_1:4", real=True)
    sa, usa = (angular_field(angles, normalised) for normalised in (True, False))
    energy = sum(exp(BETA * cos(a - b)) for a in angles for b in angles) / (2 * BETA)
    place = dict(zip(angles, (0, pi / 2, pi), strict=True))
    rotation = diff(sa[0], angles[1]) - diff(sa[1], angles[0])  # 0 for a gradient
    return imprecise(
        part_that_holds=all(
            expand(diff(energy, a) - v) == 0 for a, v in zip(angles, usa, strict=True)
        ),
        part_that_fails=abs(float(rotation.subs(place).subs(BETA, 1))) > 1e-3,
    )


def rate_of_the_energy(sign: int) -> tuple[Expr, Expr]:
    """Return <P y, sign P y> and |P y|^2 in inner products, on the sphere.

    P dF/dx_i = beta e^(-beta) P y_i with y_i = sum_j exp(beta <x_i, x_j>) x_j, and the velocity is
    a positive multiple of V P y_i, V = sign Id.
    """
    return sign * (YY - XY**2), PROJECTED_SQUARE.subs(XX, 1)


def repulsive_energy() -> Finding:
    (rate, square), (other, _) = map(rate_of_the_energy, (1, -1))
    # The derivative of exp(-(beta/2) |x - y|^2) is -beta (x - y) times itself, and P x = 0.
    x, y = symbols("x_1:4", real=True), symbols("y_1:4", real=True)
    pairs = list(zip(x, y, strict=True))
    summand = exp(-(BETA / 2) * sum((a - b) ** 2 for a, b in pairs))
    return refuted(
        claim_fails=all(expand(diff(summand, a) + BETA * (a - b) * summand) == 0 for a, b in pairs)
        and expand(rate - square) == 0,
        correction_holds=expand(other + square) == 0,
    )


def energy_explodes() -> Finding:
    distance = Symbol("r", positive=True)
    term = exp(-(BETA / 2) * distance**2)
    return refuted(
        claim_fails=limit(term, distance, 0) == 1 and diff(term, distance).is_negative,
        correction_holds=energy_of([0, 0, 0]) == Rational(9, 2)
        and limit(diff(term, distance), distance, 0) == 0,
    )


def attraction_gathers() -> Finding:
    cosine, x = Symbol("g", nonnegative=True), Matrix([1, 0])
    rate = rate_of_the_cosine(unnormalised=False).subs({COUNT: MORE + 1, COSINE: cosine})
    return imprecise(
        part_that_holds=bool((rate / (1 - cosine)).is_positive),
        part_that_fails=projected(x, -x).is_zero_matrix,
    )


BIPYRAMID = {Integer(-1): 1, Integer(0): 10, cos(2 * pi / 5): 5, cos(4 * pi / 5): 5}
"""The cosines of two poles and a regular pentagon on the equator: least angle 72 degrees."""


def widest_seven() -> dict[Expr, int]:
    """Return the cosines of seven points with the largest least angle (Schuette, van der Waerden).

    A pole and two triangles of latitudes a and b, turned by 60 degrees: c = cos a is the cosine
    within the second triangle and of each point of it with two of the first.
    """
    a, b = symbols("a b", positive=True)
    within = cos(b) ** 2 - sin(b) ** 2 / 2
    across = cos(a) * cos(b) + sin(a) * sin(b) / 2
    first, second = nsolve([within - cos(a), across - cos(a)], (a, b), (1.36, 2.33))
    c, s = (f(first) * f(second) for f in (cos, sin))
    return {cos(first): 12, cos(first) ** 2 - sin(first) ** 2 / 2: 3, cos(second): 3, c - s: 3}


def repulsion_balances_attraction() -> Finding:
    stability = cancel(diff(rate_of_the_cosine(unnormalised=False), COSINE))
    simplex = cancel(stability.subs(COSINE, -1 / (COUNT - 1))).subs(COUNT, MORE + 1)
    triangle, layouts = energy_of([0, 4, 8]), (BIPYRAMID, widest_seven())
    hot, cold = (
        [sum(count * exp(beta * c) for c, count in layout.items()) for layout in layouts]
        for beta in (4, 40)
    )
    return refuted(
        claim_fails=bool(simplex.is_positive) and cancel(stability.subs(COSINE, 1)) == -2,
        correction_holds=(triangle - (3 + 6 * exp(-3 * BETA / 2)) / 2).simplify() == 0
        and limit(triangle, BETA, oo) < energy_of([0, 0, 0])
        and bool(max(layouts[0]) > max(layouts[1]))
        and bool(hot[0] < hot[1] and cold[0] > cold[1]),
    )


# Claims of the captions of figures on clustering, and the questions left for later.

OF_ANY_PAIR = (
    r"\mathbb{P}_{(x_1(0), \dots, x_n(0)) \sim \sigma_d, i \neq j \text{ fixed}} "
    r"(\{\langle x_1(t), x_2(t) \rangle \geq 1 - \delta\})"
)
"""The probability of any pair in the caption of Figure 3, as printed."""


def is_equivariant(causal: bool) -> bool:
    """Return whether permuted tokens have permuted rates, for three tokens."""
    gram, weights = gram_symbols(3)
    plain = velocity_by_weights(gram, weights, causal)
    for order in permutations(range(3)):
        permuted = [matrix.extract(order, order) for matrix in (gram, weights)]
        moved = velocity_by_weights(permuted[0], permuted[1], causal)
        if not (moved - plain.extract(order, order)).applyfunc(cancel).is_zero_matrix:
            return False
    return True


def figure_3_any_pair() -> Finding:
    return imprecise(
        part_that_holds=is_equivariant(causal=False),
        part_that_fails="x_i(t)" not in OF_ANY_PAIR and not is_equivariant(causal=True),
    )


def share_of_near_pairs(*sizes: int) -> Rational:
    """Return the share of pairs of different tokens that are in one cluster, from their sizes."""
    count = sum(sizes)
    return Rational(sum(size * (size - 1) for size in sizes), count * (count - 1))


def figure_3_single_point() -> Finding:
    return imprecise(
        part_that_holds=share_of_near_pairs(32) == 1,
        part_that_fails=share_of_near_pairs(16, 16) == Rational(15, 31),
    )
