"""The exact laws of explosion in the ledger: each check refutes a wrong coefficient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from sympy import Rational, Symbol

from symbolic.algebra import symbolic_covariance
from symbolic.blocks import ShapedAttention
from symbolic.claims import explosion
from symbolic.claims.explosion import (
    GAP,
    PULL,
    RATIO,
    SHARE,
    LiveToken,
    at_live_token,
    has_law,
    one_live_token,
    two_tokens,
)
from symbolic.series import HALF
from tests.ledger import turned

NEARLY = Rational(99, 100)


@pytest.mark.parametrize("name", ["alpha", "delta", "rate"])
def test_a_wrong_coefficient_of_two_tokens_is_seen(name: str) -> None:
    right = two_tokens(2)
    assert has_law(ShapedAttention(heads=2), right, GAP)
    assert not has_law(
        ShapedAttention(heads=2), replace(right, **{name: NEARLY * getattr(right, name)}), GAP
    )


def test_two_tokens_under_a_mask_have_no_equation_for_u_alone() -> None:
    assert not has_law(ShapedAttention(mask="causal"), two_tokens(1), GAP)


def test_groups_of_tokens_need_full_attention() -> None:
    """Negative control: under a causal mask copies of a token see different numbers of tokens."""
    assert explosion.repeats(2, ShapedAttention())
    assert not explosion.repeats(2, ShapedAttention(mask="causal"))


@pytest.mark.parametrize("name", ["alpha", "delta", "rate"])
def test_a_wrong_coefficient_of_one_live_token_is_seen(name: str) -> None:
    value, right = symbolic_covariance(1)[0, 0], one_live_token(SHARE, 1)
    assert has_law(LiveToken(), right, value, 1)
    assert not has_law(
        LiveToken(), replace(right, **{name: NEARLY * getattr(right, name)}), value, 1
    )


def test_the_live_token_counts_those_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: one token more in its row."""
    three = Rational(3)
    assert explosion.live_token_holds(3, 1, "causal", three)
    right = one_live_token
    monkeypatch.setattr(explosion, "one_live_token", lambda p, heads: right(1 / (1 / p + 1), heads))
    assert not explosion.live_token_holds(3, 1, "causal", three)
    assert not explosion.live_token_holds(3, 1, None, three)


def test_a_wrong_rate_of_the_mlp_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explosion, "MLP_GAMMA", 2 * explosion.MLP_GAMMA)
    assert turned("explosion-live-token-mlp")


@pytest.mark.parametrize("name", ["alpha", "delta", "rate"])
def test_a_wrong_law_of_the_rest_of_v_is_seen(name: str) -> None:
    wrong = replace(two_tokens(1), **{name: NEARLY * getattr(two_tokens(1), name)})
    assert not explosion.rest_of_two_tokens(ShapedAttention(), wrong)
    assert not explosion.determinant_holds(ShapedAttention(), wrong)


def test_wrong_scale_densities_are_seen() -> None:
    law = explosion
    assert law.solves_scale_equation(law.scale_slope())
    assert not law.solves_scale_equation(law.scale_slope(PULL + HALF))
    assert not law.solves_scale_equation(NEARLY * law.scale_slope())


def test_wrong_parameters_of_the_probability_are_seen() -> None:
    slope = explosion.scale_slope()
    right = (HALF + PULL, RATIO - HALF)
    for wrong in (right[::-1], (HALF, RATIO - HALF), (HALF + PULL, RATIO), (1 + PULL, RATIO - 1)):
        assert explosion.beta_slope(*right).equals(slope)
        assert not explosion.beta_slope(*wrong).equals(slope)


def test_a_wrong_number_of_degrees_of_freedom_is_seen() -> None:
    slope = explosion.scale_slope(PULL * 0)
    assert explosion.student_slope(2 * RATIO - 1).equals(slope)
    assert not explosion.student_slope(2 * RATIO).equals(slope)


@pytest.mark.parametrize(
    "key",
    [
        "explosion-scale",
        "explosion-lamperti",
        "explosion-pearson",
        "explosion-inverse-square",
        "explosion-time",
    ],
)
@pytest.mark.parametrize("name", ["DRIFT", "VARIATION"])
def test_another_equation_of_u_changes_the_verdict(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: drift or squared noise 1 percent too small."""
    wrong = NEARLY * getattr(explosion, name)
    monkeypatch.setattr(explosion, name, wrong)
    if name == "VARIATION":
        monkeypatch.setattr(explosion, name, wrong)
    assert turned(key)


def test_another_scale_changes_the_test_of_feller(monkeypatch: pytest.MonkeyPatch) -> None:
    right = explosion.scale_slope
    monkeypatch.setattr(explosion, "scale_slope", lambda: NEARLY * right())
    for key in ("explosion-feller", "explosion-probability"):
        assert turned(key), key


def test_another_ratio_changes_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the noise of the scores twice as strong."""
    right = two_tokens
    monkeypatch.setattr(explosion, "two_tokens", lambda heads: right(heads / 2))
    for key in ("explosion-threshold", "explosion-student"):
        assert turned(key), key


def test_the_mean_of_the_logarithm_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: at a = 1/4 the corrected statement does not hold."""
    monkeypatch.setattr(explosion, "HALF", Rational(1, 4))
    assert turned("explosion-mean-log")


def test_wrong_hypergeometric_functions_are_seen() -> None:
    kappa = Symbol("kappa", positive=True)
    second, third = kappa + 1 - RATIO - PULL, 2 * kappa + HALF - PULL
    assert explosion.solves_killed_equation(kappa, second, third, kappa)
    for wrong in (
        (kappa, second + 1, third),
        (kappa, second, third + PULL),
        (kappa + 1, second, third),
    ):
        assert not explosion.solves_killed_equation(*wrong, kappa)


def test_the_pull_of_the_mlp_is_sharp() -> None:
    assert explosion.pull_is_bounded(explosion.BOUND_ON_PULL)
    assert not explosion.pull_is_bounded(NEARLY * explosion.BOUND_ON_PULL)


def test_another_mlp_changes_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explosion, "SHAPE", 2 * explosion.SHAPE)
    assert turned("explosion-mlp-bounds")


def test_a_smaller_erf_is_no_bound() -> None:
    """Negative controls: a smaller argument, and a growth below that of one live token."""
    m = Symbol("m", positive=True)
    argument = explosion.erf_argument(m)
    assert explosion.is_concave_scale(argument, m)
    assert not explosion.is_concave_scale(NEARLY * argument, m)
    live = at_live_token(2, 0, Rational(1))
    assert explosion.drift_is_below(Rational(1, 16), live)
    assert not explosion.drift_is_below(Rational(1, 17), live)


def test_wrong_traces_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explosion.trace_formulas_hold(2)
    monkeypatch.setattr(explosion, "linear_rate", lambda: 2 * explosion.GAMMA**2)
    assert not explosion.trace_formulas_hold(2)


def test_wrong_causal_equations_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explosion.causal_equations_hold(2)
    monkeypatch.setattr(explosion, "two_tokens", lambda heads: two_tokens(heads + 1))
    assert not explosion.causal_equations_hold(2)


def test_leading_blocks_need_a_causal_mask() -> None:
    assert explosion.leading_block_is_autonomous(3, "causal")
    assert not explosion.leading_block_is_autonomous(3, None)


def test_without_its_counterexample_the_threshold_is_not_refuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: with the noise of the scores twice as strong, a <= 1/2 at m = 3."""
    monkeypatch.setattr(
        explosion, "one_live_token", lambda p, heads: one_live_token(p, heads / Rational(2))
    )
    assert turned("explosion-threshold-many-tokens")


@pytest.mark.parametrize("y", [0.3, 1.0, 4.0])
def test_the_mean_of_the_logarithm_by_quadrature_of_the_resolvent(y: float) -> None:
    """At a = 1/2: E log sinh y_tau, tau of rate 2 k, from the resolvent density, to 1e-8.

    y is in its natural scale with generator k sinh^2 y d^2/dy^2; the increasing solution of
    L f = 2 k f is y coth y - 1, the decreasing one coth y, their Wronskian is 1. The law that
    ignores the entrance from infinity is off by y coth y - 1, at least 0.029.
    """

    def up(x: float) -> float:
        return x / np.tanh(x) - 1

    def weight(x: float) -> float:
        return 2 * np.log(np.sinh(x)) / np.sinh(x) ** 2

    lower = integrate.quad(lambda x: up(x) * weight(x), 0, y, epsabs=1e-11)[0]
    upper = integrate.quad(lambda x: weight(x) / np.tanh(x), y, 40, epsabs=1e-11)[0]
    mean = lower / np.tanh(y) + upper * up(y)
    naive = np.log(np.sinh(y)) - 0.5
    assert mean == pytest.approx(naive - up(y), abs=1e-8)
    assert naive - mean > 0.029
