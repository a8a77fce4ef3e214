"""Claims on convergence to one cluster, from almost every start, for Q = K = V = I.

USA is the gradient flow of the energy, SA that in the metric weighted by Z. Each trajectory of such
an analytic flow on a compact manifold converges to a critical point (Lojasiewicz 1963), and the
starts of those that converge to strict saddles, with a direction of positive second derivative,
have measure zero (centre-stable manifolds: M. Shub, 1987, Theorem III.7). So what remains to be
shown is that every critical point other than one cluster is a strict saddle. It is shown here from
second derivatives of N^2 E along great circles, in inner products:

    d >= 3, any beta     the mean over directions P_i g with one Gaussian vector g is positive;
    any d, beta <= 1/n   if no single token can move up, all are in an open hemisphere, and then
                         they are equal;
    d = 2, large beta    the tokens between two wide gaps move up together; with one wide gap only
                         all are in an open half-circle.
"""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    cos,
    diff,
    exp,
    expand,
    limit,
    log,
    pi,
    simplify,
    symbols,
)

from symbolic.claims.energy_curvature import (
    ANGLE,
    DIMENSION,
    C,
    curvature_of_one_token,
    curvature_on_the_circle,
    every_point_has_a_way_up,
)
from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import (
    Finding,
    Verdict,
    at,
    imprecise,
    not_to_be_judged,
    note,
    proven,
    tested,
)


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


def _beta_zero() -> Finding:
    x, y = Matrix(symbols("x_1:4")), Matrix(symbols("y_1:4"))
    beta = Symbol("beta_0", real=True)
    kernels = [exp(beta * x.dot(z)) for z in (x, y)]
    field = (kernels[0] * x + kernels[1] * y) / sum(kernels)
    at_zero = field.subs(beta, 0) - (x + y) / 2
    pull = curvature_of_one_token().subs(BETA, 0)
    return proven(
        "SA at beta = 0 is the projected mean. If at a critical point no single token can move up, "
        "the trace of second derivatives -(d - 1) sum_(j != i) c_ij <= 0 gives <x_i, n x-> >= 1 "
        "for every i: all tokens in the open hemisphere around the mean, where the only critical "
        "points are single clusters. All others are strict saddles: Lojasiewicz and the "
        "centre-stable manifold do the rest",
        at_zero.expand() == Matrix.zeros(3, 1),
        expand(pull + (DIMENSION - 1) * C) == 0,
        _hemisphere(),
    )


def projected_mean(i: int) -> Matrix:
    """Return the velocity of token i at beta = 0, for tokens at 0, 90 and 180 degrees."""
    tokens = [Matrix([1, 0]), Matrix([0, 1]), Matrix([-1, 0])]
    mean = (tokens[0] + tokens[1] + tokens[2]) / 3
    return mean - tokens[i].dot(mean) * tokens[i]


def _index_of_the_token() -> Finding:
    speeds = [projected_mean(i) for i in range(3)]
    return imprecise(
        "the field is right for token i; but tokens at 0, 90 and 180 degrees have the velocities "
        "(0, 1/3), (0, 0), (0, 1/3), so a derivative with no i on the left cannot be all of them",
        part_that_holds=speeds[0] == Matrix([0, Rational(1, 3)]),
        part_that_fails=speeds[1] != speeds[0],
    )


def _small_beta() -> Finding:
    count, fixed = symbols("n beta_1", positive=True)
    constant = Symbol("C", positive=True)
    reached = (constant / count).subs(constant, fixed * count)
    return imprecise(
        "beta <= 1/n: if no single token can move up, sum_(j != i) e^(beta c_ij) c_ij >= 0, and "
        "(e^(beta c) - 1) c <= e^beta - 1, (n - 1)(e^beta - 1) < 1 give <x_i, sum_j x_j> > 0 for "
        "every i: an open hemisphere, so one cluster; all other critical points are strict "
        "saddles. O(1/n) itself bounds nothing at a given n: every beta is C/n for some C",
        part_that_holds=all(_small_beta_is_enough()),
        part_that_fails=reached == fixed,
    )


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


def _large_beta() -> Finding:
    count = Symbol("n", positive=True)
    wide = pi / (count - 1)
    least = count**2 / pi**2 - 1 / wide**2
    return proven(
        "d = 2, beta >= n^2/pi^2: the second derivative of exp(beta cos a)/beta is positive beyond "
        "an angle a_0 < pi/(n - 1), since beta (1 - u^2) - u is concave in u = cos a and cos a/"
        "sin(a)^2 <= 1/a^2. Two gaps wider than a_0: the tokens between them move up together, a "
        "strict saddle. At most one: all in an arc (n - 1) a_0 < pi, so one cluster. d >= 3: any "
        "beta (Theorem 6.1). C(d) = 1/pi^2 is enough",
        *_wide_gaps(),
        expand(least - (2 * count - 1) / pi**2) == 0,
        _hemisphere(),
        every_point_has_a_way_up(Integer(3) + Symbol("k", nonnegative=True)),
    )


def _three_dimensions() -> Finding:
    more = Symbol("k", nonnegative=True)
    x = Matrix([Rational(3, 5), Rational(4, 5), 0])
    away = -x - x.dot(-x) * x
    return imprecise(
        "the mean second derivative of e^(beta c)/beta over the directions P_i g, g Gaussian, is 2 "
        "e^(beta c) (1 - c) [beta (1 - c^2) + d - 2 - c], for d >= 3 positive unless c = 1: at "
        "every point but one cluster there is a way up, so every other critical point is a strict "
        "saddle, for any n and beta >= 0. Two opposite tokens do not move: not every start",
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


def _lojasiewicz() -> Finding:
    at_cluster, opposite = lojasiewicz_ratio(Integer(0)), lojasiewicz_ratio(pi)
    return tested(
        "the inequality |grad E|^2 >= k |E* - E| near the critical points of two tokens: the "
        f"limits of the ratio are {at_cluster} at the cluster and {opposite} opposite (negative "
        "since E* is a minimum there), both not 0. The theorem needs an analytic function and a "
        "bounded trajectory, which the energy on the sphere has; for smooth ones it is false "
        "(J. Palis and W. de Melo, 1982)",
        simplify(at_cluster - 2 * exp(BETA)) == 0,
        simplify(opposite + 2 * exp(-BETA)) == 0,
    )


CLAIMS = [
    note(
        "one-cluster-at-beta-zero",
        "Theorem 4.1: for beta = 0, x_i' = P_i x- with the mean x-, almost every start converges "
        "to a single point.",
        Verdict.PROVEN,
        _beta_zero,
        at("004:350-353", r"P_{x_i}^\perp(\bar{x}(t))", r"(x_i(0))_{i \in [n]}"),
        test="test_sphere_theory.py::test_small_beta_gives_one_cluster_on_the_circle",
    ),
    note(
        "index-of-the-token",
        "The vector field at beta = 0 is x_t' = P_{x_i}(x-).",
        Verdict.IMPRECISE,
        _index_of_the_token,
        at("004:350-353", r"\dot{x}_t(t) = P_{x_i}^\perp(\bar{x}(t))"),
        corrected="x_i' = P_{x_i}(x-).",
        why="The index on the left must be i: each token has its own velocity.",
    ),
    note(
        "lojasiewicz",
        "Lojasiewicz's theorem (1963) ensures convergence to a critical point.",
        Verdict.TESTED,
        _lojasiewicz,
        at("004:355"),
        at("004:365"),
    ),
    note(
        "benaim",
        "Benaim (1999) constructs a Lyapunov function around the manifold of saddles.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "on the contents of a cited work; what the proof needs, that all critical points but "
            "single clusters are strict saddles, is proven with the theorems, and then the "
            "centre-stable manifold theorem suffices"
        ),
        at("004:356"),
        at("004:365"),
    ),
    note(
        "one-cluster-at-small-beta",
        "Theorem 4.3: if beta is O(1/n), almost every start converges to a single cluster.",
        Verdict.IMPRECISE,
        _small_beta,
        at("004:360", r"\beta \in O(n^{-1})"),
        corrected="It holds for every beta >= 0 without a condition: for d >= 3 by Theorem 6.1, "
        "on the circle by "
        "Polyanskiy, Rigollet and Yao (2025, arXiv 2507.22857), and for beta <= 1 by Criscitiello, "
        "Rebjock, McRae and Boumal (2024, arXiv 2405.18273). The proof here covers beta <= 1/n in "
        "every d.",
        why="O(1/n) is no condition at a given n; the constant 1 is small enough, and none is "
        "needed.",
        test="test_sphere_theory.py::test_small_beta_gives_one_cluster_on_the_circle",
    ),
    note(
        "one-cluster-at-large-beta",
        "Theorem 5.1: if beta >= C(d) n^2, almost every start converges to a single cluster.",
        Verdict.PROVEN,
        _large_beta,
        at("004:361", r"\beta \geq C(d)n^2"),
    ),
    note(
        "one-cluster-in-three-dimensions",
        "Theorem 6.1: for d >= 3 and any beta >= 0 the tokens form one cluster.",
        Verdict.IMPRECISE,
        _three_dimensions,
        at("004:369", r"d \geq 3", r"\beta \geq 0"),
        corrected="Add: from almost every start. Then it is true, for every number of tokens.",
        why="Opposite tokens, for instance, do not move; such starts have probability 0.",
    ),
]
