"""Claims on optimal transport: continuity, kinetic energy, Wasserstein gradients and flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product

from sympy import (
    Expr,
    Function,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    Symbol,
    diff,
    exp,
    expand,
    integrate,
    log,
    simplify,
    sqrt,
    symbols,
)
from sympy.calculus.euler import euler_equations
from sympy.concrete.delta import deltasummation
from sympy.core.function import AppliedUndef

from symbolic.claims.explosion import vanishes
from symbolic.claims.ledger import Finding, imprecise, proven, refuted, tested
from symbolic.series import HALF

# Integration by parts, decided exactly: which integrands are divergences.
#
# An integrand that is linear in the functions xi integrates to zero for all of them that vanish at
# infinity if and only if the Euler operator in xi annihilates it. The checks run in one, two and
# three dimensions; further coordinates enter in the same way.

DIMENSIONS = (1, 2, 3)


def fields(names: str, x: Sequence[Symbol]) -> list[AppliedUndef]:
    """Return undetermined functions of the coordinates, by names separated by blanks."""
    return [Function(name)(*x) for name in names.split()]


def gradient(function: Expr, x: Sequence[Symbol]) -> list[Expr]:
    """Return the gradient of a function."""
    return [diff(function, s) for s in x]


def divergence(field: Sequence[Expr], x: Sequence[Symbol]) -> Expr:
    """Return the divergence of a field."""
    return sum((diff(f, s) for f, s in zip(field, x, strict=True)), Integer(0))


def inner(first: Sequence[Expr], second: Sequence[Expr]) -> Expr:
    """Return the inner product of two fields at each point."""
    return sum((a * b for a, b in zip(first, second, strict=True)), Integer(0))


def scaled(factor: Expr, field: Sequence[Expr]) -> list[Expr]:
    """Return a field times a function."""
    return [factor * f for f in field]


def inflow(p: Expr, psi: Expr, x: Sequence[Symbol]) -> Expr:
    """Return div(p grad psi), the rate of a density whose mass moves with velocity -grad psi."""
    return divergence(scaled(p, gradient(psi, x)), x)


def by_parts(first: Expr, second: Expr, p: Expr, x: Sequence[Symbol]) -> Expr:
    """Return p <grad first, grad second> + first div(p grad second), a divergence."""
    return p * inner(gradient(first, x), gradient(second, x)) + first * inflow(p, second, x)


def is_divergence(integrand: Expr, functions: Sequence[AppliedUndef], x: Sequence[Symbol]) -> bool:
    """Return whether the integral vanishes for all choices of the functions."""
    expanded = expand(integrand.doit())
    if expanded == 0:
        return True
    equations = euler_equations(expanded, functions, x)
    return all(expand(equation.lhs.doit()) == 0 for equation in equations if equation != True)  # noqa: E712


SPACES = [
    (x, *fields("p psi phi", x)) for x in (symbols(f"x_1:{d + 1}", real=True) for d in DIMENSIONS)
]
"""Coordinates and three undetermined functions of them, for one, two and three dimensions."""


# Claims on the continuity equation: what it says of tokens, and what a divergence means.

TIME = Symbol("t", real=True)


def follows_the_flow(sign: int, dimension: int) -> bool:
    """Return whether p' = sign div(p b) is the law of particles x' = b(x).

    That is d/dt int f p = int <grad f, b> p for every f, and, along a particle, (p J)' = 0 for the
    factor J of volumes, which has J' = J div b.
    """
    x, p, f, _ = SPACES[dimension - 1]
    b = fields(" ".join(f"b_{s}" for s in x), x)
    change = sign * divergence(scaled(p, b), x)
    weak = is_divergence(f * change - p * inner(gradient(f, x), b), [f], x)
    along = change + inner(gradient(p, x), b) + p * divergence(b, x)
    return weak and expand(along.doit()) == 0


def defect_of_a_token(dimension: int) -> Expr:
    """Return the rate of f(x_i(t)) minus <grad f, X> there, for a token with x_i' = X(t, x_i)."""
    x, _, f, _ = SPACES[dimension - 1]
    velocity = [Function(f"X_{k}")(TIME, *x) for k in range(dimension)]
    path = [Function(f"y_{k}")(TIME) for k in range(dimension)]
    here = dict(zip(x, path, strict=True))
    moved = {diff(y, TIME): v.subs(here) for y, v in zip(path, velocity, strict=True)}
    rate = diff(f.subs(here), TIME).doit().subs(moved)
    return expand((rate - inner(gradient(f, x), velocity).subs(here)).doit())


def sign_of_the_divergence() -> Finding:
    x, y = place = symbols("x y", real=True)
    saddle = [x, -2 * y]
    return imprecise(
        part_that_holds=all(follows_the_flow(-1, dimension) for dimension in DIMENSIONS),
        part_that_fails=divergence(saddle, place) == -1
        and diff(saddle[0], x) > 0
        and (x * diff(x**2, x)).subs(x, 0) == 0
        and diff(x**2, x, 2) == 2,
    )


def continuity_equation() -> Finding:
    return proven(
        *[defect_of_a_token(dimension) == 0 for dimension in DIMENSIONS],
        *[follows_the_flow(-1, dimension) for dimension in DIMENSIONS],
    )


# Claims on continuity equation and least kinetic energy (Benamou and Brenier, 2000).
#
# Exact cases: Gaussians on the line, whose W2^2 is (m_1 - m_0)^2 + (s_1 - s_0)^2 and whose velocity
# along a path (m, s) of means and standard deviations is m' + (x - m) s'/s; and points and arcs on
# the circle.

T = Symbol("t", nonnegative=True)
X = Symbol("x", real=True)
ZERO, QUARTER = Integer(0), Rational(1, 4)


def gaussian_mean(quadratic: Expr, mean: Expr, deviation: Expr) -> Expr:
    """Return the expectation of a polynomial in X of degree <= 2 under a Gaussian."""
    return quadratic.subs(X, mean) + deviation**2 * diff(quadratic, X, 2) / 2


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
"""Mean and standard deviation on the geodesic between two Gaussians."""
DISTANCE = (MEANS[1] - MEANS[0]) ** 2 + (DEVIATIONS[1] - DEVIATIONS[0]) ** 2
"""W2^2 between them: no coupling has a covariance above s_0 s_1."""

SHRINKING = ZERO, 1 - T / 2
"""Mean and standard deviation on the geodesic from N(0, 1) to N(0, 1/4)."""
POTENTIAL = -(X**2) / (2 * (2 - T))
"""The potential of the velocity along it."""


def _gaussians_on_the_line() -> list[bool]:
    """Check the distance, and the energy int m'^2 + s'^2 that detours add to the geodesic's."""
    cost = DISTANCE + 2 * DEVIATIONS[0] * DEVIATIONS[1]  # less twice the covariance
    detour = [a * T * (1 - T) for a in symbols("a b", real=True)]
    away = [place + extra for place, extra in zip(LINE, detour, strict=True)]
    added = integrate(sum(diff(extra, T) ** 2 for extra in detour), (T, 0, 1))
    return [
        moves_gaussians(gaussian_velocity(*LINE), *LINE),
        expand(energy(gaussian_velocity(*away), *away) - DISTANCE - added) == 0,
        expand(cost - (MEANS[0] - MEANS[1]) ** 2 - DEVIATIONS[0] ** 2 - DEVIATIONS[1] ** 2) == 0,
    ]


def _on_the_circle() -> list[bool]:
    """Check that the displacement of an arc has the energy W2^2, and three points.

    On a circle of length 1 W2^2 is the least int (Q_1(u + shift) - Q_0(u))^2 du for the quantile
    functions Q, prolonged by a turn for each unit of u, and convex in the shift (Delon, Salomon and
    Sobolevski, 2010).
    """
    u, s = Symbol("u"), Symbol("s", positive=True)
    start, end = u / 6, QUARTER + u / 12
    arcs = integrate(diff(start + T * (end - start), T) ** 2, (T, 0, 1), (u, 0, 1))
    up, down = (
        sum(
            integrate(expand((end.subs(u, v) + turn - start) ** 2), (u, a, b))
            for v, turn, a, b in pieces
        )
        for pieces in (
            ((u + s, 0, 0, 1 - s), (u + s - 1, 1, 1 - s, 1)),
            ((u - s + 1, -1, 0, s), (u - s, 0, s, 1)),
        )
    )
    first, last = ([Rational(k, 12) for k in places] for places in ((0, 1, 7), (2, 9, 11)))
    pairings = [list(zip(first, order, strict=True)) for order in permutations(last)]
    cost = min(sum(min((a - b) % 1, (b - a) % 1) ** 2 for a, b in pairs) for pairs in pairings)
    # A path that ends at b after some turns has at least the energy of that angle.
    least = min(
        sum((b + turn - a) ** 2 for (a, b), turn in zip(pairs, turns, strict=True))
        for pairs, turns in product(pairings, product((-1, 0, 1), repeat=3))
    )
    return [
        arcs == up.subs(s, 0) == down.subs(s, 0),
        bool(diff(up, s).subs(s, 0) > 0),
        bool(diff(down, s).subs(s, 0) > 0),
        cost == least,
    ]


def _fields_need_the_time() -> bool:
    """Return whether -log(2) x at all times moves N(0, 1) to N(0, 1/4) at a cost above 1/4."""
    velocity, path = -log(2) * X, (ZERO, Integer(2) ** -T)
    cost = 3 * log(2) / 8
    return bool(moves_gaussians(velocity, *path) and energy(velocity, *path) == cost > QUARTER)


def ode_reaches_the_target() -> Finding:
    optimal = gaussian_velocity(*SHRINKING)
    return imprecise(
        part_that_holds=moves_gaussians(optimal, *SHRINKING)
        and SHRINKING[1].subs(T, 1) == HALF
        and diff(optimal, T) != 0,
        part_that_fails=moves_gaussians(ZERO, ZERO, Integer(1)),
    )


def benamou_brenier() -> Finding:
    half = energy(gaussian_velocity(*LINE) / sqrt(2), *LINE)
    speed = -X / 2  # of the straight path from x to x/2, at its start and at its end
    return imprecise(
        part_that_holds=all([*_gaussians_on_the_line(), *_on_the_circle()]),
        part_that_fails=expand(2 * half - DISTANCE) == 0
        and _fields_need_the_time()
        and expand(diff(X / 2, X) * speed - speed) != 0,
    )


def orthogonal(dimension: int) -> bool:
    """Return whether int p <grad phi, w> = 0 for every phi if div(p w) = 0.

    A flux p w of divergence zero is that of a skew matrix, in three dimensions the curl of a field.
    """
    x, _, _, phi = SPACES[dimension - 1]
    above = Matrix(dimension, dimension, lambda i, j: Function(f"a_{i}{j}")(*x) if i < j else 0)
    flux = [divergence((above - above.T).row(i), x) for i in range(dimension)]
    along = inner(gradient(phi, x), flux)
    return expand(divergence(flux, x)) == 0 and is_divergence(along, [phi], x)


def gradient_fields_suffice() -> Finding:
    moving = diff(POTENTIAL, X)
    return imprecise(
        part_that_holds=orthogonal(2)
        and orthogonal(3)
        and moves_gaussians(moving, *SHRINKING)
        and energy(moving, *SHRINKING) == QUARTER
        and vanishes(diff(POTENTIAL, T) + moving**2 / 2),
        part_that_fails=_fields_need_the_time(),
    )


def wasserstein_length() -> Finding:
    """Check that paths of Gaussians have |p'|^2 = m'^2 + s'^2, a flat metric, and quantiles."""
    mean, deviation = Function("m")(T), Function("s", positive=True)(T)
    velocity = gaussian_velocity(mean, deviation)
    square = gaussian_mean(velocity**2, mean, deviation)
    # A law on the line with quantile function Q has p = 1/Q_u at Q(u), and b = Q_t.
    u = Symbol("u", real=True)
    quantile = Function("Q")(u, T)
    slope, rate = diff(quantile, u), diff(quantile, T)
    at_a_point = diff(1 / slope, T) - rate / slope * diff(1 / slope, u)
    return tested(
        moves_gaussians(velocity, mean, deviation),
        simplify(square - diff(mean, T) ** 2 - diff(deviation, T) ** 2) == 0,
        simplify(at_a_point + diff(rate / slope, u) / slope) == 0,
        *_gaussians_on_the_line(),
    )


def wasserstein_norm() -> Finding:
    return proven(
        *[is_divergence(by_parts(psi, psi, p, x), [psi], x) for x, p, psi, _ in SPACES],
        orthogonal(2),
        orthogonal(3),
    )


# Claims on optimal transport: maps, couplings, distances, the theorem of Brenier.

Law = Mapping[Rational, Rational]
"""The masses of atoms."""

POINT: Law = {Integer(0): Integer(1)}
PAIR: Law = {Integer(-1): HALF, Integer(1): HALF}


def maps(first: Law, last: Law) -> Iterator[dict[Rational, Rational]]:
    """Yield every map of atoms that transports one law to the other."""
    for values in product(last, repeat=len(first)):
        image = dict.fromkeys(last, Integer(0))
        for mass, y in zip(first.values(), values, strict=True):
            image[y] += mass
        if image == dict(last):
            yield dict(zip(first, values, strict=True))


def monge_problem() -> Finding:
    shifted = {Integer(1): HALF, Integer(4): HALF}
    return imprecise(
        part_that_holds=[len(transport) for transport in maps(PAIR, shifted)] == [2, 2],
        part_that_fails=not list(maps(POINT, PAIR)),
    )


def kantorovich_relaxation() -> Finding:
    # Row sums and cost of (x, T(x)) for n atoms y_j, n a symbol, and any T; atom i is sent to atom
    # T_i. The column sums are T#mu by its definition, nu_j = sum of the mu_i with T_i = j.
    masses, costs, image = map(IndexedBase, ("mu", "c", "T"))
    i, j, n = symbols("i j n", integer=True, positive=True)
    graph = masses[i] * KroneckerDelta(image[i], j)
    given, paid = (
        deltasummation(summand, (j, 1, n), no_piecewise=True)
        for summand in (graph, graph * costs[i, j])
    )
    return proven(
        given == masses[i],
        simplify(paid - masses[i] * costs[i, image[i]]) == 0,
        # The product of two laws is a coupling.
        sum(POINT.values()) == sum(PAIR.values()) == 1,
        not list(maps(POINT, PAIR)),
    )


def total_cost(first: Sequence[Rational], last: Sequence[Rational], power: Rational) -> Expr:
    """Return the sum of |x - y|^p over pairs of atoms in this order."""
    return sum((abs(x - y) ** power for x, y in zip(first, last, strict=True)), ZERO)


def transport_cost(first: Sequence[Rational], last: Sequence[Rational], power: Rational) -> Expr:
    """Return the least mean of |x - y|^p between equally many atoms of equal masses.

    The best coupling is a permutation (Birkhoff).
    """
    return min(total_cost(first, order, power) for order in permutations(last)) / len(first)


LAWS = [tuple(map(Integer, atoms)) for atoms in ((0, 0, 0), (0, 1, 5), (2, 2, 3), (-4, 0, 7))]


def triangle_holds(power: Rational, root: bool) -> bool:
    """Return whether W_p, or with root=False W_p^p, satisfies the triangle inequality on LAWS."""
    exponent = 1 / power if root else Integer(1)
    size = {
        (a, b): (transport_cost(a, b, power) ** exponent).evalf(30)
        for a, b in product(LAWS, repeat=2)
    }
    return all(size[a, c] <= size[a, b] + size[b, c] + 1e-20 for a, b, c in product(LAWS, repeat=3))


def wasserstein_distance() -> Finding:
    powers = [Integer(1), Rational(3, 2), Integer(2), Integer(3)]
    zero, one, two = map(Integer, range(3))
    return imprecise(
        part_that_holds=all(
            transport_cost(a, b, power) == total_cost(sorted(a), sorted(b), power) / 3
            for power, a, b in product(powers, LAWS, LAWS)
        )
        and all(triangle_holds(power, root=True) for power in powers),
        part_that_fails=[transport_cost((zero,), (x,), two) for x in (one, two)] == [1, 4]
        and not triangle_holds(two, root=False)
        # Below p = 1: from 0 over half the mass at 1 to 1.
        and transport_cost((zero, zero), (zero, one), HALF) ** 2 == QUARTER,
    )


def brenier_velocity() -> Finding:
    velocity, convex = gaussian_velocity(*SHRINKING), X**2 / 4
    pushed = diff(convex, X)
    given = dict(zip((*MEANS, *DEVIATIONS), (0, 0, 1, HALF), strict=True))
    attained = [gaussian_mean(f, ZERO, Integer(1)) for f in (pushed**2, (pushed - X) ** 2)]
    return refuted(
        claim_fails=vanishes(velocity - diff(POTENTIAL, X))
        and moves_gaussians(velocity, *SHRINKING)
        and vanishes(diff(POTENTIAL, X, 2) + 1 / (2 - T))
        and _fields_need_the_time(),
        correction_holds=attained == [QUARTER, QUARTER]
        and diff(convex, X, 2) > 0
        and DISTANCE.subs(given) == energy(velocity, *SHRINKING) == QUARTER,
    )


# Claims on gradients by inner products, up to the gradient in the Wasserstein metric.
#
# For functions h_i = -div(p grad phi_i) of integral zero the inner product at the density p is
# <h_1, h_2>_p = int p <grad phi_1, grad phi_2> (F. Otto, Comm. Partial Differential Equations 26,
# 2001). All identities are integrations by parts, for undetermined p, phi and first variation psi.


def _symmetric(size: int, name: str) -> Matrix:
    return Matrix(size, size, lambda i, j: Symbol(f"{name}_{min(i, j)}{max(i, j)}"))


def gradient_by_inner_product() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        path = Matrix([Function(f"x_{k + 1}")(TIME) for k in range(dimension)])
        function = Function("V")(*path)
        rate = inner(gradient(function, path), diff(path, TIME))
        metric, velocity = _symmetric(dimension, "g"), Matrix(symbols(f"v_1:{dimension + 1}"))
        partial = Matrix(symbols(f"d_1:{dimension + 1}"))
        represented = (metric.inv() * partial).T * metric * velocity
        facts.append(expand(diff(function, TIME) - rate) == 0)
        facts.append(vanishes(represented[0] - partial.dot(velocity)))
    return proven(*facts)


def is_l2_gradient(density: Callable[..., Expr], candidate: Expr, dimension: int) -> bool:
    """Return whether int density(p, grad p) changes by int candidate * eta along every eta."""
    (x, p, eta, _), step = SPACES[dimension - 1], Symbol("step")
    moved = density(p + step * eta, gradient(p + step * eta, x))
    rate = diff(moved, step).subs(step, 0).doit()
    return is_divergence(rate - candidate * eta, [eta], x)


def l2_gradient() -> Finding:
    facts = []
    for x, p, *_ in SPACES:
        laplacian = inflow(Integer(1), p, x)
        facts += [
            is_l2_gradient(lambda q, _slope: q**3, 3 * p**2, len(x)),
            is_l2_gradient(lambda _q, slope: inner(slope, slope) / 2, -laplacian, len(x)),
        ]
    values, changes = Matrix(symbols("p_1:4")), Matrix(symbols("eta_1:4"))
    kernel, step = _symmetric(3, "k"), Symbol("step")
    moved = values + step * changes
    rate = diff((moved.T * kernel * moved)[0] / 2, step).subs(step, 0)
    return tested(*facts, expand(rate - (kernel * values).dot(changes)) == 0)


def wasserstein_inner_product() -> Finding:
    facts = []
    for x, p, first, last in SPACES:
        apart = by_parts(first, last, p, x)
        facts += [is_divergence(apart, [function], x) for function in (first, last)]
        facts.append(is_divergence(inflow(p, last, x), [last], x))
    return proven(*facts)


def wasserstein_gradient() -> Finding:
    # <h, eta>_p = int psi eta for h = -div(p grad psi) and every eta = -div(p grad phi).
    return proven(*[is_divergence(by_parts(psi, phi, p, x), [phi], x) for x, p, psi, phi in SPACES])


wasserstein_gradient_derivation = wasserstein_gradient


def is_gradient(
    density: Callable[..., Expr], candidate: Callable[..., Expr], dimension: int
) -> bool:
    """Return whether ``grad candidate`` is the Wasserstein gradient of ``f = int density(p, x)``.

    Mass moved with velocity xi changes p by -div(p xi), and f at the rate int p <grad g, xi>.
    """
    (x, p, *_), mass = SPACES[dimension - 1], Symbol("mass")
    velocity = fields(" ".join(f"xi_{s}" for s in x), x)
    slope = diff(density(mass, x), mass).subs(mass, p).doit()
    rate = slope * -divergence(scaled(p, velocity), x)
    return is_divergence(rate - p * inner(gradient(candidate(p, x), x), velocity), velocity, x)


def wasserstein_internal_energy() -> Finding:
    u, slot = Function("u"), Symbol("slot")
    x, p, *_ = SPACES[2]
    first, second = (lambda q, _x, k=k: diff(u(slot), slot, k).subs(slot, q) for k in (1, 2))
    slopes = zip(gradient(first(p, x), x), scaled(second(p, x), gradient(p, x)), strict=True)
    return proven(
        *[is_gradient(lambda q, _x: u(q), first, dimension) for dimension in DIMENSIONS],
        *[expand((a - b).doit()) == 0 for a, b in slopes],
        expand(inflow(p, log(p) + 1, x) - inflow(Integer(1), p, x)) == 0,
    )


def potential_energy_l2_gradient() -> Finding:
    density, change, step = 2 * (1 + X) / 3, X - HALF, Symbol("step")
    moved = integrate(X**2 * (density + step * change), (X, 0, 1))
    printed, right = (integrate(u * change, (X, 0, 1)) for u in (density**2, X**2))
    return refuted(
        claim_fails=diff(moved, step) == Rational(1, 12) and printed == Rational(1, 9),
        correction_holds=diff(moved, step) == right,
    )


def wasserstein_potential_energy() -> Finding:
    u = Function("u")
    return proven(
        *[is_gradient(lambda q, x: u(*x) * q, lambda _q, x: u(*x), d) for d in DIMENSIONS]
    )


# Claims on gradient flows in the Wasserstein metric: particles, stability, mass.
#
# The flow is d/dt p = -grad_W f(p) = div(p grad psi) with the first variation psi of f.


def wasserstein_flow_particles() -> Finding:
    # Particles with x' = b have a density with p' = -div(p b).
    up, down = (
        [
            expand((inflow(p, psi, x) + divergence(scaled(sign * p, gradient(psi, x)), x)).doit())
            for x, p, psi, _ in SPACES
        ]
        for sign in (1, -1)
    )
    return refuted(
        claim_fails=0 not in up,
        # psi = x^2/2: p' = (p x)'.
        correction_holds=not any(down) and moves_gaussians(-X, ZERO, exp(-T)),
    )


def wasserstein_flow_stability() -> Finding:
    paths = [start * exp(T) for start in symbols("x y", real=True)]
    apart, value = (paths[0] - paths[1]) ** 2, -sum(path**2 for path in paths) / 4
    return imprecise(
        part_that_holds=expand(diff(value, T) + sum(path**2 for path in paths) / 2) == 0
        and all(is_divergence(by_parts(psi, psi, p, x), [p], x) for x, p, psi, _ in SPACES),
        part_that_fails=all(expand(diff(path, T) - path) == 0 for path in paths)
        and expand(diff(apart, T) - 2 * apart) == 0,
    )


def wasserstein_flow_mass() -> Finding:
    return proven(*[is_divergence(inflow(p, psi, x), [p, psi], x) for x, p, psi, _ in SPACES])
