"""Claims on layers as flows: the normalised update, the ODE, tokens as particles."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from sympy import Expr, Function, Matrix, Symbol, cancel, diff, expand, simplify, sqrt, symbols

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, tested

STEP = Symbol("h", positive=True)
TOKEN = Matrix([0, 0, 1])
"""A token on the sphere; a rotation carries any other to it."""
ATTENTION = Matrix(symbols("y_1:4", real=True))


def step_expansion(normalised: bool) -> tuple[Matrix, Matrix]:
    """Return (x + h y)/|x + h y|, or x + h y, at h = 0 and its derivative there."""
    moved = TOKEN + STEP * ATTENTION
    if normalised:
        moved = moved / sqrt(expand(moved.dot(moved)))
    start = moved.subs(STEP, 0)
    return start, diff(moved, STEP).subs(STEP, 0).applyfunc(simplify)


def row_squares(moved: Matrix, by_token: bool) -> list[Expr]:
    """Return |row|^2 after division of each row, or of the whole matrix, by its norm."""
    squares = [sum(entry**2 for entry in moved.row(i)) for i in range(moved.rows)]
    total = sum(squares)
    return [cancel(square / (square if by_token else total)) for square in squares]


def _normalised_update() -> Finding:
    moved = Matrix(3, 2, symbols("a_1:7", positive=True))
    together = row_squares(moved, by_token=False)
    return imprecise(
        "the norm of the n x d matrix makes the squared norms of all tokens add up to 1, so for n "
        "> 1 no token keeps norm 1 (three tokens); the norm of each row, as in line 228, keeps |x| "
        "= 1, and a step h moves a token by h P_x y + O(h^2)",
        part_that_holds=row_squares(moved, by_token=True) == [1, 1, 1]
        and step_expansion(normalised=True) == (TOKEN, ATTENTION - ATTENTION.dot(TOKEN) * TOKEN),
        part_that_fails=cancel(sum(together)) == 1 and all(square != 1 for square in together),
    )


def _layers_as_ode() -> Finding:
    projected = ATTENTION - ATTENTION.dot(TOKEN) * TOKEN
    return tested(
        "a step x + h y is the Euler step of x' = y, and (x + h y)/|x + h y| has the derivative "
        "P_x y at h = 0: an error of order h^2 for each step and h = T/L for L layers. In the "
        "test networks with step T/L converge to their flows at rate 1. The printed step is h = 1, "
        "and weights must be functions of k/L",
        step_expansion(normalised=True) == (TOKEN, projected),
        step_expansion(normalised=False) == (TOKEN, ATTENTION),
    )


def velocities(tokens: Sequence[Symbol], causal: bool = False) -> list[Expr]:
    """Return the softmax averages of v(x_j), weights w(x_i, x_j), over all or earlier tokens."""
    weight, value = Function("w"), Function("v")
    result = []
    for i, token in enumerate(tokens):
        seen = tokens[: i + 1] if causal else tokens
        total = sum(weight(token, other) for other in seen)
        result.append(sum(weight(token, other) * value(other) for other in seen) / total)
    return result


def exchangeable(causal: bool) -> bool:
    """Return whether permuted tokens have permuted velocities, for three tokens."""
    tokens = symbols("x_1:4")
    plain = dict(zip(tokens, velocities(tokens, causal), strict=True))
    return all(
        cancel(velocity - plain[token]) == 0
        for order in permutations(tokens)
        for token, velocity in zip(order, velocities(order, causal), strict=True)
    )


def _tokens_as_particles() -> Finding:
    tokens = symbols("x_1:4")
    doubled = velocities((*tokens, *tokens))[:3]
    same = [cancel(a - b) == 0 for a, b in zip(doubled, velocities(tokens), strict=True)]
    return tested(
        "under full attention permuted tokens have permuted velocities, and to have each token "
        "twice changes nothing: a token sees the others only through their empirical measure "
        "(three tokens, any weights and values). Under a causal mask it sees the earlier ones, "
        "and the order matters",
        exchangeable(causal=False),
        not exchangeable(causal=True),
        *same,
    )


CLAIMS = [
    note(
        "normalised-update",
        "A layer is x(k+1) = (x + SAtt(x)) / |x + SAtt(x)| for the n x d matrix x of all tokens.",
        Verdict.IMPRECISE,
        _normalised_update,
        at(
            "004:50-52",
            r"\mathbf{x}(k+1) = \frac{\mathbf{x}(k) + SAtt(\mathbf{x}(k); K(k), Q(k), V(k))}"
            r"{\|\mathbf{x}(k) + SAtt(\mathbf{x}(k); K(k), Q(k), V(k))\|}",
        ),
        corrected="Each token, a row, is divided by its own norm, as in line 228.",
        corrected_latex=r"\mathbf{x}_i(k+1) = "
        r"\frac{\mathbf{x}_i + [SAtt(\mathbf{x})]_i}{\|\mathbf{x}_i + "
        r"[SAtt(\mathbf{x})]_i\|}",
        why="The norm of the whole matrix would not put the tokens on the unit sphere: their "
        "squared norms would add up to 1.",
    ),
    note(
        "layers-as-ode",
        "Transformers, like residual networks, can be modelled in continuous time by an ODE.",
        Verdict.TESTED,
        _layers_as_ode,
        at("004:58"),
        test="test_sphere_layers.py::test_networks_converge_to_their_flows_at_rate_one",
    ),
    note(
        "tokens-as-particles",
        "Transformers are interacting particle systems, with a particle for each token.",
        Verdict.TESTED,
        _tokens_as_particles,
        at("004:59"),
    ),
]
