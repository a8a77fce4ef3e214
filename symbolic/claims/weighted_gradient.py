"""Claims on attention with V = Q^T K symmetric as a gradient in the metric weighted by Z."""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Expr, Integer, Matrix, diff, exp, expand, eye, symbols

from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Claim, Finding, Verdict, at, note, proven, refuted

SYMMETRIC = Matrix([symbols("v_11 v_12"), symbols("v_12 v_22")])


def energy(tokens: Sequence[Matrix], value: Matrix) -> Expr:
    """Return (1/(2 beta)) sum_ij exp(beta <V x_i, x_j>)."""
    return sum(exp(BETA * (value * a).dot(b)) for a in tokens for b in tokens) / (2 * BETA)


def field(tokens: Sequence[Matrix], value: Matrix) -> Matrix:
    """Return sum_j exp(beta <V x_1, x_j>) V x_j."""
    x = tokens[0]
    terms = [exp(BETA * (value * x).dot(b)) * value * b for b in tokens]
    return sum(terms[1:], terms[0])


def normaliser(tokens: Sequence[Matrix], value: Matrix) -> Expr:
    """Return Z_1 = sum_j exp(beta <V x_1, x_j>); the one printed has V = I."""
    return sum((exp(BETA * (value * tokens[0]).dot(b)) for b in tokens), Integer(0))


def differs_from_the_gradient(value: Matrix, count: int) -> bool:
    """Return whether the derivative of E by x_1 is another vector than `field`."""
    tokens = [Matrix(symbols(f"x_{i}1:{i}3")) for i in range(1, count + 1)]
    total, moved = energy(tokens, value), field(tokens, value)
    return any(
        expand(diff(total, s) - entry) != 0 for s, entry in zip(tokens[0], moved, strict=True)
    )


def _tangent(x: Matrix, y: Matrix) -> Matrix:
    return (y - x.dot(y) * x).applyfunc(expand)


EXAMPLE = (Matrix([1, 0]), Matrix([0, 1])), Matrix([[2, 1], [1, 1]])


def example() -> tuple[Expr, Expr, Expr]:
    """Return, for e_1 of the tokens e_1, e_2, the motion along e_2.

    As printed, by the gradient in the printed metric, and of SA with Q^T K = V.
    """
    tokens, value = EXAMPLE
    moved = _tangent(tokens[0], field(tokens, value))[1]
    printed = (moved / normaliser(tokens, eye(2))).simplify()
    return moved, printed, (moved / normaliser(tokens, value)).simplify()


def _exercise() -> Finding:
    moved, printed, with_v = example()
    return refuted(
        "dE/dx_i = sum_j exp(beta <V x_i, x_j>) V x_j for symmetric V (2 and 3 tokens, symbols): "
        "X. as printed is the gradient in the plain metric. In the metric of Z it is divided by "
        "Z_i, which is > 1. Tokens e_1, e_2 and V = [[2, 1], [1, 1]]: e_1 moves along e_2 by "
        f"{moved} as printed, {printed} by the printed metric, {with_v} (SA) if Z has V",
        claim_fails=expand(moved - printed) != 0 and printed != with_v,
        correction_holds=not any(differs_from_the_gradient(SYMMETRIC, n) for n in (2, 3))
        and with_v == 1,
    )


def _weighted() -> Finding:
    return proven(
        "dE/dx_i = sum_j exp(beta <V x_i, x_j>) V x_j for symmetric V, by differentiation (2 and 3 "
        "tokens of two coordinates; each further one adds the same term to both sides), which is "
        "Z_i times the softmax average of V x_j; then apply P_i. For V = [[0, 1], [0, 0]], not "
        "symmetric, it differs",
        *[not differs_from_the_gradient(SYMMETRIC, count) for count in (2, 3)],
        differs_from_the_gradient(Matrix([[0, 1], [0, 0]]), 2),
    )


CLAIMS = [
    note(
        "weighted-gradient-exercise",
        "With V = Q^T K symmetric, <a, b>_X = sum_i Z_i <a_i, b_i>, Z_i = sum_j exp(beta <x_i, "
        "x_j>) and E = (1/(2 beta)) sum exp(beta <V x_i, x_j>), the flow x_i' = P_i sum_j exp("
        "beta <V x_i, x_j>) V x_j is the gradient of E in this metric.",
        Verdict.FALSE,
        _exercise,
        at(
            "004:332-343",
            r"Z_{\beta,i} = \sum_{j=1}^n e^{\beta \langle x_i, x_j \rangle}",
            r"\langle (a_1, \dots, a_n), (b_1, \dots, b_n) \rangle_X = \sum_{i=1}^n "
            r"Z_{\beta,i} \langle a_i, b_i \rangle",
            r"E_{\beta}(X) = \frac{1}{2\beta} \sum_{i=1}^n \sum_{j=1}^n e^{\beta \langle "
            r"Vx_i, x_j \rangle}",
            r"\dot{X}_i(t) = P_{x_i}^{\perp} \left(\sum_{j=1}^n e^{\beta \langle Vx_i, x_j "
            r"\rangle} Vx_j \right)",
        ),
        corrected="The printed flow is the gradient of E in the plain metric, all Z_i = 1. In the "
        "metric of "
        "Z_i = sum_j exp(beta <V x_i, x_j>) the gradient is SA with these weights: x_i' = P_i "
        "Z_i^-1 sum_j exp(beta <V x_i, x_j>) V x_j.",
        why="The printed velocity lacks 1/Z_i, and the printed Z_i lacks V; with both the flow is "
        "SA.",
        test="test_sphere_tokens.py::test_it_is_a_gradient_flow_for_symmetric_forms_only",
    ),
    Claim(
        "sa-is-a-weighted-gradient",
        "With V = Q^T K symmetric, such as I, SA is the gradient flow of the energy in the metric "
        "weighted by Z_i = sum_j exp(beta <V x_i, x_j>).",
        r"$\dot x_i = Z_i^{-1}\nabla_{x_i}E$, $V = Q^\top K$ symmetric",
        Verdict.PROVEN,
        _weighted,
    ),
]
