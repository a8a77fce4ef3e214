"""Claims on gradient flows in the Wasserstein metric.

The flow of f is d_t p = div(p grad(df/dp)); along it d/dt f = -int p |grad(df/dp)|^2.
"""

from __future__ import annotations

from sympy import Expr, Function, Symbol, diff, expand, log, symbols

from symbolic.claims.ledger import Claim, Finding, Verdict, proven

MASS = Symbol("m", positive=True)
DIMENSIONS = (1, 2, 3)


def _dissipates(potential: Expr, density: Expr, x: tuple[Symbol, ...]) -> bool:
    """df/dp d_t p = -p |grad(df/dp)|^2 + a divergence, with d_t p = div(p grad(df/dp))."""
    gradient = [diff(potential, s) for s in x]
    flow = sum(diff(density * g, s) for g, s in zip(gradient, x, strict=True))
    flux = sum(diff(potential * density * g, s) for g, s in zip(gradient, x, strict=True))
    return expand((potential * flow + density * sum(g**2 for g in gradient) - flux).doit()) == 0


def _internal_energy() -> Finding:
    facts = []
    u = Function("u")
    epsilon, eta = symbols("epsilon eta")
    first_variation = diff(u(MASS + epsilon * eta), epsilon).subs(epsilon, 0).doit()
    facts.append(expand(first_variation - diff(u(MASS), MASS) * eta) == 0)
    for dimension in DIMENSIONS:
        x = symbols(f"x_1:{dimension + 1}", real=True)
        p = Function("p", positive=True)(*x)
        derivative = Function("v")(p)
        facts.append(_dissipates(derivative, p, x))
        entropy = diff(MASS * log(MASS), MASS).subs(MASS, p)
        flow = sum(diff(p * diff(entropy, s), s) for s in x)
        facts.append(expand(flow - sum(diff(p, s, 2) for s in x)) == 0)
    return proven(
        "first variation of int u(p) is u'(p); with d_t p = div(p grad u'(p)) the integrand of "
        "df/dt is -p |grad u'(p)|^2 plus a divergence, for every u and p in 1 to 3 dimensions; "
        "u = p log p gives the heat equation",
        *facts,
    )


def _potential_energy() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        x = symbols(f"x_1:{dimension + 1}", real=True)
        p, u = Function("p")(*x), Function("u")(*x)
        facts.append(_dissipates(u, p, x))
        facts.append(expand(diff(u * MASS, MASS) - u) == 0)
    return proven(
        "first variation of int u p is u; with d_t p = div(p grad u) the integrand of df/dt is "
        "-p |grad u|^2 plus a divergence, for every u and p in 1 to 3 dimensions",
        *facts,
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
