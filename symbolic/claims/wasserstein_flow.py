"""Claims on gradient flows in the Wasserstein metric: particles, stability, mass.

The flow is d/dt p = -grad_W f(p) = div(p grad psi) with the first variation psi of f.
"""

from __future__ import annotations

from sympy import Expr, Integer, Symbol, diff, exp, expand, simplify, symbols

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
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven, refuted


def moves_the_density(sign: int, dimension: int) -> bool:
    """Return whether particles with x' = sign grad psi have a density with p' = div(p grad psi)."""
    x = coordinates(dimension)
    p, psi = fields("p psi", x)
    velocity = scaled(sign, gradient(psi, x))
    change = divergence(scaled(p, gradient(psi, x)), x)
    return expand((change + divergence(scaled(p, velocity), x)).doit()) == 0


def _gaussian_shrinks() -> bool:
    """Check psi = x^2/2: p' = (p x)' is solved by N(0, e^(-2t)), whose particles are e^(-t) x_0."""
    x, t = symbols("x t", real=True)
    deviation = exp(-t)
    density = exp(-(x**2) / (2 * deviation**2)) / deviation
    equation = diff(density, t) - diff(density * x, x)
    start = Symbol("x_0")
    path = start * deviation
    return simplify(equation) == 0 and expand(diff(path, t) + path) == 0


def _particles() -> Finding:
    return refuted(
        "d/dt p = div(p grad psi) is the continuity equation of the velocity -grad psi, and of "
        "+grad psi only if div(p grad psi) = 0 (any p and psi, 1 to 3 dimensions). Example: f = "
        "int p x^2/2, psi = x^2/2: the density is N(0, e^(-2t)), its particles e^(-t) x_0; the "
        "printed ones, e^t x_0, leave",
        claim_fails=not any(moves_the_density(1, dimension) for dimension in DIMENSIONS),
        correction_holds=all(moves_the_density(-1, dimension) for dimension in DIMENSIONS)
        and _gaussian_shrinks(),
    )


def decays(rate: Expr, dimension: int) -> bool:
    """Return whether df/dt = int rate p |grad psi|^2 along d/dt p = div(p grad psi), for every psi.

    The Euler operator in p decides it: both sides are linear in p.
    """
    x = coordinates(dimension)
    p, psi = fields("p psi", x)
    change = divergence(scaled(p, gradient(psi, x)), x)
    square = inner(gradient(psi, x), gradient(psi, x))
    return is_divergence(psi * change - rate * p * square, [p], x)


def _stability() -> Finding:
    t, first, second, at_zero = symbols("t x y f_0", real=True)
    paths = [start * exp(t) for start in (first, second)]
    apart = (paths[0] - paths[1]) ** 2
    follows = all(expand(diff(path, t) - path) == 0 for path in paths)
    energy = at_zero - sum(path**2 for path in paths) / 4
    falls = expand(diff(energy, t) + sum(path**2 for path in paths) / 2) == 0
    return imprecise(
        "df/dt = -int p |grad psi|^2 <= 0 for every f (Euler operator, 1 to 3 dimensions). But for "
        "f = -int p x^2/2 two particles follow x' = x: f falls, and their distance grows as e^t; "
        "nothing converges, and near starts part",
        part_that_holds=falls and all(decays(Integer(-1), d) for d in DIMENSIONS),
        part_that_fails=follows and expand(diff(apart, t) - 2 * apart) == 0,
    )


def _mass() -> Finding:
    facts = []
    for dimension in DIMENSIONS:
        x = coordinates(dimension)
        p, psi = fields("p psi", x)
        facts.append(is_divergence(divergence(scaled(p, gradient(psi, x)), x), [p, psi], x))
    return proven(
        "d/dt int p = int div(p grad psi) = 0 for every p and psi, if p grad psi vanishes at "
        "infinity or the space is closed, as the sphere is",
        *facts,
    )


CLAIMS = [
    note(
        "wasserstein-flow-particles",
        "If d/dt p = -grad_W f = div(p grad grad_L2 f(p)), a particle drawn from p_t moves by x' = "
        "+grad grad_L2 f(p_t)(x).",
        Verdict.FALSE,
        _particles,
        at(
            "004:161-167",
            r"\partial_t p_t = - \nabla_{W_2} f(p_t) = \nabla \cdot (p \nabla \nabla_{L_2} "
            r"f(p))",
            r"\dot{\mathbf{x}}_t = \nabla \nabla_{L_2} f(p_t(\mathbf{x}_t))",
        ),
        at(
            "004:281-286",
            r"\partial_t p_t = \mp \nabla_{W_2} f(p_t) = \pm \nabla \cdot (p \nabla "
            r"\nabla_{L_2} f(p))",
            r"\dot{\mathbf{x}}_t = \pm \nabla \nabla_{L_2} f(p_t(\mathbf{x}_t))",
        ),
        corrected="x' = -grad grad_L2 f(p_t)(x): particles descend the first variation of f.",
        corrected_latex=r"\dot{\mathbf{x}}_t = -\nabla \nabla_{L_2} f(p_t)(\mathbf{x}_t)",
        why="The continuity equation is d/dt p = -div(p b): with d/dt p = +div(p grad psi) the "
        "velocity is b = -grad psi.",
    ),
    note(
        "wasserstein-flow-stability",
        "A Wasserstein gradient flow has strong guarantees of stability.",
        Verdict.IMPRECISE,
        _stability,
        at("004:170"),
        corrected="f decreases, df/dt = -int p |grad grad_L2 f|^2; two solutions approach each "
        "other (W_2 <= e^(-k t) W_2(0)) if f is k-convex along geodesics with k > 0 (Ambrosio, "
        "Gigli, Savare, Gradient flows, 2005, Theorem 11.1.4).",
        corrected_latex=r"\frac{d}{dt} f(p_t) = -\int p_t \|\nabla \nabla_{L_2} f(p_t)\|^2",
        why="Only the decrease of f is guaranteed; for f = -int p x^2/2 particles separate as e^t.",
    ),
    note(
        "wasserstein-flow-mass",
        "A Wasserstein gradient flow conserves mass.",
        Verdict.PROVEN,
        _mass,
        at("004:171"),
    ),
]
