"""Claims of document 004 up to the Wasserstein gradient: each check can fail."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sympy import Integer, Rational

from symbolic.claims import particles, transport
from tests.ledger import wrong_formulas_turn_verdicts


def test_integration_by_parts_is_seen_where_it_is_not() -> None:
    x = transport.coordinates(2)
    p, phi = transport.fields("p phi", x)
    flux = transport.scaled(p, transport.gradient(phi, x))
    assert transport.is_divergence(transport.divergence(flux, x), [p, phi], x)
    assert not transport.is_divergence(p * phi, [p, phi], x)
    assert not transport.is_divergence(
        phi * transport.divergence(flux, x) - transport.inner(flux, flux), [phi], x
    )
    # A field that is not free of divergence is not orthogonal to gradients.
    assert not transport.is_divergence(
        transport.inner(transport.gradient(phi, x), [p, p]), [phi], x
    )


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_wrong_wasserstein_gradient_is_seen(dimension: int) -> None:
    """u'(p) doubled, or the density itself, is no gradient of int u(p); +div has the wrong sign."""
    module = transport
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
        transport,
        "divergence",
        negated(transport),
        (
            "wasserstein-inner-product",
            "wasserstein-gradient",
            "wasserstein-gradient-derivation",
            "wasserstein-potential-energy",
            "wasserstein-internal-energy",
        ),
    ),
    (transport, "divergence", negated(transport), ("wasserstein-flow-stability",)),
    (transport, "divergence", lambda field, _x: sum(field), ("wasserstein-flow-mass",)),
    (
        transport,
        "moves_the_density",  # by particles that climb
        lambda sign, d, right=transport.moves_the_density: right(-sign, d),
        ("wasserstein-flow-particles",),
    ),
    (transport, "divergence", negated(transport), ("continuity-equation",)),
    (transport, "divergence", negated(transport), ("wasserstein-norm",)),
    (
        transport,
        "gaussian_velocity",
        lambda m, s, right=transport.gaussian_velocity: right(m, s) * 2,
        ("benamou-brenier", "wasserstein-length"),
    ),
    (
        transport,
        "shrinking_without_time",  # as if fields without time were as good
        lambda: Rational(1, 4),
        ("benamou-brenier", "gradient-fields-suffice"),
    ),
    (
        transport,
        "moves_gaussians",  # as if the field 0 did
        lambda v, m, s, right=transport.moves_gaussians: v != 0 and right(v, m, s),
        ("ode-reaches-the-target",),
    ),
    (transport, "shrinking_without_time", lambda: Rational(1, 5), ("brenier-velocity",)),
    (transport, "energy", lambda *_: Rational(1, 5), ("brenier-velocity",)),
    (transport, "POINT", transport.PAIR, ("monge-problem", "kantorovich-relaxation")),
    (
        particles,
        "coupled_queries",
        lambda by_row, right=particles.coupled_queries: right(not by_row),
        ("attention-parallel-queries",),
    ),
    (
        particles,
        "score_variance",
        lambda d, scale, right=particles.score_variance: right(d, scale**2),
        ("scaled-scores-variance",),
    ),
    (particles, "printed_shape", particles.corrected_shape, ("attention-shapes",)),
    (
        particles,
        "row_squares",
        lambda x, by_token, right=particles.row_squares: right(x, True),
        ("normalised-update",),
    ),
    (
        particles,
        "row_squares",
        lambda x, by_token, right=particles.row_squares: right(x, False),
        ("normalised-update",),
    ),
    (
        particles,
        "step_expansion",
        lambda normalised, right=particles.step_expansion: right(not normalised),
        ("layers-as-ode",),
    ),
    (particles, "exchangeable", lambda causal: True, ("tokens-as-particles",)),
]

test_a_wrong_formula_turns_the_verdict = wrong_formulas_turn_verdicts(WRONG)


def test_arcs_displaced_by_another_shift_cost_more() -> None:
    least = transport.cost_of_shift(Integer(0))
    for shift in (Rational(1, 10), Rational(-1, 10), Rational(1, 2)):
        assert transport.cost_of_shift(shift) > least
    # A whole turn moves every point by 1 more; the mean of the way is 5/24.
    for turn in (1, -1):
        cost = transport.cost_of_shift(Integer(turn))
        assert cost == least + 1 + turn * Rational(5, 12)
