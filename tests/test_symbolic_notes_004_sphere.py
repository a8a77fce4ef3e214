"""The slides from line 186 on: wrong formulas change the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sympy import Matrix, Rational, Symbol, cancel, exp, expand, eye

from symbolic.claims import (
    attention_as_gradient,
    attention_layers,
    clustering_rates,
    clustering_theorems,
    energy_curvature,
    energy_extremes,
    figures_and_questions,
    interaction_energy,
    mean_field_flow,
    removed_denominator,
    weighted_gradient,
)
from symbolic.claims.inner_products import BETA
from tests.ledger import turned

WRONG: list[tuple[str, Any, str, Callable[[Any], Any]]] = [
    (
        "self-attention-matrix-form",
        attention_layers,
        "printed_form_exists",
        lambda _right: lambda rows, transposed: rows and not transposed,
    ),
    (
        "self-attention-matrix-form",
        attention_layers,
        "entries_agree",
        lambda right: lambda: right(transposed=False),
    ),
    (
        "self-attention-components",
        attention_layers,
        "softmax_row",
        lambda _right: lambda exponentials: exponentials,
    ),
    (
        "layer-norm-as-unit-norm",
        attention_layers,
        "layer_norm",
        lambda right: lambda x, centred: right(x, centred=False),
    ),
    (
        "sphere-invariant",
        attention_layers,
        "coefficients_of_a_step",
        lambda right: lambda length: right(length + 1),
    ),
    (
        "empirical-measure-form",
        mean_field_flow,
        "empirical_field",
        lambda _right: lambda count, moved, total: moved / count / total,
    ),
    (
        "field-is-tangent",
        mean_field_flow,
        "field_at",
        lambda _right: lambda x, _places: x,
    ),
    (
        "continuity-equation-on-the-sphere",
        mean_field_flow,
        "defect_of_the_density",
        lambda right: lambda sign: right(-sign),
    ),
    (
        "energy-rate-increases",
        interaction_energy,
        "two_token_rate",
        lambda right: lambda: (-right()[0], right()[1]),
    ),
    (
        "energy-decreases-when-repelling",
        interaction_energy,
        "energy_rate",
        lambda right: lambda count, unnormalised, value: right(count, unnormalised),
    ),
    (
        "energy-minimiser",
        energy_extremes,
        "gegenbauer_coefficient",
        lambda right: lambda k, j: right(k, j) * (k + 1),
    ),
    (
        "energy-minimiser",
        energy_extremes,
        "fourier_coefficient",
        lambda right: lambda k, j: right(k, j) * (-1) ** j,
    ),
    (
        "energy-maximisers",
        energy_extremes,
        "kernel_below_its_maximum",
        lambda right: lambda: right() + BETA,
    ),
    (
        "softmax-average-forms",
        attention_as_gradient,
        "gradient_of_logarithm",
        lambda right: lambda scale: [entry + 1 for entry in right(scale)],
    ),
    (
        "sa-is-no-l2-gradient",
        attention_as_gradient,
        "sa_kernel",
        lambda _right: attention_as_gradient.usa_kernel,
    ),
    (
        "spherical-gradient",
        attention_as_gradient,
        "tangential",
        lambda _right: lambda _x, slopes: slopes,
    ),
    (
        "usa-is-the-gradient",
        removed_denominator,
        "first_variation",
        lambda _right: lambda kernel: kernel,
    ),
    (
        "sinkformer-removes-the-denominator",
        removed_denominator,
        "_potential_derivative",
        lambda _right: lambda: False,
    ),
    (
        "usa-continuity-equation",
        removed_denominator,
        "projected",
        lambda _right: lambda x, y: x * y if not isinstance(y, Matrix) else y - x.dot(y) * x,
    ),
    (
        "weighted-gradient-exercise",
        weighted_gradient,
        "normaliser",
        lambda right: lambda tokens, _value: right(tokens, eye(2)),
    ),
    (
        "sa-is-a-weighted-gradient",
        weighted_gradient,
        "SYMMETRIC",
        lambda right: right + Matrix([[0, 1], [0, 0]]),
    ),
    (
        "rate-of-convergence",
        clustering_rates,
        "linear_rate",
        lambda right: lambda unnormalised: right(unnormalised) * exp(-BETA),
    ),
    (
        "collapse-in-finite-time",
        clustering_rates,
        "rate_of_the_cosine",
        lambda right: lambda unnormalised: 2 * right(unnormalised),
    ),
    (
        "collapse-in-finite-time",
        clustering_rates,
        "derivatives_on_a_circle",
        lambda right: lambda kernel, gap, along: right(kernel, 2 * gap, along),
    ),
    (
        "index-of-the-token",
        clustering_theorems,
        "projected_mean",
        lambda right: lambda _i: right(0),
    ),
    (
        "one-cluster-at-beta-zero",
        clustering_theorems,
        "curvature_of_one_token",
        lambda right: lambda: -right(),
    ),
    (
        "one-cluster-at-small-beta",
        clustering_theorems,
        "curvature_of_one_token",
        lambda right: lambda: right() + BETA,
    ),
    (
        "one-cluster-at-large-beta",
        clustering_theorems,
        "curvature_on_the_circle",
        lambda right: lambda: right() * 2,
    ),
    (
        "one-cluster-in-three-dimensions",
        clustering_theorems,
        "every_point_has_a_way_up",
        lambda right: lambda dimension: right(dimension - 1),
    ),
    (
        "lojasiewicz",
        clustering_theorems,
        "lojasiewicz_ratio",
        lambda _right: lambda _place: Rational(0),
    ),
    (
        "figure-3-any-pair",
        figures_and_questions,
        "is_equivariant",
        lambda right: lambda causal: right(causal=True),
    ),
    (
        # Only pairs of tokens that are all in one cluster count.
        "figure-3-single-point",
        figures_and_questions,
        "share_of_near_pairs",
        lambda right: lambda *sizes: right(*sizes) if len(sizes) == 1 else Rational(0),
    ),
]


@pytest.mark.parametrize(("key", "module", "name", "wrong"), WRONG)
def test_a_wrong_formula_changes_the_verdict(
    key: str, module: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    assert turned(key)


def test_an_average_of_some_tokens_has_no_linear_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with two tokens at x the derivatives are not those of a mean."""
    right = clustering_rates.velocity
    monkeypatch.setattr(clustering_rates, "velocity", lambda x, other, u: right(x, other, u) + x)
    with pytest.raises(ArithmeticError, match="do not move as"):
        clustering_rates.linear_rate(unnormalised=False)


def test_on_the_circle_the_mean_second_derivative_may_be_negative() -> None:
    assert not energy_curvature.every_point_has_a_way_up(2)
    assert energy_curvature.every_point_has_a_way_up(3)
    close = energy_curvature.mean_curvature().subs(
        {energy_curvature.DIMENSION: 2, energy_curvature.C: Rational(9, 10), BETA: 1}
    )
    assert close < 0


def test_the_curvature_of_a_pair_is_that_of_two_points_on_the_circle() -> None:
    """On the circle <a, y> + <x, b> = (t - s) sin, <a, b> = s t cos for speeds s and t."""
    c, s = energy_curvature.C, Symbol("sine")
    first, second = Rational(2), Rational(-3)
    values = {"s": (first - second) * s, "ab": first * second * c, "aa": first**2, "bb": second**2}
    pair = energy_curvature.curvature_of_a_pair().subs(
        {Symbol(name, real=True): value for name, value in values.items()}
    )
    angular = (first - second) ** 2 * exp(BETA * c) * (BETA * s**2 - c)
    assert expand(pair - angular) == 0


def test_a_form_that_is_not_symmetric_is_no_gradient() -> None:
    assert weighted_gradient.differs_from_the_gradient(Matrix([[1, 2], [0, 1]]), 2)
    assert not weighted_gradient.differs_from_the_gradient(Matrix([[1, 2], [2, 1]]), 2)


def test_no_two_tokens_approach_faster_than_the_slope_of_the_field() -> None:
    """Any tokens: the angle of two has a' >= -a under SA. USA at beta = 3 breaks this bound."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 6, 3))
    x[100:] = x[100:, :1] + 0.1 * x[100:]  # half of the starts are near one place
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    cosine = np.clip(x @ x.mT, -1, 1)
    first, second = np.triu_indices(6, 1)
    angle = np.arccos(cosine)[:, first, second]
    rates = []
    for unnormalised in (False, True):
        weights = np.exp(3 * cosine)
        weights /= 6 if unnormalised else weights.sum(axis=-1, keepdims=True)
        m = weights @ cosine
        own = np.diagonal(m, axis1=1, axis2=2)
        change = m + m.mT - (own[:, :, None] + own[:, None, :]) * cosine
        rates.append(-change[:, first, second] / np.sin(angle) / angle)
    assert rates[0].min() >= -1 - 1e-9
    assert rates[1].min() < -10
    assert rates[1].min() >= -np.exp(3)
    assert all(cancel(a - b) == 0 for a, b in map(clustering_rates.excess_of_the_slope, (0, 1)))
