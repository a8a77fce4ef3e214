"""Claims on clusters of tokens on the sphere: curvature, theorems, rates, repulsion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    factor,
    limit,
    log,
    nsolve,
    oo,
    pi,
    simplify,
    sin,
    symbols,
    trigsimp,
)

from symbolic.claims.ledger import Finding, imprecise, proven, refuted, tested
from symbolic.claims.particles import (
    BETA,
    COSINE,
    COUNT,
    gram_symbols,
    rate_of_the_cosine,
    velocity_by_weights,
)

# Second derivatives of the energy of tokens on the sphere, in inner products.
#
# They are those of N^2 E, along great circles, of a pair of tokens: exp(beta <x, y>) / beta.

C = Symbol("c", real=True)
"""Cosine of two tokens."""
DIMENSION = Symbol("d", positive=True)


ANGLE = Symbol("a", positive=True)


def curvature_of_a_pair() -> Expr:
    """Return d^2/dt^2 exp(beta <x, y>) / beta at 0 along great circles with velocities a and b.

    The symbols are ab = <a, b>, aa, bb, and s = <a, y> + <x, b>.
    """
    t = Symbol("t")
    ab, aa, bb, s = symbols("ab aa bb s", real=True)
    # x + t a - t^2 |a|^2 x / 2 + O(t^3), and the same for y.
    cosine = C + t * s + t**2 * (ab - aa * C / 2 - bb * C / 2)
    return expand(diff(exp(BETA * cosine) / BETA, t, 2).subs(t, 0))


def mean_curvature() -> Expr:
    """Return its mean for a = P_x g and b = P_y g, one standard Gaussian vector g.

    <a, y> + <x, b> = (1 - c) <g, x + y>, <a, b> = |g|^2 - <g, x>^2 - <g, y>^2 + c <g, x> <g, y>.
    """
    s, ab, aa, bb = symbols("s ab aa bb", real=True)
    square = (1 - C) ** 2 * (2 + 2 * C)
    others = {ab: DIMENSION - 2 + C**2, aa: DIMENSION - 1, bb: DIMENSION - 1}
    curvature = curvature_of_a_pair()
    return factor(curvature.coeff(s, 2) * square + curvature.coeff(s, 0).subs(others))


def every_point_has_a_way_up(dimension: Expr) -> bool:
    """Return whether the mean second derivative is positive for every cosine from -1 to 1.

    With c = 1 - s and 1 + c = r it is a sum of terms in s > 0, r >= 0.
    """
    s, r = Symbol("s", positive=True), Symbol("r", nonnegative=True)
    bracket = cancel(mean_curvature() / (2 * exp(BETA * C) * (1 - C))).subs(DIMENSION, dimension)
    claimed = BETA * (1 - C) * (1 + C) + dimension - 2 - C
    in_terms = BETA * s * r + expand((dimension - 2 - C).subs(C, 1 - s))
    return bool(expand(bracket - claimed) == 0 and in_terms.is_positive)


def curvature_of_one_token() -> Expr:
    """Return the trace over the directions a of one token x of the curvature of the pair (x, y)."""
    # The sum over an orthonormal basis of <a, y>^2 is 1 - c^2, of |a|^2 it is d - 1; b = 0.
    curvature = curvature_of_a_pair()
    s, aa, ab, bb = symbols("s aa ab bb", real=True)
    fixed = {aa: DIMENSION - 1, ab: 0, bb: 0}
    return expand(curvature.coeff(s, 2) * (1 - C**2) + curvature.coeff(s, 0).subs(fixed))


def curvature_on_the_circle() -> Expr:
    """Return the second derivative of exp(beta cos a) / beta by the angle, over exp(beta cos a)."""
    kernel = exp(BETA * cos(ANGLE))
    return expand(cancel(diff(kernel / BETA, ANGLE, 2) / kernel))


# Claims on convergence to one cluster, from almost every start, for Q = K = V = I.
#
# USA is the gradient flow of the energy, SA that in the metric weighted by Z. Each trajectory of
# such an analytic flow on a compact manifold converges to a critical point (Lojasiewicz 1963), and
# the starts of those that converge to strict saddles, with a direction of positive second
# derivative, have measure zero (centre-stable manifolds: M. Shub, 1987, Theorem III.7). So what
# remains to be shown is that every critical point other than one cluster is a strict saddle. It is
# shown here from second derivatives of N^2 E along great circles, in inner products:
#
# d >= 3, any beta the mean over directions P_i g with one Gaussian vector g is positive; any d,
# beta <= 1/n if no single token can move up, all are in an open hemisphere, and then they are
# equal; d = 2, large beta the tokens between two wide gaps move up together; with one wide gap only
# all are in an open half-circle.


def _projections() -> bool:
    """Check the two sums in `mean_curvature` for vectors of three coordinates."""
    g, x, y = (Matrix(symbols(f"{name}_1:4")) for name in "gxy")
    gx, gy, xy = g.dot(x), g.dot(y), x.dot(y)
    a, b = g - gx * x, g - gy * y
    first = a.dot(y) + x.dot(b) - (gy - gx * xy + gx - gy * xy)
    second = a.dot(b) - (g.dot(g) - gx**2 - gy**2 + xy * gx * gy)
    return expand(first) == 0 and expand(second) == 0


def _one_token_cannot_move_up() -> bool:
    """Check that the trace is exp(beta c) times beta (1 - c^2) - (d - 1) c.

    If the sum over the others is <= 0, then sum exp(beta c) c >= 0.
    """
    claimed = exp(BETA * C) * (BETA * (1 - C**2) - (DIMENSION - 1) * C)
    return expand(curvature_of_one_token() - claimed) == 0


def _small_beta_bounds() -> list[bool]:
    """Check (e^(beta c) - 1) c <= e^beta - 1 on [-1, 1] and (n - 1)(e^beta - 1) < 1, beta <= 1/n.

    The first is convex in c for beta < 2, and the second is 1/n < -log(1 - 1/n).
    """
    u = Symbol("u", positive=True)
    excess = (exp(BETA * C) - 1) * C
    ends = excess.subs(C, 1) - excess.subs(C, -1) * exp(BETA)
    logarithm = -log(1 - u) - u
    slope = simplify(diff(logarithm, u) - u / (1 - u))
    return [
        expand(diff(excess, C, 2) - BETA * exp(BETA * C) * (2 + BETA * C)) == 0,
        expand(ends) == 0,
        slope == 0,
        logarithm.subs(u, 0) == 0,
    ]


def _hemisphere() -> bool:
    """Check d<x_i, e>/dt = sum w_ij (p (1 - c_ij) + q_j) if <x_i, e> = p and <x_j, e> = p + q_j.

    If p > 0 is the least of them, q_j >= 0. At a critical point it is 0, so all c_ij = 1.
    """
    p, q = Symbol("p", positive=True), Symbol("q", nonnegative=True)
    s, w = Symbol("s", nonnegative=True), Symbol("w", positive=True)
    pull = (p + q) - (1 - s) * p
    return expand(pull - (p * s + q)) == 0 and bool((w * (p * s + q)).is_nonnegative)


def _small_beta_is_enough() -> list[bool]:
    return [_one_token_cannot_move_up(), *_small_beta_bounds(), _hemisphere()]


def one_cluster_at_beta_zero() -> Finding:
    x, y = Matrix(symbols("x_1:4")), Matrix(symbols("y_1:4"))
    beta = Symbol("beta_0", real=True)
    kernels = [exp(beta * x.dot(z)) for z in (x, y)]
    field = (kernels[0] * x + kernels[1] * y) / sum(kernels)
    at_zero = field.subs(beta, 0) - (x + y) / 2
    pull = curvature_of_one_token().subs(BETA, 0)
    return proven(
        at_zero.expand() == Matrix.zeros(3, 1),
        expand(pull + (DIMENSION - 1) * C) == 0,
        _hemisphere(),
    )


def projected_mean(i: int) -> Matrix:
    """Return the velocity of token i at beta = 0, for tokens at 0, 90 and 180 degrees."""
    tokens = [Matrix([1, 0]), Matrix([0, 1]), Matrix([-1, 0])]
    mean = (tokens[0] + tokens[1] + tokens[2]) / 3
    return mean - tokens[i].dot(mean) * tokens[i]


def index_of_the_token() -> Finding:
    speeds = [projected_mean(i) for i in range(3)]
    return imprecise(
        part_that_holds=speeds[0] == Matrix([0, Rational(1, 3)]),
        part_that_fails=speeds[1] != speeds[0],
    )


def one_cluster_at_small_beta() -> Finding:
    count, fixed = symbols("n beta_1", positive=True)
    constant = Symbol("C", positive=True)
    reached = (constant / count).subs(constant, fixed * count)
    return imprecise(part_that_holds=all(_small_beta_is_enough()), part_that_fails=reached == fixed)


def _wide_gaps() -> list[bool]:
    """Check that the curvature is positive beyond the angle where it is 0, and when that is small.

    In u = cos a it is beta (1 - u^2) - u: concave, -1 at u = 1 and 1 at u = -1, so positive from -1
    to its root. With z = a^2, (sin a / a)^2 - cos a is at least z/6 - z^2/72 for a <= pi/2, since
    sin a >= a - a^3/6 >= 0 and cos a <= 1 - z/2 + z^2/24.
    """
    u, z = Symbol("u", real=True), Symbol("z", positive=True)
    quadratic = BETA * (1 - u**2) - u
    form = quadratic.subs(u, cos(ANGLE))
    below = (1 - z / 6) ** 2 - (1 - z / 2 + z**2 / 24)
    return [
        simplify(curvature_on_the_circle() - form) == 0,
        bool(diff(quadratic, u, 2).is_negative),
        quadratic.subs(u, 1) == -1,
        quadratic.subs(u, -1) == 1,
        expand(below - z / 6 * (1 - z / 12)) == 0,
        bool(pi**2 / 4 < 6),
    ]


def one_cluster_at_large_beta() -> Finding:
    count = Symbol("n", positive=True)
    wide = pi / (count - 1)
    least = count**2 / pi**2 - 1 / wide**2
    return proven(
        *_wide_gaps(),
        expand(least - (2 * count - 1) / pi**2) == 0,
        _hemisphere(),
        every_point_has_a_way_up(Integer(3) + Symbol("k", nonnegative=True)),
    )


def one_cluster_in_three_dimensions() -> Finding:
    more = Symbol("k", nonnegative=True)
    x = Matrix([Rational(3, 5), Rational(4, 5), 0])
    away = -x - x.dot(-x) * x
    return imprecise(
        part_that_holds=_projections() and every_point_has_a_way_up(3 + more),
        part_that_fails=away == Matrix.zeros(3, 1),
    )


def lojasiewicz_ratio(place: Expr) -> Expr:
    """Return the limit of E'(a)^2 / (E(place) - E(a)) at a critical angle of two tokens."""
    energy = exp(BETA * cos(ANGLE)) / BETA
    apart = energy.subs(ANGLE, place) - energy
    step = Symbol("h", positive=True)
    ratio = (diff(energy, ANGLE) ** 2 / apart).subs(ANGLE, place + step)
    return simplify(limit(ratio, step, 0))


def lojasiewicz() -> Finding:
    at_cluster, opposite = lojasiewicz_ratio(Integer(0)), lojasiewicz_ratio(pi)
    return tested(
        simplify(at_cluster - 2 * exp(BETA)) == 0,
        simplify(opposite + 2 * exp(-BETA)) == 0,
        witness=(
            "the inequality |grad E|^2 >= k |E* - E| near the critical points of two tokens: the "
            f"limits of the ratio are {at_cluster} at the cluster and {opposite} opposite "
            "(negative "
            "since E* is a minimum there), both not 0. The theorem needs an analytic function and "
            "a "
            "bounded trajectory, which the energy on the sphere has; for smooth ones it is false "
            "(J. Palis and W. de Melo, 1982)"
        ),
    )


# Claims on how fast tokens reach one cluster, and whether they do in finite time.

CLUSTER = Matrix([0, 0, 1])
"""A token on the sphere; a rotation carries any other to it."""


def velocity(x: Matrix, other: Matrix, unnormalised: bool) -> Matrix:
    """Return the velocity of a token x among one other and N - 2 at the cluster."""
    sums, total = Matrix.zeros(3, 1), Integer(0)
    for place, number in ((x, 1), (other, 1), (CLUSTER, COUNT - 2)):
        weight = number * exp(BETA * x.dot(place))
        sums, total = sums + weight * place, total + weight
    average = sums / (COUNT if unnormalised else total)
    return average - x.dot(average) * x


def linear_rate(unnormalised: bool) -> Expr:
    """Return k in y_i' = k (mean(y) - y_i) for displacements y of N tokens at one cluster.

    The velocity of token i depends on y_j by k/N, and on y_i by k/N - k, times the identity on the
    tangent plane; so differences decay as e^(-k t).
    """
    first, second = symbols("y_1:3"), symbols("z_1:3")
    x, other = (CLUSTER + Matrix([*tangent, 0]) for tangent in (first, second))
    field = velocity(x, other, unnormalised)[:2]
    here = dict.fromkeys((*first, *second), 0)
    on_own, on_other = (
        Matrix(2, 2, lambda i, j, v=variables: cancel(diff(field[i], v[j]).subs(here)))
        for variables in (first, second)
    )
    rate = cancel(COUNT * on_other[0, 0])
    identity = Matrix.eye(2)
    if (on_other - rate / COUNT * identity).expand() != Matrix.zeros(2, 2) or (
        on_own - (rate / COUNT - rate) * identity
    ).expand() != Matrix.zeros(2, 2):
        raise ArithmeticError("displacements do not move as k (mean(y) - y)")
    return rate


def rate_of_convergence() -> Finding:
    sa, usa = linear_rate(unnormalised=False), linear_rate(unnormalised=True)
    orthogonal = rate_of_the_cosine(unnormalised=False).subs(COSINE, 0)
    return imprecise(
        part_that_holds=cancel(orthogonal - 2 / (exp(BETA) + COUNT - 1)) == 0
        and limit(orthogonal * exp(BETA), BETA, oo) == 2
        and usa == exp(BETA),
        part_that_fails=sa == 1 and limit(sa / exp(-BETA), BETA, oo) == oo,
        witness=(
            f"near one cluster the displacements have y_i' = k (mean(y) - y_i), k = {sa} for SA "
            "and "
            f"{usa} for USA (any N): |x_i - x*| ~ e^(-k t). The bound holds with smaller lambda "
            "too, "
            "but the rate is not O(e^-beta). That is the speed at which orthogonal tokens start, "
            "2/(e^beta + N - 1) for SA: e^beta is in the waiting time. 1 - cos has rate 2k. This "
            "judges what the slide prints; the theorem in arXiv 2312.10794 was not compared"
        ),
    )


def derivatives_on_a_circle(kernel: Expr, gap: Expr, along: Expr) -> tuple[Expr, Expr]:
    """Return two derivatives of exp(beta <x, y>) along the great circle x cos t + v sin t at t = 0.

    <x, y> = 1 - gap, <v, y> = along, and the value at t = 0 is `kernel`.
    """
    t = Symbol("t", real=True)
    cosine = (1 - gap) * cos(t) + along * sin(t)
    change = exp(BETA * (cosine - (1 - gap)))
    return kernel * diff(change, t).subs(t, 0), kernel * diff(change, t, 2).subs(t, 0)


def excess_of_the_slope(unnormalised: bool) -> tuple[Expr, Expr]:
    """Return <D X v, v> plus 1 (SA) or plus the mean kernel (USA), and a sum of terms >= 0.

    The field X is the gradient of (1/beta) log sum k_j, k_j = w_j exp(beta <x, y_j>), or of the sum
    without the logarithm, so <D X v, v> is a second derivative along a great circle. Three places
    y_j with any weights.
    """
    gaps, along = symbols("u_1:4", nonnegative=True), symbols("s_1:4", real=True)
    kernels = symbols("k_1:4", positive=True)
    by_place = [
        derivatives_on_a_circle(k, u, s) for k, u, s in zip(kernels, gaps, along, strict=True)
    ]
    first, second = (sum(d) for d in zip(*by_place, strict=True))
    total = sum(kernels)
    if unnormalised:
        # In the average over the places e^beta is at least each kernel e^(beta (1 - u)).
        slope = second / BETA + total
        terms = sum(k * (BETA * s**2 + u) for k, s, u in zip(kernels, along, gaps, strict=True))
        return slope, terms
    p = [k / total for k in kernels]
    spread = sum(p[i] * p[j] * (along[i] - along[j]) ** 2 for i, j in ((0, 1), (0, 2), (1, 2)))
    slope = (second / total - (first / total) ** 2) / BETA + 1
    return slope, BETA * spread + sum(a * u for a, u in zip(p, gaps, strict=True))


def angle_within_chord() -> bool:
    """Return whether a sin a <= 2 (1 - cos a): second derivative a sin a, and 0 twice at 0."""
    a = Symbol("a", nonnegative=True)
    apart = 2 * (1 - cos(a)) - a * sin(a)
    return bool(
        expand(diff(apart, a, 2) - a * sin(a)) == 0
        and apart.subs(a, 0) == 0
        and diff(apart, a).subs(a, 0) == 0
    )


def collapse_in_finite_time() -> Finding:
    rate = rate_of_the_cosine(unnormalised=False)
    slopes = [cancel(a - b) for a, b in map(excess_of_the_slope, (False, True))]
    return refuted(
        claim_fails=slopes == [0, 0] and angle_within_chord(),
        correction_holds=rate.subs(COSINE, 1) == 0
        and cancel((rate / (1 - COSINE)).subs(COSINE, 1) - 2) == 0,
    )


# Claims on the long run: clusters, how long they last, and at what pace they form.


def two_clusters(first: Expr, second: Expr, sign: int = 1) -> Expr:
    """Return g' of the cosine of two clusters with these masses, SA with V = sign Id.

    x' = P_x y multiplied by b e^(beta g) / Z_x, and <P_x y, y> = 1 - g^2; the same for y.
    """
    pull = exp(BETA * COSINE)
    own = exp(BETA)
    speed = second * pull / (first * own + second * pull)
    return sign * (1 - COSINE**2) * (speed + first * pull / (second * own + first * pull))


def _is_positive_inside(rate: Expr) -> bool:
    """Return whether rate / (1 - g^2) is a sum of positive terms, for all masses and beta."""
    return bool(cancel(rate / (1 - COSINE**2)).is_positive)


def closing_speed(value: int) -> Expr:
    """Return the rate of the angle a between two tokens under SA with V = value I, over sin a."""
    angle, beta = symbols("a beta", positive=True)
    places = (-angle / 2, angle / 2)
    speeds = []
    for place in places:
        weights = [exp(beta * cos(place - other)) for other in places]
        pull = sum(w * sin(other - place) for w, other in zip(weights, places, strict=True))
        speeds.append(value * pull / sum(weights))
    return simplify(trigsimp((speeds[1] - speeds[0]) / sin(angle)))


def clusters_in_the_long_run() -> Finding:
    a, b = symbols("a b", positive=True)
    x, turn = Matrix([Rational(3, 5), Rational(4, 5)]), Matrix([[0, -1], [1, 0]])
    speed = closing_speed(1)
    return imprecise(
        part_that_holds=_is_positive_inside(two_clusters(a, b)) and bool(speed.is_negative),
        part_that_fails=_is_positive_inside(-two_clusters(a, b, sign=-1))
        and simplify(sin(pi) * speed) == 0
        and bool(closing_speed(-1).is_positive)
        and (turn * x - x.dot(turn * x) * x).norm() == 1,
    )


def two_clusters_last() -> Finding:
    """Check that two clusters merge, and that the speed is exponentially small in beta."""
    a, b = symbols("a b", positive=True)
    rate = two_clusters(a, b)
    orders = [
        limit(
            (rate * exp(BETA * (1 - COSINE))).subs({COSINE: g, a: Integer(2), b: Integer(1)}),
            BETA,
            oo,
        )
        for g in (Rational(-1, 2), Rational(0), Rational(1, 2))
    ]
    return imprecise(
        part_that_holds=all(
            order == (1 - g**2) * Rational(5, 2)
            for order, g in zip(orders, (Rational(-1, 2), 0, Rational(1, 2)), strict=True)
        ),
        part_that_fails=_is_positive_inside(rate),
    )


def pace() -> Expr:
    """Return the rate of log(1/(1 - g)) of N tokens with equal cosines."""
    return cancel(rate_of_the_cosine(unnormalised=False) / (1 - COSINE))


def linear_pace() -> Finding:
    more = Symbol("n", positive=True)
    simplex = -1 / (COUNT - 1)
    rate = rate_of_the_cosine(unnormalised=False)
    slow = pace().subs({COSINE: 0, COUNT: 2})
    return refuted(
        claim_fails=rate.subs(COSINE, simplex) == 0
        and rate.subs(COSINE, 1) == 0
        and rate.subs(COUNT, more + 1).subs(COSINE, 0).is_positive
        and cancel(slow - 2 / (exp(BETA) + 1)) == 0,
        correction_holds=cancel(pace().subs(COSINE, 1)) == 2,
    )


# Claims on the interaction energy: which force belongs to it, and where it is largest.
#
# F = (1/2) sum exp(-(beta/2) |x_i - x_j|^2). Its derivative by a token is written in vectors, its
# rate along a flow in inner products, so that the identities hold for every number of tokens.


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
        part_that_holds=cancel(double / 16 - single / 4) == 0,
        part_that_fails=cancel(double - 4 * single) == 0 and single != 0,
    )


def angular_field(angles: Sequence[Symbol], normalised: bool) -> list[Expr]:
    """Return the velocities of tokens at these angles on the circle, V = Id."""
    result = []
    for a in angles:
        kernel = {b: exp(BETA * cos(b - a)) for b in angles}
        moved = sum(k * sin(b - a) for b, k in kernel.items())
        result.append(moved / sum(kernel.values()) if normalised else moved)
    return result


def rotation(field: Sequence[Expr], angles: Sequence[Symbol]) -> Expr:
    """Return d field_1 / d angle_2 - d field_2 / d angle_1, which is 0 for a gradient."""
    return diff(field[0], angles[1]) - diff(field[1], angles[0])


def gradient_flow_of_the_energy() -> Finding:
    """Look for an integrating factor: none is needed for USA, Z for SA, and 1 does not serve."""
    angles = symbols("t_1:4", real=True)
    sa, usa = (angular_field(angles, normalised) for normalised in (True, False))
    energy = sum(exp(BETA * cos(a - b)) for a in angles for b in angles) / (2 * BETA)
    place = dict(zip(angles, (0, pi / 2, pi), strict=True))
    turn = rotation(sa, angles).subs(place).subs(BETA, 1)
    return imprecise(
        part_that_holds=all(
            expand(diff(energy, a) - v) == 0 for a, v in zip(angles, usa, strict=True)
        ),
        part_that_fails=abs(float(turn)) > 1e-3,
    )


def rate_of_the_energy(sign: int) -> tuple[Expr, Expr]:
    """Return <P y, sign P y> and |P y|^2 in inner products, on the sphere.

    P dF/dx_i = beta e^(-beta) P y_i with y_i = sum_j exp(beta <x_i, x_j>) x_j, and the velocity is
    a positive multiple of V P y_i, V = sign Id.
    """
    xy, yy = symbols("xy yy", real=True)
    square = expand(yy - 2 * xy**2 + xy**2)
    return expand(sign * (yy - xy**2)), square


def gradient_of_a_summand() -> bool:
    """Check P dF/dx = beta e^(-beta) exp(beta <x, y>) P y for the two summands with x and y.

    The derivative of exp(-(beta/2) |x - y|^2) is -beta (x - y) times itself, and P x = 0.
    """
    x, y = symbols("x_1:4", real=True), symbols("y_1:4", real=True)
    summand = exp(-(BETA / 2) * sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
    return all(
        expand(diff(summand, a) + BETA * (a - b) * summand) == 0 for a, b in zip(x, y, strict=True)
    )


def repulsive_energy() -> Finding:
    rate, square = rate_of_the_energy(sign=1)
    other, _ = rate_of_the_energy(sign=-1)
    return refuted(
        claim_fails=gradient_of_a_summand() and expand(rate - square) == 0,
        correction_holds=expand(other + square) == 0,
    )


def at_distance(distance: Expr) -> Expr:
    """Return twice the summand of F of two tokens at a distance."""
    return exp(-(BETA / 2) * distance**2)


def energy_explodes() -> Finding:
    distance = Symbol("r", positive=True)
    term = at_distance(distance)
    return refuted(
        claim_fails=limit(term, distance, 0) == 1 and diff(term, distance).is_negative,
        correction_holds=energy_of([0, 0, 0]) == Rational(9, 2)
        and limit(diff(term, distance), distance, 0) == 0,
    )


def attraction_gathers() -> Finding:
    more, cosine = Symbol("n", positive=True), Symbol("g", nonnegative=True)
    rate = rate_of_the_cosine(unnormalised=False).subs(COUNT, more + 1).subs(COSINE, cosine)
    x = Matrix([1, 0])
    return imprecise(
        part_that_holds=bool((rate / (1 - cosine)).is_positive),
        part_that_fails=(-x + x.dot(x) * x) == Matrix.zeros(2, 1),
    )


def stability(cosine: Expr) -> Expr:
    """Return the derivative by g of g' of N tokens with equal cosines."""
    return cancel(diff(rate_of_the_cosine(unnormalised=False), COSINE).subs(COSINE, cosine))


def energy_by_cosines(cosines: Mapping[Expr, int], beta: int) -> Expr:
    """Return the sum of exp(beta c) over pairs with these cosines and their numbers."""
    return sum((count * exp(beta * c) for c, count in cosines.items()), Integer(0))


def bipyramid() -> dict[Expr, int]:
    """Return the cosines of two poles and a regular pentagon on the equator: least angle 72."""
    fifth = 2 * pi / 5
    return {Integer(-1): 1, Integer(0): 10, cos(fifth): 5, cos(2 * fifth): 5}


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
    more = Symbol("n", positive=True)
    simplex = stability(-1 / (COUNT - 1)).subs(COUNT, more + 1)
    point = cancel(stability(Integer(1)))
    triangle = energy_of([0, 4, 8])
    return refuted(
        claim_fails=bool(simplex.is_positive) and point == -2,
        correction_holds=(triangle - (3 + 6 * exp(-3 * BETA / 2)) / 2).simplify() == 0
        and limit(triangle, BETA, oo) < energy_of([0, 0, 0])
        and bool(max(bipyramid()) > max(widest_seven()))
        and bool(energy_by_cosines(bipyramid(), 4) < energy_by_cosines(widest_seven(), 4))
        and bool(energy_by_cosines(bipyramid(), 40) > energy_by_cosines(widest_seven(), 40)),
    )


# Claims of the captions of figures on clustering, and the questions left for later.

_EVENT = r"(\{\langle x_1(t), x_2(t) \rangle \geq 1 - \delta\})"
PROBABILITY = r"\mathbb{P}_{(x_1(0), \dots, x_n(0)) \sim \sigma_d} " + _EVENT
OF_ANY_PAIR = (
    r"\mathbb{P}_{(x_1(0), \dots, x_n(0)) \sim \sigma_d, i \neq j \text{ fixed}} " + _EVENT
)
"""The two probabilities in the caption of Figure 3, as printed."""


def is_equivariant(causal: bool) -> bool:
    """Return whether permuted tokens have permuted rates, for three tokens."""
    gram, weights = gram_symbols(3)
    plain = velocity_by_weights(gram, weights, causal)
    for order in permutations(range(3)):
        moved = [a.extract(order, order) for a in (gram, weights)]
        apart = velocity_by_weights(moved[0], moved[1], causal) - plain.extract(order, order)
        if apart.applyfunc(cancel) != Matrix.zeros(3, 3):
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
    halves = share_of_near_pairs(16, 16)
    return imprecise(
        part_that_holds=share_of_near_pairs(32) == 1,
        part_that_fails=halves > 0,
        witness=(
            "if all tokens are within the distance of a single point so is each pair, so that the "
            "plotted probability is at least that of a single cluster; for n = 32 tokens in two "
            "equal "
            f"clusters {halves} of the pairs are near, and it counts as {halves} where no single "
            "cluster is. The two agree where all tokens meet, as in high dimension"
        ),
    )
