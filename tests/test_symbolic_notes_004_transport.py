"""Claims of document 004 up to the Wasserstein gradient: each check can fail."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sympy import Integer, Rational

from symbolic.claims import (
    continuity,
    divergence,
    kinetic_energy,
    optimal_transport,
    scaled_attention,
    token_flows,
    wasserstein_flow,
    wasserstein_gradient,
)
from tests.ledger import wrong_formulas_turn_verdicts


def test_integration_by_parts_is_seen_where_it_is_not() -> None:
    x = divergence.coordinates(2)
    p, phi = divergence.fields("p phi", x)
    flux = divergence.scaled(p, divergence.gradient(phi, x))
    assert divergence.is_divergence(divergence.divergence(flux, x), [p, phi], x)
    assert not divergence.is_divergence(p * phi, [p, phi], x)
    assert not divergence.is_divergence(
        phi * divergence.divergence(flux, x) - divergence.inner(flux, flux), [phi], x
    )
    # A field that is not free of divergence is not orthogonal to gradients.
    assert not divergence.is_divergence(
        divergence.inner(divergence.gradient(phi, x), [p, p]), [phi], x
    )


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_wrong_wasserstein_gradient_is_seen(dimension: int) -> None:
    """u'(p) doubled, or the density itself, is no gradient of int u(p); +div has the wrong sign."""
    module = wasserstein_gradient
    right = module._internal_derivative
    assert module.is_gradient(module._internal, right, dimension)
    assert not module.is_gradient(module._internal, lambda p, x: 2 * right(p, x), dimension)
    assert not module.is_gradient(module._internal, lambda p, _x: p, dimension)
    assert module.has_gradient(-1, dimension)
    assert not module.has_gradient(1, dimension)


def negated(module: ModuleType) -> Any:
    right = module.divergence
    return lambda field, x: -right(field, x)


WRONG: list[tuple[ModuleType, str, Any, tuple[str, ...]]] = [
    (
        wasserstein_gradient,
        "divergence",
        negated(wasserstein_gradient),
        (
            "wasserstein-inner-product",
            "wasserstein-gradient",
            "wasserstein-gradient-derivation",
            "wasserstein-potential-energy",
            "wasserstein-internal-energy",
        ),
    ),
    (
        wasserstein_flow,
        "divergence",
        negated(wasserstein_flow),
        ("wasserstein-flow-stability",),
    ),
    (wasserstein_flow, "divergence", lambda field, _x: sum(field), ("wasserstein-flow-mass",)),
    (
        wasserstein_flow,
        "moves_the_density",  # by particles that climb
        lambda sign, d, right=wasserstein_flow.moves_the_density: right(-sign, d),
        ("wasserstein-flow-particles",),
    ),
    (continuity, "divergence", negated(continuity), ("continuity-equation",)),
    (kinetic_energy, "divergence", negated(kinetic_energy), ("wasserstein-norm",)),
    (
        kinetic_energy,
        "gaussian_velocity",
        lambda m, s, right=kinetic_energy.gaussian_velocity: right(m, s) * 2,
        ("benamou-brenier", "wasserstein-length"),
    ),
    (
        kinetic_energy,
        "shrinking_without_time",  # as if fields without time were as good
        lambda: Rational(1, 4),
        ("benamou-brenier", "gradient-fields-suffice"),
    ),
    (
        kinetic_energy,
        "moves_gaussians",  # as if the field 0 did
        lambda v, m, s, right=kinetic_energy.moves_gaussians: v != 0 and right(v, m, s),
        ("ode-reaches-the-target",),
    ),
    (
        optimal_transport,
        "shrinking_without_time",
        lambda: Rational(1, 5),
        ("brenier-velocity",),
    ),
    (optimal_transport, "energy", lambda *_: Rational(1, 5), ("brenier-velocity",)),
    (
        optimal_transport,
        "POINT",
        optimal_transport.PAIR,
        ("monge-problem", "kantorovich-relaxation"),
    ),
    (
        scaled_attention,
        "coupled_queries",
        lambda by_row, right=scaled_attention.coupled_queries: right(not by_row),
        ("attention-parallel-queries",),
    ),
    (
        scaled_attention,
        "score_variance",
        lambda d, scale, right=scaled_attention.score_variance: right(d, scale**2),
        ("scaled-scores-variance",),
    ),
    (
        scaled_attention,
        "printed_shape",
        scaled_attention.corrected_shape,
        ("attention-shapes",),
    ),
    (
        token_flows,
        "row_squares",
        lambda x, by_token, right=token_flows.row_squares: right(x, True),
        ("normalised-update",),
    ),
    (
        token_flows,
        "row_squares",
        lambda x, by_token, right=token_flows.row_squares: right(x, False),
        ("normalised-update",),
    ),
    (
        token_flows,
        "step_expansion",
        lambda normalised, right=token_flows.step_expansion: right(not normalised),
        ("layers-as-ode",),
    ),
    (token_flows, "exchangeable", lambda causal: True, ("tokens-as-particles",)),
]

test_a_wrong_formula_turns_the_verdict = wrong_formulas_turn_verdicts(WRONG)


def test_arcs_displaced_by_another_shift_cost_more() -> None:
    least = kinetic_energy.cost_of_shift(Integer(0))
    for shift in (Rational(1, 10), Rational(-1, 10), Rational(1, 2)):
        assert kinetic_energy.cost_of_shift(shift) > least
    # A whole turn moves every point by 1 more; the mean of the way is 5/24.
    for turn in (1, -1):
        cost = kinetic_energy.cost_of_shift(Integer(turn))
        assert cost == least + 1 + turn * Rational(5, 12)
