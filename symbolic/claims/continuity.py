"""Claims on the continuity equation: what it says of tokens, and what a divergence means."""

from __future__ import annotations

from sympy import Expr, Function, Symbol, diff, expand, symbols

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
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven

TIME = Symbol("t", real=True)


def follows_the_flow(sign: int, dimension: int) -> bool:
    """Return whether p' = sign div(p b) is the law of particles x' = b(x).

    That is d/dt int f p = int <grad f, b> p for every f, and, along a particle, (p J)' = 0 for the
    factor J of volumes, which has J' = J div b.
    """
    x = coordinates(dimension)
    p, f = fields("p f", x)
    b = fields(" ".join(f"b_{k + 1}" for k in range(dimension)), x)
    change = sign * divergence(scaled(p, b), x)
    weak = is_divergence(f * change - p * inner(gradient(f, x), b), [f], x)
    along = change + inner(gradient(p, x), b) + p * divergence(b, x)
    return weak and expand(along.doit()) == 0


def defect_of_a_token(dimension: int) -> Expr:
    """Return the rate of f(x_i(t)) minus <grad f, X> there, for a token with x_i' = X(t, x_i)."""
    x = coordinates(dimension)
    f = Function("f")(*x)
    velocity = [Function(f"X_{k + 1}")(TIME, *x) for k in range(dimension)]
    path = [Function(f"y_{k + 1}")(TIME) for k in range(dimension)]
    here = dict(zip(x, path, strict=True))
    rate = diff(f.subs(here), TIME).doit()
    moved = {diff(p, TIME): v.subs(here) for p, v in zip(path, velocity, strict=True)}
    return expand((rate.subs(moved) - inner(gradient(f, x), velocity).subs(here)).doit())


def _divergence() -> Finding:
    x, y = symbols("x y", real=True)
    saddle = [x, -2 * y]
    return imprecise(
        "along a path d log(p)/dt = -div X (1 to 3 dimensions, every field), so volumes shrink "
        "or grow. The field (x, -2y) has the divergence -1, and tokens on the line y = 0 move "
        "apart. The field x has the divergence 1 and leaves a point mass at 0 where it is: the "
        "rate of <x^2> is 0, where diffusion has 2",
        part_that_holds=all(follows_the_flow(-1, dimension) for dimension in DIMENSIONS),
        part_that_fails=diff(saddle[0], x) + diff(saddle[1], y) == -1
        and diff(saddle[0], x) > 0
        and (x * diff(x**2, x)).subs(x, 0) == 0
        and diff(x**2, x, 2) == 2,
    )


def _continuity_equation() -> Finding:
    return proven(
        "f(x_i(t)) has the rate <grad f, X> at x_i, for every f, so int f dmu has the rate "
        "int <grad f, X> dmu: the equation in weak form, exact for every number of tokens (each "
        "enters as a summand). For a density p this is -int f div(p b) (Euler operator), and p "
        "times the factor of volumes is constant along particles. For every p and b, 1 to 3 "
        "dimensions",
        *[defect_of_a_token(dimension) == 0 for dimension in DIMENSIONS],
        *[follows_the_flow(-1, dimension) for dimension in DIMENSIONS],
    )


CLAIMS = [
    note(
        "sign-of-the-divergence",
        "Where div X < 0 tokens gather; where div X > 0 there is diffusion.",
        Verdict.IMPRECISE,
        _divergence,
        at("002:47", r"\text{div} < 0: \text{gather}", r"\text{div} > 0: \text{diff"),
        corrected="Along a path d log(rho)/dt = -div X: where div X < 0 the density grows and "
        "volumes shrink, where div X > 0 they expand. Expansion is transport, not diffusion.",
        why="It is about volumes: tokens may still move apart. Expansion is not diffusion.",
    ),
    note(
        "continuity-equation",
        "The measure mu of tokens (or particles) that follow a field X, and its density if it has "
        "one, satisfy d mu/dt + div(mu X) = 0.",
        Verdict.PROVEN,
        _continuity_equation,
        at("002:49", r"\partial_t \mu(t) + \text{div}(\mu(t) X_t[\mu(t)]) = 0"),
        at(
            "004:96-104",
            r"\dot{x}_t = b(x_t), x_0 \sim \mu",
            r"\partial_t p_t = -\nabla \cdot (p_t b_t), p_0 = \mu",
        ),
    ),
]
