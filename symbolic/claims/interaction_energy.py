"""Claims on the interaction energy of tokens and its derivative along the flows."""

from __future__ import annotations

from itertools import product

from sympy import Expr, Integer, Rational, Symbol, diff, exp, expand, symbols

from symbolic.claims.inner_products import BETA, XX, XY, YY, gram_symbols, projected_square
from symbolic.claims.ledger import Claim, Finding, Verdict, imprecise, proven


def energy_rate(count: int, unnormalised: bool) -> tuple[Expr, Expr]:
    """Return dE/dt from the chain rule in inner products, and the claimed sum of squares.

    The row weights are a_i w_ij with a_i = 1/N (USA) or the symbol a_i = 1/Z_i (SA); the claimed
    sum has the factor 1/a_i in row i: N for USA, after division by N^2, and Z_i for SA.
    """
    c, w = gram_symbols(count)
    tokens = range(count)
    a = [Rational(1, count) if unnormalised else Symbol(f"a_{i}", positive=True) for i in tokens]
    velocity = [
        [a[i] * sum(w[i, k] * (c[k, j] - c[i, k] * c[i, j]) for k in tokens) for j in tokens]
        for i in tokens
    ]
    # E = (1 / (2 beta N^2)) sum exp(beta c_ij); its derivative by c_ij is w_ij / (2 N^2).
    rate = sum(
        w[i, j] * (velocity[i][j] + velocity[j][i]) for i, j in product(tokens, repeat=2)
    ) / Integer(2 * count**2)
    squares = sum(
        a[i]
        * sum(
            w[i, k] * w[i, j] * (c[k, j] - c[i, k] * c[i, j]) for k, j in product(tokens, repeat=2)
        )
        for i in tokens
    )
    return rate, squares / Integer(count**2)


def _gradient_of_the_energy() -> bool:
    """Check N^2 dE/dx = sum_j exp(beta <x, x_j>) x_j, term by term in E.

    E contains exp(beta <x, x_j>) twice for each other token and exp(beta |x|^2) once, over
    2 beta N^2. The sum over the other tokens is linear, so this is the gradient for any N.
    """
    x, y = symbols("x_1:4"), symbols("y_1:4")
    other = exp(BETA * sum(a * b for a, b in zip(x, y, strict=True)))
    own = exp(BETA * sum(a**2 for a in x))
    return all(
        expand(diff(2 * other / (2 * BETA), a) - other * b) == 0
        and expand(diff(own / (2 * BETA), a) - own * a) == 0
        for a, b in zip(x, y, strict=True)
    )


def _energy_identity(unnormalised: bool) -> Finding:
    cases = [
        expand(rate - claimed) == 0
        for rate, claimed in (energy_rate(count, unnormalised) for count in (2, 3, 4))
    ]
    return proven(
        "y = N^2 dE/dx is sum_j exp(beta <x, x_j>) x_j and the velocity a multiple of P_x y, where "
        "<y, P_x y> = |P_x y|^2 on the sphere: any N and dimension; also the whole identity from "
        "the chain rule in inner products, N = 2, 3, 4",
        _gradient_of_the_energy(),
        expand((YY - XY**2) - projected_square().subs(XX, 1)) == 0,
        *cases,
    )


def _two_energies() -> Finding:
    cosine = Symbol("c", real=True)
    first = exp(-(BETA / 2) * (2 - 2 * cosine)) / 2
    second = exp(BETA * cosine) / (2 * BETA)
    ratio = (first / second).simplify()
    norm = Symbol("r", positive=True)
    off_sphere = exp(-(BETA / 2) * (1 + norm**2 - 2 * norm * cosine)) / exp(BETA * norm * cosine)
    rates = [energy_rate(3, unnormalised) for unnormalised in (True, False)]
    return imprecise(
        f"|x - y|^2 = 2 - 2 <x, y> on the sphere makes the first {ratio} times the second; off it "
        "the ratio depends on |x|. Along USA and SA with V = I (three tokens) the energy has the "
        "rate sum a_i |P y_i|^2 / N^2 >= 0 with row weights a_i; V = -I reverses the velocity and "
        "so the sign",
        part_that_holds=expand(ratio - BETA * exp(-BETA)) == 0,
        part_that_fails=off_sphere.simplify().has(norm)
        and all(expand(rate - squares) == 0 for rate, squares in rates),
    )


CLAIMS = [
    Claim(
        "energy-derivative-usa",
        "Along USA dE/dt = (1/N) sum_i |x_i'|^2.",
        r"USA: $\dot E = \frac1N\sum_i|\dot x_i|^2$",
        Verdict.PROVEN,
        lambda: _energy_identity(unnormalised=True),
    ),
    Claim(
        "energy-derivative-sa",
        "Along SA dE/dt = (1/N^2) sum_i Z_i |x_i'|^2.",
        r"SA: $\dot E = \frac1{N^2}\sum_iZ_i|\dot x_i|^2$",
        Verdict.PROVEN,
        lambda: _energy_identity(unnormalised=False),
    ),
    Claim(
        "two-energies",
        "The energy is (1/2) sum exp(-(beta/2) |x_i - x_j|^2), the same as (1/(2 beta)) sum "
        "exp(beta <x_i, x_j>), and the flow decreases it.",
        r"$\frac12\sum e^{-\frac\beta2|x_i-x_j|^2}$ is $\frac1{2\beta}\sum e^{\beta\langle "
        r"x_i,x_j\rangle}$",
        Verdict.IMPRECISE,
        _two_energies,
        "On the sphere the first is beta e^(-beta) times the second, a change of the unit of time. "
        "Both increase along SA and USA with V = I (attraction); descent is V = -I.",
        r"$\frac12\sum e^{-\frac\beta2|x_i-x_j|^2} = \beta e^{-\beta}\cdot\frac1{2\beta}\sum "
        r"e^{\beta\langle x_i,x_j\rangle}$ on the sphere; $V=I$ ascends",
    ),
]
