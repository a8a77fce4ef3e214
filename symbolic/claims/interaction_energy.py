"""Claims on the interaction energy of tokens and its derivative along the flows."""

from __future__ import annotations

from itertools import product

from sympy import Expr, Integer, Rational, Symbol, cancel, diff, exp, expand, symbols

from symbolic.claims.inner_products import BETA, XX, XY, YY, gram_symbols, projected_square
from symbolic.claims.ledger import Finding, Verdict, at, note, proven, refuted


def energy_rate(count: int, unnormalised: bool, value: int = 1) -> tuple[Expr, Expr]:
    """Return dE/dt from the chain rule in inner products, V = value I, and the sum of squares.

    The row weights are a_i w_ij with a_i = 1/N (USA) or the symbol a_i = 1/Z_i (SA); the claimed
    sum has the factor 1/a_i in row i: N for USA, after division by N^2, and Z_i for SA.
    """
    c, w = gram_symbols(count)
    tokens = range(count)
    a = [Rational(1, count) if unnormalised else Symbol(f"a_{i}", positive=True) for i in tokens]
    velocity = [
        [
            value * a[i] * sum(w[i, k] * (c[k, j] - c[i, k] * c[i, j]) for k in tokens)
            for j in tokens
        ]
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


def two_token_rate() -> tuple[Expr, Expr]:
    """Return dE/dt of two tokens at the cosine c under SA, and the rate of c."""
    c = Symbol("c", real=True)
    own, other = exp(BETA), exp(BETA * c)
    speed = 2 * other * (1 - c**2) / (own + other)
    energy = (2 * own + 2 * other) / (8 * BETA)
    return diff(energy, c) * speed, speed


def _rate_increases() -> Finding:
    c = Symbol("c", real=True)
    rate, speed = two_token_rate()
    slope = cancel(diff(rate, c).subs(c, 1))
    factor = cancel(rate / (1 - c**2))
    return refuted(
        "two tokens at the cosine c: dE/dt = e^(2 beta c)(1 - c^2)/(2 (e^beta + e^(beta c))) is "
        f"positive for -1 < c < 1 and 0 at c = 1, where its derivative by c is {slope}: it falls "
        "while c, and E, still grow. In general E is bounded, so the integral of dE/dt >= 0 is "
        "finite, and dE/dt, with a bounded derivative, tends to 0",
        claim_fails=expand(slope + exp(BETA) / 2) == 0 and speed.subs(c, 0).is_positive,
        correction_holds=bool(factor.is_positive) and rate.subs(c, 1) == 0,
    )


def _repelling() -> Finding:
    cases = [
        expand(rate + squares) == 0
        for rate, squares in (
            energy_rate(count, unnormalised, value=-1)
            for count in (2, 3, 4)
            for unnormalised in (True, False)
        )
    ]
    return proven(
        "V = -I reverses the velocity, and so dE/dt = -int |X|^2 Z dmu <= 0 (USA: without Z); from "
        "the chain rule in inner products, N = 2, 3, 4; any N by the gradient of E",
        _gradient_of_the_energy(),
        *cases,
    )


CLAIMS = [
    note(
        "energy-derivative-usa",
        "Without the denominator d mu/dt is the Wasserstein gradient of E, and so E increases: "
        "dE/dt = int |X|^2 dmu.",
        Verdict.PROVEN,
        lambda: _energy_identity(unnormalised=True),
        at("004:328", r"\partial_t \mu_t = \nabla_{W_2} E_\beta[\mu]"),
        test="test_sphere.py::"
        "test_the_energy_never_decreases_and_has_the_derivative_of_the_identity",
    ),
    note(
        "energy-derivative-sa",
        "The interaction energy E = (1/(2 beta)) int int exp(beta <x, x'>) dmu dmu has dE/dt = int "
        "|X[mu](x)|^2 Z(x) dmu(x) along SA, so it is monotone.",
        Verdict.PROVEN,
        lambda: _energy_identity(unnormalised=False),
        at(
            "004:269-272",
            r"E_\beta(\mu_t) = \frac{1}{2\beta} \iint \exp(\beta \langle x, x' \rangle) "
            r"d\mu_t(x) d\mu_t(x')",
            r"\frac{d}{dt} E_\beta[\mu_t] = \int \|X[\mu_t](x)\|^2 Z_{\beta, \mu_t}(x) "
            r"d\mu_t(x)",
        ),
        test="test_sphere.py::"
        "test_the_energy_never_decreases_and_has_the_derivative_of_the_identity",
    ),
    note(
        "energy-rate-increases",
        "The time derivative of the energy increases along the continuity equation.",
        Verdict.FALSE,
        _rate_increases,
        at("004:269-272", "increases along the continuity equation"),
        corrected="The energy increases; its derivative is >= 0 and tends to 0.",
        why="The sentence is about E: near one cluster its derivative falls to 0.",
    ),
    note(
        "energy-decreases-when-repelling",
        "With V = -I the interaction energy decreases.",
        Verdict.PROVEN,
        _repelling,
        at("004:273", "V = -I"),
    ),
]
