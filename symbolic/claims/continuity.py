"""Claims on the continuity equation: what it says of tokens, and what a divergence means."""

from __future__ import annotations

from sympy import Expr, Function, Symbol, cancel, diff, expand, log, symbols

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven

DIMENSIONS = (1, 2, 3)
TIME = Symbol("t", real=True)


def density_change(density: Expr, field: list[Expr], x: tuple[Symbol, ...]) -> Expr:
    """Return the rate -div(rho X) of a density at a fixed place."""
    return -sum(diff(density * v, s) for v, s in zip(field, x, strict=True))


def _symbolic(dimension: int) -> tuple[tuple[Symbol, ...], Expr, list[Expr]]:
    """Return coordinates, a density and a field as functions of time and place."""
    x = symbols(f"x_1:{dimension + 1}", real=True)
    field = [Function(f"X_{k + 1}")(TIME, *x) for k in range(dimension)]
    return x, Function("rho", positive=True)(TIME, *x), field


def log_density_along_a_path(dimension: int) -> Expr:
    """Return d log(rho)/dt + div X along a path of the field; 0 if both cancel."""
    x, rho, field = _symbolic(dimension)
    divergence = sum(diff(v, s) for v, s in zip(field, x, strict=True))
    carried = sum(diff(log(rho), s) * v for v, s in zip(field, x, strict=True))
    return cancel(expand(density_change(rho, field, x) / rho + carried + divergence))


def _divergence() -> Finding:
    x, y = symbols("x y", real=True)
    saddle = [x, -2 * y]
    return imprecise(
        "along a path d log(rho)/dt = -div X (1 to 3 dimensions, every field), so volumes shrink "
        "or grow. The field (x, -2y) has the divergence -1, and tokens on the line y = 0 move "
        "apart. The field x has the divergence 1 and leaves a point mass at 0 where it is: the "
        "rate of <x^2> is 0, where diffusion has 2",
        part_that_holds=all(log_density_along_a_path(dimension) == 0 for dimension in DIMENSIONS),
        part_that_fails=diff(saddle[0], x) + diff(saddle[1], y) == -1
        and diff(saddle[0], x) > 0
        and (x * diff(x**2, x)).subs(x, 0) == 0
        and diff(x**2, x, 2) == 2,
    )


def weak_form(dimension: int) -> tuple[Expr, Expr]:
    """Return two differences that vanish: for one token, and for a smooth density.

    The first is the rate of f(x_i(t)) minus <grad f, X> there. The second is the integrand
    f (-div(rho X)) - rho <grad f, X> plus the divergence of f rho X, which has the integral 0.
    """
    x, rho, field = _symbolic(dimension)
    test = Function("f")(*x)
    gradient = sum(diff(test, s) * v for v, s in zip(field, x, strict=True))
    path = [Function(f"y_{k + 1}")(TIME) for k in range(dimension)]
    moved = dict(zip(x, path, strict=True))
    rate = diff(test.subs(moved), TIME).doit()
    velocity = {diff(p, TIME): v.subs(moved) for p, v in zip(path, field, strict=True)}
    token = rate.subs(velocity).doit() - gradient.subs(moved).doit()
    flux = sum(diff(test * rho * v, s) for v, s in zip(field, x, strict=True))
    smooth = test * density_change(rho, field, x) - rho * gradient + flux
    return expand(token), expand(smooth)


def _continuity_equation() -> Finding:
    return proven(
        "f(x_i(t)) has the rate <grad f, X> at x_i, for every f, so int f dmu has the rate "
        "int <grad f, X> dmu: the equation in weak form, exact for every number of tokens (each "
        "enters as a summand); where mu has a smooth density, -div(rho X) is the same up to the "
        "divergence of f rho X. 1 to 3 dimensions; further coordinates enter in the same way",
        *[difference == 0 for dimension in DIMENSIONS for difference in weak_form(dimension)],
    )


CLAIMS = [
    note(
        "sign-of-the-divergence",
        "Where div X < 0 tokens gather; where div X > 0 there is diffusion.",
        Verdict.IMPRECISE,
        _divergence,
        "Along a path d log(rho)/dt = -div X: where div X < 0 the density grows and volumes "
        "shrink, where div X > 0 they expand. Expansion is transport, not diffusion.",
        passages=(at("002", 47, r"\text{div} < 0: \text{gather}", r"\text{div} > 0: \text{diff"),),
        why="It is about volumes: tokens may still move apart. Expansion is not diffusion.",
    ),
    note(
        "continuity-equation",
        "The measure of the tokens satisfies d mu/dt + div(mu X[mu]) = 0.",
        Verdict.PROVEN,
        _continuity_equation,
        passages=(at("002", 49, r"\partial_t \mu(t) + \text{div}(\mu(t) X_t[\mu(t)]) = 0"),),
    ),
]
