"""Claims on the measure of the tokens on the sphere: the field, its values, how the law moves."""

from __future__ import annotations

from sympy import (
    Expr,
    Function,
    Integer,
    Matrix,
    Symbol,
    cancel,
    cos,
    diff,
    exp,
    expand,
    pi,
    simplify,
    sin,
    symbols,
)

from symbolic.claims.inner_products import BETA, XX, XY
from symbolic.claims.ledger import Finding, Simulated, Verdict, at, note, proven, refuted

TIME = Symbol("t", real=True)


def empirical_field(count: Expr, moved: Expr, total: Expr) -> Expr:
    """Return the fraction of the two integrals by (1/n) sum of point masses, in one coordinate."""
    return (moved / count) / (total / count)


def _empirical_measure() -> Finding:
    count, weight, rest = symbols("n w rest", positive=True)
    place, others = symbols("y others", real=True)
    moved, total = weight * place + others, weight + rest
    return proven(
        "an integral by mu = (1/n) sum of point masses is 1/n times a sum, above and below, and "
        "1/n cancels (one token written out, the others in constants, each coordinate by itself): "
        "SA is x_i' = X[mu](x_i) exactly, for every n; the infinite limit is only needed for a "
        "smooth mu",
        cancel(empirical_field(count, moved, total) - moved / total) == 0,
        not empirical_field(count, moved, total).cancel().has(count),
    )


def field_at(x: Matrix, places: list[Matrix]) -> Matrix:
    """Return X[mu](x), mu with equal masses at some places."""
    weights = [exp(BETA * x.dot(y)) for y in places]
    terms = [w * y for w, y in zip(weights, places, strict=True)]
    average = sum(terms[1:], terms[0]) / sum(weights)
    return average - x.dot(average) * x


def _tangent_values() -> Finding:
    """Evaluate the field of a point mass, at it and at a right angle, and check <x, X> = 0."""
    x, y = Matrix([1, 0]), Matrix([0, 1])
    at_the_mass = field_at(y, [y])
    along = XY - XY * XX
    return refuted(
        "for mu = a point mass at x the value X[mu](x) is 0, which is not on the sphere, and for "
        "two tokens at a right angle its length is not 1 either; <x, P_x y> = <x, y> (1 - |x|^2) "
        "is 0 on the sphere for every y (inner products), so values are tangent vectors at x",
        claim_fails=at_the_mass == Matrix.zeros(2, 1) and field_at(x, [x, y]).norm() != 1,
        correction_holds=along.subs(XX, 1) == 0,
    )


ANGLE, RADIUS = symbols("a r", real=True)


def poisson_kernel() -> Expr:
    """Return the density on the circle whose mean is (r, 0)."""
    return (1 - RADIUS**2) / (2 * pi * (1 - 2 * RADIUS * cos(ANGLE) + RADIUS**2))


def defect_of_the_density(sign: int) -> Expr:
    """Return d rho/dt - sign d(rho X)/da at beta = 0 for the Poisson kernel, r' = r (1 - r^2)/2.

    The field of SA and USA at beta = 0 is the projected mean, X = -r sin a.
    """
    rho, field = poisson_kernel(), -RADIUS * sin(ANGLE)
    change = diff(rho, RADIUS) * RADIUS * (1 - RADIUS**2) / 2
    return simplify(change - sign * diff(rho * field, ANGLE))


def weak_defect() -> Expr:
    """Return d f(x(t))/dt minus <grad f, P_x y> for a token on the sphere and any f and y."""
    path = [Function(f"x_{k}")(TIME) for k in range(1, 4)]
    y = symbols("y_1:4", real=True)
    along = sum(p * v for p, v in zip(path, y, strict=True))
    velocity = [v - along * p for p, v in zip(path, y, strict=True)]
    s = symbols("s_1:4")
    f = Function("f")(*s)
    here = dict(zip(s, path, strict=True))
    rate = diff(f.subs(here), TIME).doit()
    rate = rate.subs({diff(p, TIME): v for p, v in zip(path, velocity, strict=True)})
    slopes = [diff(f, a).subs(here) for a in s]
    radial = sum((g * p for g, p in zip(slopes, path, strict=True)), Integer(0))
    surface = sum((g - radial * p) * v for g, p, v in zip(slopes, path, y, strict=True))
    return expand((rate - surface).doit())


def _continuity_equation() -> Finding:
    return proven(
        "f(x_i(t)) has the rate <grad_S f, X> for every f, so d/dt int f dmu = int <grad_S f, X> "
        "dmu for any number of tokens: the equation in weak form. A smooth case in closed form: at "
        "beta = 0 the Poisson kernel of radius r on the circle solves it with r' = r (1 - r^2)/2",
        weak_defect() == 0,
        defect_of_the_density(-1) == 0,
    )


CLAIMS = [
    note(
        "empirical-measure-form",
        "With the distribution mu of all particles SA is x_i' = X[mu](x_i), X[mu](x) = P_x(Z(x)^-1 "
        "int exp(beta <x, y>) y dmu(y)), Z(x) = int exp(beta <x, y>) dmu(y).",
        Verdict.PROVEN,
        _empirical_measure,
        at("004:252-255", r"\dot{x}_i(t) = X[\mu_t](x_i(t))"),
        at(
            "004:260-262",
            r"X[\mu_t](x) = P_x^\perp \left(Z_{\beta, \mu_t}(x)^{-1} \int \exp(\beta \langle "
            r"x, y \rangle) y \, d\mu_t(y) \right)",
        ),
    ),
    note(
        "propagation-of-chaos",
        "In the limit of infinitely many particles they follow X[mu_t] with mu_t their "
        "distribution.",
        Verdict.TESTED,
        Simulated(
            Verdict.TESTED,
            "on the circle the W2 distance between N independent tokens and the density of the "
            "continuity equation decreases as N^(-1/2), SA and USA",
        ),
        at("004:252-255"),
        test="test_sphere_mean_field.py::"
        "test_tokens_approach_the_mean_field_as_the_root_of_their_number",
    ),
    note(
        "field-is-tangent",
        "X[mu] is a map from the sphere to the sphere.",
        Verdict.FALSE,
        _tangent_values,
        at("004:257", r"X[\mu] : \mathbb{S}^{d-1} \rightarrow \mathbb{S}^{d-1}"),
        corrected="X[mu] is a tangent vector field: X[mu](x) is in the tangent space at x.",
        why="Values are velocities, orthogonal to x and not of length 1; at a point mass X = 0.",
    ),
    note(
        "continuity-equation-on-the-sphere",
        "mu evolves by the continuity equation d mu/dt = -div(X[mu] mu).",
        Verdict.PROVEN,
        _continuity_equation,
        at("004:263-265", r"\partial_t \mu_t = - \nabla \cdot (X[\mu_t] \mu_t)"),
        test="test_sphere_mean_field.py::"
        "test_small_waves_grow_at_the_rates_of_the_bessel_functions",
    ),
]
