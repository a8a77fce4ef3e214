"""The slides from line 186 on: wrong formulas change the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sympy import Matrix, Rational, Symbol, cancel, exp, expand, eye

from symbolic.claims import bilinear_forms, clustering, particles
from symbolic.claims.particles import BETA
from tests.ledger import turned

WRONG: list[tuple[str, Any, str, Callable[[Any], Any]]] = [
    (
        "self-attention-matrix-form",
        bilinear_forms,
        "printed_form_exists",
        lambda _right: lambda rows, transposed: rows and not transposed,
    ),
    (
        "self-attention-matrix-form",
        bilinear_forms,
        "entries_agree",
        lambda right: lambda: right(transposed=False),
    ),
    (
        "self-attention-components",
        bilinear_forms,
        "softmax_row",
        lambda _right: lambda exponentials: exponentials,
    ),
    (
        "layer-norm-as-unit-norm",
        bilinear_forms,
        "layer_norm",
        lambda right: lambda x, centred: right(x, centred=False),
    ),
    (
        "sphere-invariant",
        bilinear_forms,
        "coefficients_of_a_step",
        lambda right: lambda length: right(length + 1),
    ),
    (
        "empirical-measure-form",
        particles,
        "empirical_field",
        lambda _right: lambda count, moved, total: moved / count / total,
    ),
    ("field-is-tangent", particles, "field_at", lambda _right: lambda x, _places: x),
    (
        "continuity-equation-on-the-sphere",
        particles,
        "defect_of_the_density",
        lambda right: lambda sign: right(-sign),
    ),
    (
        "energy-rate-increases",
        particles,
        "two_token_rate",
        lambda right: lambda: (-right()[0], right()[1]),
    ),
    (
        "energy-decreases-when-repelling",
        particles,
        "energy_rate",
        lambda right: lambda count, unnormalised, value: right(count, unnormalised),
    ),
    (
        "energy-minimiser",
        particles,
        "gegenbauer_coefficient",
        lambda right: lambda k, j: right(k, j) * (k + 1),
    ),
    (
        "energy-minimiser",
        particles,
        "fourier_coefficient",
        lambda right: lambda k, j: right(k, j) * (-1) ** j,
    ),
    (
        "energy-maximisers",
        particles,
        "kernel_below_its_maximum",
        lambda right: lambda: right() + BETA,
    ),
    (
        "softmax-average-forms",
        particles,
        "gradient_of_logarithm",
        lambda right: lambda scale: [entry + 1 for entry in right(scale)],
    ),
    ("sa-is-no-l2-gradient", particles, "sa_kernel", lambda _right: particles.usa_kernel),
    ("spherical-gradient", particles, "tangential", lambda _right: lambda _x, slopes: slopes),
    ("usa-is-the-gradient", particles, "first_variation", lambda _right: lambda kernel: kernel),
    (
        "sinkformer-removes-the-denominator",
        particles,
        "_potential_derivative",
        lambda _right: lambda: False,
    ),
    (
        "usa-continuity-equation",
        particles,
        "projected",
        lambda _right: lambda x, y: x * y if not isinstance(y, Matrix) else y - x.dot(y) * x,
    ),
    (
        "weighted-gradient-exercise",
        particles,
        "normaliser",
        lambda right: lambda tokens, _value: right(tokens, eye(2)),
    ),
    (
        "sa-is-a-weighted-gradient",
        particles,
        "SYMMETRIC",
        lambda right: right + Matrix([[0, 1], [0, 0]]),
    ),
    (
        "rate-of-convergence",
        clustering,
        "linear_rate",
        lambda right: lambda unnormalised: right(unnormalised) * exp(-BETA),
    ),
    (
        "collapse-in-finite-time",
        clustering,
        "rate_of_the_cosine",
        lambda right: lambda unnormalised: 2 * right(unnormalised),
    ),
    (
        "collapse-in-finite-time",
        clustering,
        "derivatives_on_a_circle",
        lambda right: lambda kernel, gap, along: right(kernel, 2 * gap, along),
    ),
    ("index-of-the-token", clustering, "projected_mean", lambda right: lambda _i: right(0)),
    (
        "one-cluster-at-beta-zero",
        clustering,
        "curvature_of_one_token",
        lambda right: lambda: -right(),
    ),
    (
        "one-cluster-at-small-beta",
        clustering,
        "curvature_of_one_token",
        lambda right: lambda: right() + BETA,
    ),
    (
        "one-cluster-at-large-beta",
        clustering,
        "curvature_on_the_circle",
        lambda right: lambda: right() * 2,
    ),
    (
        "one-cluster-in-three-dimensions",
        clustering,
        "every_point_has_a_way_up",
        lambda right: lambda dimension: right(dimension - 1),
    ),
    ("lojasiewicz", clustering, "lojasiewicz_ratio", lambda _right: lambda _place: Rational(0)),
    (
        "figure-3-any-pair",
        clustering,
        "is_equivariant",
        lambda right: lambda causal: right(causal=True),
    ),
    (
        # Only pairs of tokens that are all in one cluster count.
        "figure-3-single-point",
        clustering,
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
    right = clustering.velocity
    monkeypatch.setattr(clustering, "velocity", lambda x, other, u: right(x, other, u) + x)
    with pytest.raises(ArithmeticError, match="do not move as"):
        clustering.linear_rate(unnormalised=False)


def test_on_the_circle_the_mean_second_derivative_may_be_negative() -> None:
    assert not clustering.every_point_has_a_way_up(2)
    assert clustering.every_point_has_a_way_up(3)
    close = clustering.mean_curvature().subs(
        {clustering.DIMENSION: 2, clustering.C: Rational(9, 10), BETA: 1}
    )
    assert close < 0


def test_the_curvature_of_a_pair_is_that_of_two_points_on_the_circle() -> None:
    """On the circle <a, y> + <x, b> = (t - s) sin, <a, b> = s t cos for speeds s and t."""
    c, s = clustering.C, Symbol("sine")
    first, second = Rational(2), Rational(-3)
    values = {"s": (first - second) * s, "ab": first * second * c, "aa": first**2, "bb": second**2}
    pair = clustering.curvature_of_a_pair().subs(
        {Symbol(name, real=True): value for name, value in values.items()}
    )
    angular = (first - second) ** 2 * exp(BETA * c) * (BETA * s**2 - c)
    assert expand(pair - angular) == 0


def test_a_form_that_is_not_symmetric_is_no_gradient() -> None:
    assert particles.differs_from_the_gradient(Matrix([[1, 2], [0, 1]]), 2)
    assert not particles.differs_from_the_gradient(Matrix([[1, 2], [2, 1]]), 2)


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
    assert all(cancel(a - b) == 0 for a, b in map(clustering.excess_of_the_slope, (0, 1)))
