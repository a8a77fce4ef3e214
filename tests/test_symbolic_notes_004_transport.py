"""Claims of document 004 up to the Wasserstein gradient: each check can fail."""

from __future__ import annotations

from typing import Any

import pytest
from sympy import Integer, Matrix, Rational, log, sqrt, symbols

from symbolic.claims import (
    CLAIMS,
    Verdict,
    clustering,
    continuity,
    divergence,
    judge,
    kinetic_energy,
    optimal_transport,
    scaled_attention,
    token_flows,
    wasserstein_flow,
    wasserstein_gradient,
)


def named(key: str) -> Any:
    return next(claim for claim in CLAIMS if claim.key == key)


def verdict(key: str) -> Verdict:
    return judge(named(key)).finding.verdict


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


@pytest.mark.parametrize(
    ("module", "key"),
    [
        (wasserstein_gradient, "wasserstein-inner-product"),
        (wasserstein_gradient, "wasserstein-gradient"),
        (wasserstein_gradient, "wasserstein-gradient-derivation"),
        (wasserstein_gradient, "wasserstein-potential-energy"),
        (wasserstein_gradient, "wasserstein-internal-energy"),
        (wasserstein_flow, "wasserstein-flow-stability"),
        (continuity, "continuity-equation"),
        (kinetic_energy, "wasserstein-norm"),
    ],
)
def test_another_sign_of_the_divergence_changes_the_verdict(
    monkeypatch: pytest.MonkeyPatch, module: Any, key: str
) -> None:
    right = module.divergence
    monkeypatch.setattr(module, "divergence", lambda field, x: -right(field, x))
    assert judge(named(key)).changed


def test_mass_is_not_conserved_by_what_is_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasserstein_flow, "divergence", lambda field, _x: sum(field))
    assert verdict("wasserstein-flow-mass") is Verdict.FALSE


@pytest.mark.parametrize("dimension", [1, 2])
def test_particles_that_climb_do_not_have_the_density(
    monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    right = wasserstein_flow.moves_the_density
    assert right(-1, dimension)
    assert not right(1, dimension)
    assert not wasserstein_flow.decays(Integer(-2), dimension)
    monkeypatch.setattr(wasserstein_flow, "moves_the_density", lambda sign, d: right(-sign, d))
    with pytest.raises(ArithmeticError, match="the corrected statement does not hold"):
        verdict("wasserstein-flow-particles")


def test_wrong_gradients_of_other_inner_products_are_seen() -> None:
    derivative, metric = Matrix(symbols("d_1:3")), Matrix([[2, 1], [1, 3]])
    assert wasserstein_gradient.represents(metric.inv() * derivative, metric, derivative)
    assert not wasserstein_gradient.represents(derivative, metric, derivative)
    assert wasserstein_gradient.is_l2_gradient(lambda p, _slope: p**2, 2 * symbol_p(), 1)
    assert not wasserstein_gradient.is_l2_gradient(lambda p, _slope: p**2, symbol_p(), 1)
    by_place = wasserstein_gradient.change_along(lambda _p, x: x**2)
    assert by_place == Rational(1, 12)
    assert by_place != wasserstein_gradient.change_along(lambda p, _x: p**2)


def symbol_p() -> Any:
    return divergence.fields("p", divergence.coordinates(1))[0]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("benamou-brenier", Verdict.FALSE),
        ("wasserstein-length", Verdict.FALSE),
    ],
)
def test_another_velocity_of_gaussians_changes_the_verdict(
    monkeypatch: pytest.MonkeyPatch, key: str, expected: Verdict
) -> None:
    right = kinetic_energy.gaussian_velocity
    monkeypatch.setattr(kinetic_energy, "gaussian_velocity", lambda m, s: right(m, s) * 2)
    assert verdict(key) is expected


@pytest.mark.parametrize("key", ["benamou-brenier", "gradient-fields-suffice"])
def test_were_fields_without_time_as_good_the_verdict_would_turn(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    assert kinetic_energy.shrinking_without_time() == 3 * log(2) / 8
    monkeypatch.setattr(kinetic_energy, "shrinking_without_time", lambda: Rational(1, 4))
    assert verdict(key) is Verdict.TESTED


def test_the_end_of_the_ode_is_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until now lines 96-104 were proven with p_1 = nu. Were the field 0 to move, it would turn."""
    assert verdict("ode-reaches-the-target") is Verdict.IMPRECISE
    assert verdict("continuity-equation") is Verdict.PROVEN
    right = kinetic_energy.moves_gaussians
    monkeypatch.setattr(
        kinetic_energy, "moves_gaussians", lambda v, m, s: v != 0 and right(v, m, s)
    )
    assert verdict("ode-reaches-the-target") is Verdict.TESTED


def test_arcs_displaced_by_another_shift_cost_more() -> None:
    least = kinetic_energy.cost_of_shift(Integer(0))
    for shift in (Rational(1, 10), Rational(-1, 10), Rational(1, 2)):
        assert kinetic_energy.cost_of_shift(shift) > least
    # A whole turn moves every point by 1 more; the mean of the way is 5/24.
    for turn in (1, -1):
        cost = kinetic_energy.cost_of_shift(Integer(turn))
        assert cost == least + 1 + turn * Rational(5, 12)


def test_brenier_needs_the_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the field of another path optimal, or the field without time free, it would turn."""
    monkeypatch.setattr(optimal_transport, "shrinking_without_time", lambda: Rational(1, 5))
    assert verdict("brenier-velocity") is Verdict.TESTED
    monkeypatch.undo()
    monkeypatch.setattr(optimal_transport, "energy", lambda *_: Rational(1, 5))
    with pytest.raises(ArithmeticError, match="the corrected statement does not hold"):
        verdict("brenier-velocity")


def test_maps_and_couplings(monkeypatch: pytest.MonkeyPatch) -> None:
    module = optimal_transport
    assert not module.couples(Matrix(1, 2, [1, 0]), module.POINT, module.PAIR)
    assert not module.couples(Matrix(1, 2, [Rational(3, 2), -HALF]), module.POINT, module.PAIR)
    monkeypatch.setattr(module, "POINT", module.PAIR)
    assert verdict("monge-problem") is Verdict.TESTED
    assert verdict("kantorovich-relaxation") is Verdict.FALSE


HALF = Rational(1, 2)


def test_roots_of_least_costs_are_distances_from_p_equal_to_one() -> None:
    for power in (Integer(1), Integer(2), Integer(4)):
        assert optimal_transport.triangle_holds(power, root=True)
    assert not optimal_transport.triangle_holds(Integer(2), root=False)
    assert not optimal_transport.triangle_holds(HALF, root=True)
    assert optimal_transport.triangle_holds(HALF, root=False)


def test_queries_are_coupled_by_another_normalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scaled_attention.coupled_queries
    assert right(by_row=True) == []
    monkeypatch.setattr(scaled_attention, "coupled_queries", lambda by_row: right(not by_row))
    assert verdict("attention-parallel-queries") is Verdict.FALSE


def test_another_scale_leaves_another_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scaled_attention.score_variance
    assert right(3, 1 / sqrt(3)) == 1
    assert right(3, Rational(1, 3)) == Rational(1, 3)
    monkeypatch.setattr(scaled_attention, "score_variance", lambda d, scale: right(d, scale**2))
    assert verdict("scaled-scores-variance") is Verdict.FALSE


def test_shapes_that_compose_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scaled_attention.printed_shape(3, 3, 3) == (3, 3)
    assert scaled_attention.printed_shape(3, 2, 2) is None
    monkeypatch.setattr(scaled_attention, "printed_shape", scaled_attention.corrected_shape)
    assert verdict("attention-shapes") is Verdict.TESTED


def test_norms_by_token_are_those_of_the_sphere(monkeypatch: pytest.MonkeyPatch) -> None:
    right = token_flows.row_squares
    monkeypatch.setattr(token_flows, "row_squares", lambda x, by_token: right(x, True))
    assert verdict("normalised-update") is Verdict.TESTED
    monkeypatch.setattr(token_flows, "row_squares", lambda x, by_token: right(x, False))
    assert verdict("normalised-update") is Verdict.FALSE


def test_a_step_that_is_not_projected_is_another_ode(monkeypatch: pytest.MonkeyPatch) -> None:
    right = token_flows.step_expansion
    monkeypatch.setattr(token_flows, "step_expansion", lambda normalised: right(not normalised))
    assert verdict("layers-as-ode") is Verdict.FALSE


def test_the_order_of_tokens_matters_under_a_mask_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert token_flows.exchangeable(causal=False)
    assert not token_flows.exchangeable(causal=True)
    monkeypatch.setattr(token_flows, "exchangeable", lambda causal: True)
    assert verdict("tokens-as-particles") is Verdict.FALSE


def test_tokens_that_repel_have_no_point_as_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    right = clustering.closing_speed
    monkeypatch.setattr(clustering, "closing_speed", lambda value: right(-value))
    assert verdict("clusters-in-the-long-run") is Verdict.FALSE
