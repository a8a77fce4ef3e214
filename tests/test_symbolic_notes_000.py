"""Claims of documents 000 and 001, softmax and the proportional limit: each check can turn."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sympy import Matrix, cancel, exp, floor, ones

from symbolic.claims import proportional_limit
from symbolic.claims.proportional_limit import Z
from tests.ledger import wrong_formulas_turn_verdicts


def wrong_jacobian(tokens: int) -> Matrix:
    return ones(tokens, tokens) / tokens


def without_normalisation() -> list[Any]:
    """The logistic function of each entry."""
    return [exp(z) / (1 + exp(z)) for z in Z[:3]]


def doubled(function: Any) -> Any:
    return lambda *arguments: 2 * function(*arguments)


def smaller(count: int, right: Any = proportional_limit.one_token_cumulants) -> list[Any]:
    """Fluctuations of V of order 1/n, as if the updates had that size."""
    mean, *others = right(count)
    return [mean, *(cancel(value / proportional_limit.N) for value in others)]


WRONG: list[tuple[ModuleType, str, Any, tuple[str, ...]]] = [
    # The vector 1/m, which would be true.
    (proportional_limit, "printed_value", lambda m: ones(m, 1) / m, ("softmax-at-zero",)),
    (proportional_limit, "at_zero", lambda m: ones(m, 1), ("softmax-at-zero-diagonal",)),
    (
        proportional_limit,
        "jacobian_at_zero",
        wrong_jacobian,
        ("softmax-jacobian-at-zero", "softmax-hessian-first-term"),
    ),
    (
        proportional_limit,
        "hessian_at_zero",
        doubled(proportional_limit.hessian_at_zero),
        ("softmax-hessian-at-zero",),
    ),
    (
        proportional_limit,
        "slice_at_zero",
        doubled(proportional_limit.slice_at_zero),
        ("softmax-hessian-at-zero",),
    ),
    (
        proportional_limit,
        "values",
        without_normalisation,
        (
            "softmax-is-a-distribution",
            "softmax-of-a-component",
            "softmax-derivative-cases",
            "softmax-kronecker-form",
        ),
    ),
    (
        proportional_limit,
        "_slice",  # a row of the Jacobian in place of its column
        lambda j, s, k, right=proportional_limit._slice: right(j, s, k) - j[:, k] * s.T,
        ("softmax-hessian-matrix-formula",),
    ),
    # Were the products defined, the printed formula would not fail.
    (proportional_limit, "_has_shape", lambda _product: True, ("softmax-hessian-matrix-formula",)),
    (
        proportional_limit,
        "one_token_cumulants",
        smaller,
        (
            "moments-of-order-1/n",
            "updates-of-order-1/n",
            "constant-ratio-gives-time",
            "euler-step-1/n",
            "update-size-allows-sde",
        ),
    ),
    # Were squares of 1/n not to vanish, the statement would not fail.
    (
        proportional_limit,
        "squares",
        lambda _update: proportional_limit.T,
        ("update-size-allows-sde",),
    ),
    # With L = T n rounded down no layer is later than T.
    (proportional_limit, "ceiling", floor, ("layer-times",)),
    (
        proportional_limit,
        "time_of",  # t = l^2/n
        lambda layer, right=proportional_limit.time_of: right(layer**2),
        ("layer-gaps",),
    ),
]

test_a_wrong_formula_turns_the_verdict = wrong_formulas_turn_verdicts(WRONG)
