"""Claims on gradients by inner products, up to the gradient in the Wasserstein metric.

For functions h_i = -div(p grad phi_i) of integral zero the inner product at the density p is
<h_1, h_2>_p = int p <grad phi_1, grad phi_2> (F. Otto, Comm. Partial Differential Equations 26,
2001). All identities are integrations by parts, decided by `is_divergence` for undetermined p, phi
and first variation psi.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from sympy import Expr, Function, Matrix, Rational, Symbol, cancel, diff, expand, log, symbols

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
from symbolic.claims.ledger import Finding, Verdict, at, note, proven, refuted, tested

Density = Callable[[Expr, tuple[Symbol, ...]], Expr]
"""The integrand of f as a function of the density and the position."""


def represents(candidate: Matrix, metric: Matrix, derivative: Matrix) -> bool:
    """Return whether a vector has the derivative as its inner product with every velocity."""
    velocity = Matrix(symbols(f"v_1:{len(candidate) + 1}"))
    apart = (candidate.T * metric * velocity - derivative.T * velocity)[0]
    return cancel(apart) == 0


def _gradient_by_inner_product() -> Finding:
    time = Symbol("t", real=True)
    facts = []
    for dimension in DIMENSIONS:
        path = [Function(f"x_{k + 1}")(time) for k in range(dimension)]
        function = Function("V")(*path)
        slopes = Matrix([diff(function, place) for place in path])
        rate = slopes.dot(Matrix([diff(place, time) for place in path]))
        facts.append(expand(diff(function, time) - rate) == 0)
        names = {(i, j): Symbol(f"g_{i}{j}") for i, j in product(range(dimension), repeat=2)}
        metric = Matrix(dimension, dimension, lambda i, j, n=names: n[min(i, j), max(i, j)])
        partial = Matrix(symbols(f"d_1:{dimension + 1}"))
        facts.append(represents(metric.inv() * partial, metric, partial))
    return proven(
        "chain rule for every V and path; the derivative is linear in the velocity, so for the "
        "inner product a^T G b it is represented by G^-1 dV alone: another inner product, another "
        "gradient (1 to 3 coordinates)",
        *facts,
    )


def is_l2_gradient(
    density: Callable[[Expr, list[Expr]], Expr], candidate: Expr, dimension: int
) -> bool:
    """Return whether int density(p, grad p) changes by int candidate * eta along every eta."""
    x = coordinates(dimension)
    p, eta = fields("p eta", x)
    step = Symbol("step")
    moved = density(p + step * eta, gradient(p + step * eta, x))
    rate = diff(moved, step).subs(step, 0).doit()
    return is_divergence(rate - candidate * eta, [eta], x)


def _l2_gradient() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        x = coordinates(dimension)
        (p,) = fields("p", x)
        laplacian = divergence(gradient(p, x), x)
        facts.append(is_l2_gradient(lambda q, _slope: q**3, 3 * p**2, dimension))
        facts.append(
            is_l2_gradient(lambda _q, slope: inner(slope, slope) / 2, -laplacian, dimension)
        )
    values, changes = Matrix(symbols("p_1:4")), Matrix(symbols("eta_1:4"))
    kernel = Matrix(3, 3, lambda i, j: Symbol(f"k_{min(i, j)}{max(i, j)}"))
    step = Symbol("step")
    moved = values + step * changes
    rate = diff((moved.T * kernel * moved)[0] / 2, step).subs(step, 0)
    return tested(
        "int p^3 has the gradient 3 p^2; the Dirichlet energy int |grad p|^2 / 2 has "
        "-Laplace p, after integration by parts, in 1 to 3 dimensions; (1/2) int int K p p with a "
        "symmetric kernel has int K p (three points)",
        *facts,
        expand(rate - (kernel * values).dot(changes)) == 0,
    )


def _inner_product() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        x = coordinates(dimension)
        p, first, second = fields("p phi_1 phi_2", x)
        change = -divergence(scaled(p, gradient(second, x)), x)
        pairing = p * inner(gradient(first, x), gradient(second, x))
        facts += [
            is_divergence(pairing - first * change, [second], x),
            is_divergence(pairing - first * change, [first], x),
            is_divergence(change, [second], x),
        ]
    return proven(
        "<h_1, h_2>_p = int phi_1 h_2 = int phi_2 h_1: it depends on h_1 and h_2 alone, is "
        "bilinear and symmetric, and int p |grad phi|^2 = 0 only if h = 0. int h = 0 is necessary, "
        "since h is a divergence",
        *facts,
    )


def has_gradient(sign: int, dimension: int) -> bool:
    """Return whether h = sign div(p grad psi) has <h, eta>_p = int psi eta along every change.

    The potential of h in h = -div(p grad phi) is -sign psi, and eta = -div(p grad phi).
    """
    x = coordinates(dimension)
    p, psi, phi = fields("p psi phi", x)
    change = -divergence(scaled(p, gradient(phi, x)), x)
    pairing = p * inner(gradient(-sign * psi, x), gradient(phi, x))
    return is_divergence(psi * change - pairing, [phi], x)


def _wasserstein_gradient() -> Finding:
    return proven(
        "h = -div(p grad psi) has the potential psi, and int p <grad psi, grad phi> = int psi eta "
        "for eta = -div(p grad phi), for every p, psi and phi (Euler operator, 1 to 3 dimensions). "
        "As a field of velocities the gradient is grad psi",
        *[has_gradient(-1, dimension) for dimension in DIMENSIONS],
    )


def _derivation() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        x = coordinates(dimension)
        p, psi, phi = fields("p psi phi", x)
        flux = scaled(p, gradient(phi, x))
        by_parts = psi * divergence(flux, x) + inner(gradient(psi, x), flux)
        facts.append(is_divergence(by_parts, [phi], x))
        weighted = p * inner(gradient(psi, x), gradient(phi, x))
        facts.append(expand(inner(gradient(psi, x), flux) - weighted) == 0)
    return proven(
        "-int psi div(p grad phi) = int <grad psi, p grad phi> = int p <grad psi, grad phi> for "
        "every p, psi and phi (Euler operator, 1 to 3 dimensions); p or p grad phi vanish at "
        "infinity",
        *facts,
    )


def is_gradient(density: Density, candidate: Density, dimension: int) -> bool:
    """Return whether ``grad candidate`` is the Wasserstein gradient of ``f = int density(p, x)``.

    Mass moved with velocity xi changes p by -div(p xi), and f at the rate int p <grad g, xi>.
    """
    x = coordinates(dimension)
    (p,) = fields("p", x)
    velocity = fields(" ".join(f"xi_{k + 1}" for k in range(dimension)), x)
    mass = Symbol("mass")
    slope = diff(density(mass, x), mass).subs(mass, p).doit()
    rate = slope * -divergence(scaled(p, velocity), x)
    return is_divergence(rate - p * inner(gradient(candidate(p, x), x), velocity), velocity, x)


def _internal(mass: Expr, _x: tuple[Symbol, ...]) -> Expr:
    return Function("u")(mass)


def _internal_derivative(mass: Expr, _x: tuple[Symbol, ...], order: int = 1) -> Expr:
    slot = Symbol("slot")
    return diff(Function("u")(slot), slot, order).subs(slot, mass)


def _potential(mass: Expr, x: tuple[Symbol, ...]) -> Expr:
    return Function("u")(*x) * mass


def _potential_derivative(_mass: Expr, x: tuple[Symbol, ...]) -> Expr:
    return Function("u")(*x)


def _internal_energy() -> Finding:
    x = coordinates(3)
    (p,) = fields("p", x)
    heat = divergence(scaled(p, gradient(log(p) + 1, x)), x) - divergence(gradient(p, x), x)
    second = _internal_derivative(p, x, order=2)
    slopes = [
        a - second * b
        for a, b in zip(gradient(_internal_derivative(p, x), x), gradient(p, x), strict=True)
    ]
    return proven(
        "d/dt int u(p) along any velocity is int p <grad u'(p), xi> up to a divergence (Euler "
        "operator in xi), for every u and p in 1 to 3 dimensions, and grad u'(p) = u''(p) grad p. "
        "For u = p log p, where u'' = 1/p, the flow is the heat equation",
        *[is_gradient(_internal, _internal_derivative, dimension) for dimension in DIMENSIONS],
        *[expand(slope.doit()) == 0 for slope in slopes],
        expand(heat) == 0,
    )


def change_along(candidate: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return int_0^1 candidate(p, x) (x - 1/2) dx at the density p(x) = 2 (1 + x)/3."""
    (x,) = coordinates(1)
    density = (1 + x) * Rational(2, 3)
    return (candidate(density, x) * (x - Rational(1, 2))).integrate((x, 0, 1))


def _potential_l2_gradient() -> Finding:
    (x,) = coordinates(1)
    density, step = (1 + x) * Rational(2, 3), Symbol("step")
    moved = x**2 * (density + step * (x - Rational(1, 2)))
    rate = diff(moved.integrate((x, 0, 1)), step)
    printed, correct = change_along(lambda p, _x: p**2), change_along(lambda _p, s: s**2)
    return refuted(
        f"u(x) = x^2 and p(x) = 2 (1 + x)/3 on [0, 1], changed by x - 1/2: f changes at the rate "
        f"{rate}; int u(x) (x - 1/2) = {correct}, int u(p(x)) (x - 1/2) = {printed}",
        claim_fails=rate != printed,
        correction_holds=rate == correct,
    )


def _potential_energy() -> Finding:
    return proven(
        "d/dt int u p along any velocity is int p <grad u, xi> up to a divergence (Euler operator "
        "in xi), for every u and p in 1 to 3 dimensions",
        *[is_gradient(_potential, _potential_derivative, dimension) for dimension in DIMENSIONS],
    )


CLAIMS = [
    note(
        "gradient-by-inner-product",
        "A gradient is defined by the inner product: d/dt V(x(t)) = <grad V(x(0)), x'(0)>.",
        Verdict.PROVEN,
        _gradient_by_inner_product,
        at(
            "004:119-121",
            r"\frac{d}{dt}V(\mathbf{x}(t))|_{t=0} = \left\langle \nabla V(\mathbf{x}(0)), "
            r"\frac{d}{dt}\mathbf{x}(t)|_{t=0} \right\rangle",
        ),
    ),
    note(
        "l2-gradient",
        "In L_2, with <f, g> = int f g, the gradient of f is the function with d/dt f(x_t) = "
        "<grad f(x_0), d/dt x_t>.",
        Verdict.TESTED,
        _l2_gradient,
        at(
            "004:123-125",
            r"\left\langle \nabla_{L_2}f(x_0), \partial_t x_t|_{t=0} \right\rangle_{L_2}",
            r"\langle f, g \rangle = \int f(z)g(z)dz",
        ),
    ),
    note(
        "wasserstein-inner-product",
        "For h_1, h_2 of integral 0 with h_i = -div(p grad phi_i), <h_1, h_2>_p = int <grad phi_1, "
        "grad phi_2> p is an inner product.",
        Verdict.PROVEN,
        _inner_product,
        at(
            "004:141-143",
            r"\int h_1 = \int h_2 = 0",
            r"\langle h_1, h_2 \rangle_p = \int \langle \nabla \varphi_1, \nabla \varphi_2 "
            r"\rangle p(d\mathbf{x})",
            r"-\nabla \cdot (p \nabla \varphi_i) = h_i",
        ),
    ),
    note(
        "wasserstein-gradient",
        "The gradient of f in this inner product, d/dt f(p_t) = <grad_W f, d/dt p_t>_p, is grad_W "
        "f(p) = -div(p grad grad_L2 f(p)).",
        Verdict.PROVEN,
        _wasserstein_gradient,
        at(
            "004:147-149",
            r"\left\langle \nabla_{W_2}f(p_0), \partial_t p_t|_{t=0} \right\rangle_{p_t}",
        ),
        at("004:155-157", r"\nabla_{W_2}f(p) = - \nabla \cdot (p \nabla \nabla_{L_2}f(p))"),
    ),
    note(
        "wasserstein-gradient-derivation",
        "d/dt f = <grad_L2 f, d/dt p>_L2 = -<grad_L2 f, div(p grad phi)>_L2 = <grad grad_L2 f, p "
        "grad phi>_L2 = <grad grad_L2 f, grad phi>_L2(p).",
        Verdict.PROVEN,
        _derivation,
        at(
            "004:151-153",
            r"- \left\langle \nabla_{L_2}f(p_0), \nabla \cdot (p_0 \nabla \varphi) "
            r"\right\rangle_{L_2}",
            r"\left\langle \nabla \nabla_{L_2}f(p_0), \nabla \varphi "
            r"\right\rangle_{L_2(p_0)}",
        ),
    ),
    note(
        "wasserstein-internal-energy",
        "f(p) = int u(p) has the L_2 gradient u'(p) and the Wasserstein gradient -div(p u''(p) "
        "grad p).",
        Verdict.PROVEN,
        _internal_energy,
        at(
            "004:173-177",
            r"\nabla_{L_2} f(p) = u'(p)",
            r"\nabla_{W_2} f(p) = - \nabla \cdot (p u''(p) \nabla p)",
        ),
    ),
    note(
        "potential-energy-l2-gradient",
        "f(p) = int u(x) p(x) dx has the L_2 gradient u(p).",
        Verdict.FALSE,
        _potential_l2_gradient,
        at("004:180-182", r"\nabla_{L_2} f(p) = u(p)"),
        corrected="The L_2 gradient is the function u(x); the density does not enter.",
        corrected_latex=r"\nabla_{L_2} f(p) = u(\mathbf{x})",
        why="f is linear in p, so its gradient does not depend on p: a misprint for u(x), which "
        "line 184 uses.",
    ),
    note(
        "wasserstein-potential-energy",
        "f(p) = int u(x) p(x) dx has the Wasserstein gradient -div(p grad u).",
        Verdict.PROVEN,
        _potential_energy,
        at("004:184", r"\nabla_{W_2} f(p) = - \nabla \cdot (p \nabla u)"),
    ),
]
