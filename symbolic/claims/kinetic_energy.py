"""Claims on continuity equation and least kinetic energy (Benamou and Brenier, 2000).

Exact cases: Gaussians on the line, whose W2 is (m_1 - m_0)^2 + (s_1 - s_0)^2 and whose velocity
along a path (m, s) of means and deviations is m' + (x - m) s'/s; and points and arcs on the circle.
"""

from __future__ import annotations

from itertools import permutations, product

from sympy import (
    Expr,
    Function,
    Integer,
    Rational,
    Symbol,
    diff,
    expand,
    integrate,
    log,
    simplify,
    sqrt,
    symbols,
)

from symbolic.claims.divergence import (
    DIMENSIONS,
    coordinates,
    divergence,
    fields,
    gradient,
    inner,
    is_divergence,
    scaled,
)
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven, tested

T = Symbol("t", nonnegative=True)
X = Symbol("x", real=True)


def gaussian_mean(polynomial: Expr, mean: Expr, deviation: Expr) -> Expr:
    """Return the expectation of a polynomial in X of degree <= 4 under a Gaussian."""
    z = Symbol("z")
    moments = {0: 1, 1: 0, 2: 1, 3: 0, 4: 3}
    in_z = expand(polynomial.subs(X, mean + deviation * z))
    return sum((in_z.coeff(z, k) * moment for k, moment in moments.items()), Integer(0))


def gaussian_velocity(mean: Expr, deviation: Expr) -> Expr:
    """Return the velocity in X along a path of Gaussians, affine in X."""
    return diff(mean, T) + (X - mean) * diff(deviation, T) / deviation


def moves_gaussians(velocity: Expr, mean: Expr, deviation: Expr) -> bool:
    """Return whether N(mean, deviation^2) solves the continuity equation of a velocity."""
    logarithm = -((X - mean) ** 2) / (2 * deviation**2) - log(deviation)
    rate = diff(logarithm, T) + velocity * diff(logarithm, X) + diff(velocity, X)
    return simplify(expand(rate)) == 0


def energy(velocity: Expr, mean: Expr, deviation: Expr) -> Expr:
    """Return int_0^1 int p |b|^2 for a velocity along a path of Gaussians."""
    return simplify(integrate(simplify(gaussian_mean(velocity**2, mean, deviation)), (T, 0, 1)))


MEANS = symbols("m_0 m_1", real=True)
DEVIATIONS = symbols("s_0 s_1", positive=True)
LINE = [first + T * (last - first) for first, last in (MEANS, DEVIATIONS)]
"""Mean and deviation on the geodesic between two Gaussians."""
DISTANCE = (MEANS[1] - MEANS[0]) ** 2 + (DEVIATIONS[1] - DEVIATIONS[0]) ** 2
"""W2^2 between them: no coupling has a covariance above s_0 s_1."""


def _gaussians_on_the_line() -> list[bool]:
    """Check the energy of the geodesic, and what detours add to it: int m'^2 + s'^2."""
    mean, deviation = LINE
    velocity = gaussian_velocity(mean, deviation)
    covariance = Symbol("covariance", real=True)
    cost = expand(
        (MEANS[0] - MEANS[1]) ** 2 + DEVIATIONS[0] ** 2 + DEVIATIONS[1] ** 2 - 2 * covariance
    )
    detour = [Symbol(name, real=True) * T * (1 - T) for name in ("a", "b")]
    away = [place + extra for place, extra in zip(LINE, detour, strict=True)]
    apart = energy(gaussian_velocity(*away), *away) - DISTANCE
    sizes = [diff(extra, T) ** 2 for extra in detour]
    return [
        moves_gaussians(velocity, mean, deviation),
        expand(energy(velocity, mean, deviation) - DISTANCE) == 0,
        expand(cost.subs(covariance, DEVIATIONS[0] * DEVIATIONS[1]) - DISTANCE) == 0,
        expand(apart - integrate(sum(sizes), (T, 0, 1))) == 0,
    ]


def cost_of_shift(shift: Expr) -> Expr:
    """Return int (Q_1(u + shift) - Q_0(u))^2 du for two arcs of a circle of length 1.

    Q_0 and Q_1 are the quantile functions of uniform laws, prolonged by a turn for each unit of u.
    W2^2 is the least value, and it is convex in the shift (Delon, Salomon and Sobolevski, 2010).
    """
    u = Symbol("u")
    first, last = u / 6, Rational(1, 4) + u / 12
    moved = last.subs(u, u + shift)
    past_the_end = moved.subs(u, u - 1) + 1
    if shift.is_negative:
        ends = ((moved.subs(u, u + 1) - 1, 0, -shift), (moved, -shift, 1))
    else:
        ends = ((moved, 0, 1 - shift), (past_the_end, 1 - shift, 1))
    return expand(sum(integrate(expand((place - first) ** 2), (u, a, b)) for place, a, b in ends))


def _on_the_circle() -> list[bool]:
    """Check that the displacement of an arc has the energy W2^2, and three points."""
    u, up, down = Symbol("u"), Symbol("up", positive=True), Symbol("down", negative=True)
    path = u / 6 + T * (Rational(1, 4) + u / 12 - u / 6)
    arcs = integrate(integrate(diff(path, T) ** 2, (T, 0, 1)), (u, 0, 1))
    first = [Rational(k, 12) for k in (0, 1, 7)]
    last = [Rational(k, 12) for k in (2, 9, 11)]
    orders = list(permutations(last))

    def arc(a: Rational, b: Rational) -> Rational:
        return min((a - b) % 1, (b - a) % 1)

    cost = min(sum(arc(a, b) ** 2 for a, b in zip(first, o, strict=True)) for o in orders)
    # A path that ends at b after some turns has at least the energy of that angle.
    least = min(
        sum((b + turn - a) ** 2 for a, b, turn in zip(first, o, turns, strict=True))
        for o in orders
        for turns in product((-1, 0, 1), repeat=3)
    )
    return [
        arcs == cost_of_shift(Integer(0)),
        bool(diff(cost_of_shift(up), up).subs(up, 0) > 0),
        bool(diff(cost_of_shift(down), down).subs(down, 0) < 0),
        cost == least,
    ]


def shrinking_without_time() -> Expr:
    """Return the energy from N(0, 1) to N(0, 1/4) of the field -log(2) x, the same at all times."""
    velocity, deviation = -log(2) * X, Integer(2) ** -T
    if not moves_gaussians(velocity, Integer(0), deviation):
        raise ArithmeticError("the field does not move these Gaussians")
    return energy(velocity, Integer(0), deviation)


def _endpoint() -> Finding:
    """Move N(0, 1) by the field 0 and by the optimal field to N(0, 1/4), in one time unit."""
    deviation = 1 - T / 2
    optimal = gaussian_velocity(Integer(0), deviation)
    return imprecise(
        "from N(0, 1) the field 0 leads to N(0, 1), whatever nu is, and the field -x/(2 - t) to "
        "N(0, 1/4). Nor can a field with a convex potential (line 95) lead to N(0, 1/4): under it "
        "particles never approach. The field needs the time: b_t, as in line 104",
        part_that_holds=moves_gaussians(optimal, Integer(0), deviation)
        and deviation.subs(T, 1) == Rational(1, 2)
        and diff(optimal, T) != 0,
        part_that_fails=moves_gaussians(Integer(0), Integer(0), Integer(1)),
    )


def _benamou_brenier() -> Finding:
    half = energy(gaussian_velocity(*LINE) / sqrt(2), *LINE)
    steady = shrinking_without_time()
    speed = -X / 2  # of the straight path from x to x/2, at its start and at its end
    return imprecise(
        "Gaussians on the line: the geodesic has int int p |b|^2 = (m_1 - m_0)^2 + (s_1 - s_0)^2 = "
        "W_2^2, every detour more; points (all orders and windings) and arcs on the circle too. "
        "The mean of the kinetic energy |b|^2/2 is half of it; and fields without time do not "
        f"suffice: from N(0, 1) to N(0, 1/4) -log(2) x costs {steady} = {steady.evalf(4)} > 1/4, "
        "and every other more than 1/4, since the least cost needs the increasing map x -> x/2 and "
        "one speed along each path, but a flow without time with this map has b(x/2) = b(x)/2",
        part_that_holds=all([*_gaussians_on_the_line(), *_on_the_circle()]),
        part_that_fails=expand(2 * half - DISTANCE) == 0
        and bool(steady > Rational(1, 4))
        and expand(diff(X / 2, X) * speed - speed) != 0,
    )


def orthogonal(dimension: int) -> bool:
    """Return whether int p <grad phi, w> = 0 for every phi if div(p w) = 0.

    A flux p w of divergence zero is a curl: of a function in two dimensions, of a field in three.
    """
    x = coordinates(dimension)
    (phi,) = fields("phi", x)
    if dimension == 2:
        (a,) = fields("a", x)
        flux = [diff(a, x[1]), -diff(a, x[0])]
    else:
        a_1, a_2, a_3 = fields("a_1 a_2 a_3", x)
        flux = [
            diff(a_3, x[1]) - diff(a_2, x[2]),
            diff(a_1, x[2]) - diff(a_3, x[0]),
            diff(a_2, x[0]) - diff(a_1, x[1]),
        ]
    return expand(divergence(flux, x)) == 0 and is_divergence(
        inner(gradient(phi, x), flux), [phi], x
    )


def _gradients_suffice() -> Finding:
    steady = shrinking_without_time()
    potential = -(X**2) / (2 * (2 - T))
    moving = diff(potential, X)
    hamilton_jacobi = diff(potential, T) + moving**2 / 2
    return imprecise(
        "a field grad phi + w with div(p w) = 0 has the energy of grad phi plus that of w, since "
        "int p <grad phi, w> = 0 (Euler operator, 2 and 3 dimensions). But phi must depend on t: "
        "from N(0, 1) to N(0, 1/4) phi_t = -x^2/(2 (2 - t)) attains 1/4, and phi = -log(2) x^2/2 "
        f"costs {steady.evalf(4)}. No phi without time attains it: each particle would need one "
        "speed, at s both s/2 (started there) and s (ending there)",
        part_that_holds=all(orthogonal(dimension) for dimension in (2, 3))
        and moves_gaussians(moving, Integer(0), 1 - T / 2)
        and energy(moving, Integer(0), 1 - T / 2) == Rational(1, 4)
        and simplify(hamilton_jacobi) == 0,
        part_that_fails=bool(steady > Rational(1, 4)),
    )


def _length() -> Finding:
    """Check that paths of Gaussians have |p'|^2 = m'^2 + s'^2, a flat metric, and quantiles."""
    mean, deviation = Function("m")(T), Function("s", positive=True)(T)
    velocity = gaussian_velocity(mean, deviation)
    square = gaussian_mean(velocity**2, mean, deviation)
    claimed = diff(mean, T) ** 2 + diff(deviation, T) ** 2
    # A law on the line with quantile function Q has p = 1/Q_u at Q(u), and b = Q_t.
    u = Symbol("u", real=True)
    quantile = Function("Q")(u, T)
    slope, rate = diff(quantile, u), diff(quantile, T)
    at_a_point = diff(1 / slope, T) - rate / slope * diff(1 / slope, u)
    flux = diff(rate / slope, u) / slope
    return tested(
        "Gaussians on the line have |d/dt p|_p^2 = m'^2 + s'^2, the metric of a half-plane, so the "
        "least int |d/dt p|^2 is W_2^2 on the straight line in (m, s); a detour adds int |its "
        "velocity|^2. For any law on the line |d/dt p|_p is the L_2 norm of Q' for the quantile "
        "function Q: a geodesic distance (F. Otto, 2001; formal in general)",
        moves_gaussians(velocity, mean, deviation),
        simplify(square - claimed) == 0,
        simplify(at_a_point + flux) == 0,
        *_gaussians_on_the_line(),
    )


def _norm() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        x = coordinates(dimension)
        p, delta = fields("p delta", x)
        square = p * inner(gradient(delta, x), gradient(delta, x))
        change = divergence(scaled(p, gradient(delta, x)), x)
        facts.append(is_divergence(square + delta * change, [delta], x))
    return proven(
        "two solutions differ by delta with int p |grad delta|^2 = -int delta div(p grad delta) = "
        "0, so grad phi is unique where p > 0 and the minimum is over one field; it is the least "
        "among all velocities of this d/dt p, by orthogonality (Euler operator)",
        *facts,
        *[orthogonal(dimension) for dimension in (2, 3)],
    )


CLAIMS = [
    note(
        "ode-reaches-the-target",
        "The density of particles with x' = b(x) and x_0 ~ mu has p_1 = nu.",
        Verdict.IMPRECISE,
        _endpoint,
        at("004:96-104", r"\dot{x}_t = b(x_t), x_0 \sim \mu", r"p_1 = \nu"),
        corrected="x' = b_t(x); p_1 = nu holds for the fields b_t that transport mu to nu.",
        why="p_1 = nu is a condition on b, not a consequence: b = 0 gives p_1 = mu.",
    ),
    note(
        "benamou-brenier",
        "W_2^2 is the average kinetic energy: the least int_0^1 int p_t |b(x)|^2 dx dt over the "
        "fields b that move mu to nu.",
        Verdict.IMPRECISE,
        _benamou_brenier,
        at(
            "004:106-108",
            r"W_2^2(\mu, \nu) = \min_{b \text{ s.t. } p_0=\mu, p_1=\nu} \int_0^1 \int "
            r"p_t(x_t) \|b(x_t)\|^2 dx_t dt",
        ),
        corrected="W_2^2 is twice the least average kinetic energy, int_0^1 int p_t |b_t|^2 dx "
        "dt, over fields b_t that depend on time and paths with d/dt p = -div(p b).",
        corrected_latex=r"W_2^2(\mu, \nu) = \min_{(p_t, b_t)} \int_0^1 "
        r"\int p_t(x) \|b_t(x)\|^2 dx\, dt",
        why="Write b_t: no field without time reaches the minimum in general. Kinetic energy is "
        "|b|^2/2, so the average is W_2^2/2.",
        test="test_transport_on_the_circle.py::test_the_least_kinetic_energy_is_the_distance",
    ),
    note(
        "gradient-fields-suffice",
        "W_2^2 is the least int_0^1 int p_t |grad phi|^2 dx dt over the gradient fields that move "
        "mu to nu.",
        Verdict.IMPRECISE,
        _gradients_suffice,
        at(
            "004:131",
            r"\min_{\varphi \text{ s.t. } p_0=\mu, p_1=\nu} \int_0^1 \int p_t(x_t) "
            r"\|\nabla \varphi(x_t)\|^2 dx_t dt",
        ),
        corrected="The minimum is over potentials phi_t that depend on time.",
        corrected_latex=r"W_2^2(\mu, \nu) = \min_{(p_t, \varphi_t)} \int_0^1 \int p_t \|\nabla "
        r"\varphi_t\|^2 dx\, dt",
        why="Gradients suffice, but write phi_t: a potential without time does not reach the "
        "minimum.",
    ),
    note(
        "wasserstein-length",
        "W_2^2 is the least int_0^1 |d/dt p_t|_{p_t}^2 dt over paths from mu to nu, like the "
        "geodesic distance on a Riemannian manifold.",
        Verdict.TESTED,
        _length,
        at(
            "004:133-137",
            r"W_2^2(\mu, \nu) = \min_{p_t \text{ s.t. } p_0=\mu, p_1=\nu} \int_0^1 "
            r"\|\partial_t p_t\|_{p_t}^2 dt",
        ),
    ),
    note(
        "wasserstein-norm",
        "|d/dt p|_p^2 is the least |grad phi|^2 in L_2(p) over the phi with d/dt p = -div(p grad "
        "phi).",
        Verdict.PROVEN,
        _norm,
        at(
            "004:139",
            r"\|\partial_t p_t\|_{p_t}^2 = \min_{\varphi_t} \|\nabla "
            r"\varphi(\mathbf{x})\|_{L_2(p_t)}^2",
            r"\partial_t p_t = -\nabla \cdot (p_t \nabla \varphi)",
        ),
    ),
]
