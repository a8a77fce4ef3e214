"""Claims on gradients in the Wasserstein metric.

Mass moved with velocity xi changes the density by eta = -div(p xi). The Wasserstein gradient of f
is the vector field g with df/dt = int p <g, xi> for every xi. So the integrand of df/dt minus
p <g, xi> must be a divergence, which is decided by the Euler operator in xi: it annihilates
divergences, and only them.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr, Function, Symbol, diff, expand, log, symbols
from sympy.calculus.euler import euler_equations

from symbolic.claims.ledger import Claim, Finding, Verdict, proven

Density = Callable[[Expr, tuple[Symbol, ...]], Expr]
"""The integrand of f as a function of the density and the position."""

DIMENSIONS = (1, 2, 3)


def is_gradient(density: Density, gradient: Density, dimension: int) -> bool:
    """Return whether ``grad gradient`` is the Wasserstein gradient of ``f = int density(p, x)``."""
    x = symbols(f"x_1:{dimension + 1}", real=True)
    p = Function("p")(*x)
    velocity = [Function(f"xi_{k + 1}")(*x) for k in range(dimension)]
    change = -sum(diff(p * v, s) for v, s in zip(velocity, x, strict=True))
    mass = Symbol("mass")
    rate = diff(density(mass, x), mass).subs(mass, p).doit() * change
    moved = p * sum(diff(gradient(p, x), s) * v for v, s in zip(velocity, x, strict=True))
    equations = euler_equations(expand((rate - moved).doit()), velocity, x)
    return all(expand(equation.lhs.doit()) == 0 for equation in equations if equation != True)  # noqa: E712


def _internal(mass: Expr, _x: tuple[Symbol, ...]) -> Expr:
    return Function("u")(mass)


def _internal_derivative(mass: Expr, _x: tuple[Symbol, ...]) -> Expr:
    slot = Symbol("slot")
    return diff(Function("u")(slot), slot).subs(slot, mass)


def _potential(mass: Expr, x: tuple[Symbol, ...]) -> Expr:
    return Function("u")(*x) * mass


def _internal_energy() -> Finding:
    x = symbols("x_1:4", real=True)
    p = Function("p", positive=True)(*x)
    entropy = log(p) + 1
    heat = sum(diff(p * diff(entropy, s), s) - diff(p, s, 2) for s in x)
    return proven(
        "d/dt int u(p) along any velocity is int p <grad u'(p), xi> up to a divergence (Euler "
        "operator in xi), for every u and p in 1 to 3 dimensions; further coordinates enter in the "
        "same way. For u = p log p the flow div(p grad u') is the Laplacian",
        *[is_gradient(_internal, _internal_derivative, dimension) for dimension in DIMENSIONS],
        expand(heat) == 0,
    )


def _potential_energy() -> Finding:
    return proven(
        "d/dt int u p along any velocity is int p <grad u, xi> up to a divergence (Euler operator "
        "in xi), for every u and p in 1 to 3 dimensions; further coordinates enter in the same way",
        *[
            is_gradient(_potential, lambda _p, x: Function("u")(*x), dimension)
            for dimension in DIMENSIONS
        ],
    )


CLAIMS = [
    Claim(
        "wasserstein-internal-energy",
        "The Wasserstein gradient of f(p) = int u(p) is grad u'(p).",
        r"$\nabla_W\int u(p) = \nabla u'(p)$",
        Verdict.PROVEN,
        _internal_energy,
    ),
    Claim(
        "wasserstein-potential-energy",
        "The Wasserstein gradient of f(p) = int u p is grad u.",
        r"$\nabla_W\int u\,p = \nabla u$",
        Verdict.PROVEN,
        _potential_energy,
    ),
]
