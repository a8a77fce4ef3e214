"""Claims on the interaction energy of tokens and its derivative along the flows."""

from __future__ import annotations

from itertools import product

from sympy import Expr, Integer, Rational, Symbol, diff, exp, expand, symbols

from symbolic.claims.inner_products import BETA, XX, XY, YY, gram_symbols, projected_square
from symbolic.claims.ledger import Claim, Finding, Verdict, proven


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
]
