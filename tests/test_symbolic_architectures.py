"""Limits of architectures in use: derived ones against independent numbers, with controls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sympy import Matrix, Rational, expand

import symbolic as sy
from symbolic.activations import SmoothMLP
from symbolic.claims import architectures
from symbolic.closed_forms import closed_form_in_words
from symbolic.limit import derive
from tests.ledger import turned

# Attention with a centre.


def test_a_mask_is_a_centre_with_zeros() -> None:
    """The two ways to write a causal mask have one limit, and another centre has another."""
    rows = [[1, 0, 0], [Rational(1, 2), Rational(1, 2), 0], [Rational(1, 3)] * 3]
    tilted = [[1, 0, 0], [Rational(1, 3), Rational(2, 3), 0], [Rational(1, 3)] * 3]
    masked = derive(sy.ShapedAttention(mask="causal"), 3)
    centred = derive(sy.ShapedAttention(centre=rows), 3)
    assert centred.drift_polynomials == masked.drift_polynomials
    assert centred.diffusion_polynomials == masked.diffusion_polynomials
    other = derive(sy.ShapedAttention(centre=tilted), 3)
    assert other.drift_polynomials != masked.drift_polynomials


def test_the_series_starts_from_the_centre() -> None:
    """softmax(epsilon x + B) of numbers, to order epsilon^4; from 1/3 it is another function."""
    x, bias, epsilon = np.array([0.3, -1.0, 0.5]), np.array([0.2, 0.7, -0.4]), 0.05

    def softmax(z: Any) -> Any:
        return np.exp(z) / np.exp(z).sum()

    def summed(centre: Any) -> Any:
        terms = sy.softmax.softmax_series(list(x), 4, 1.0, centre)
        return sum(np.array(term, float) * epsilon**k for k, term in enumerate(terms))

    exact = softmax(epsilon * x + bias)
    assert np.abs(summed(list(softmax(bias))) - exact).max() < 1e-7
    assert np.abs(summed(None) - exact).max() > 1e-2


def test_bad_centres_are_refused() -> None:
    with pytest.raises(ValueError, match="sum to 1; row 1 of 2 entries sums to 2/3"):
        sy.ShapedAttention(centre=[[1, 0], [Rational(1, 3), Rational(1, 3)]])
    with pytest.raises(ValueError, match="mask must be None with a centre"):
        sy.ShapedAttention(mask="causal", centre=[[1, 0], [0, 1]])
    with pytest.raises(ValueError, match=r"centre must have shape \(3, 3\); got \(2, 2\)"):
        derive(sy.ShapedAttention(centre=[[1, 0], [0, 1]]), 3)


def test_words_name_the_centre() -> None:
    words = "\n".join(closed_form_in_words(sy.ShapedAttention(centre=[[1, 0], [0, 1]])))
    assert "w = centre" in words


@pytest.mark.parametrize(
    ("wrong", "key"), [("transported", "centre-moments"), ("second_mean", "centre-limit")]
)
def test_a_wrong_moment_is_seen(wrong: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the stated matrix doubled."""
    right = getattr(architectures, wrong)
    monkeypatch.setattr(architectures, wrong, lambda *arguments: 2 * right(*arguments))
    assert turned(key)


def test_rotations_without_an_angle_change_nothing() -> None:
    """At theta = 0 the rotary drift is that of plain attention; at a quarter turn it is not."""
    block = architectures.RotaryAttention(1, gamma=1, tau0=1)
    plain = derive(sy.ShapedAttention(gamma=1, tau0=1), 2).drift
    drift = derive(block, 2).drift

    def turned(cosine: int, sine: int) -> Matrix:
        point = {
            architectures.COSINES[0]: cosine,
            architectures.SINES[0]: sine,
            architectures.SHARE: 1,
        }
        return (drift.subs(point) - plain).applyfunc(expand)

    assert turned(1, 0).is_zero_matrix
    assert not turned(0, 1).is_zero_matrix


def test_a_rotation_by_position_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: all positions turned by the same angle have r = 1."""
    right = architectures.multiple
    monkeypatch.setattr(
        architectures, "multiple", lambda c, s, count, one: right(c, s, min(count, 1), one)
    )
    assert turned("rotary-scores")


def test_a_wrong_kernel_of_unit_vectors_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: d/2 in place of d/2 + 1 in the series."""
    right = architectures.stated_coefficient

    def wrong(j: int) -> Any:
        return right(j) * (1 + 2 * j / architectures.D)

    monkeypatch.setattr(architectures, "stated_coefficient", wrong)
    assert turned("qk-norm-kernel")


def test_a_wrong_rate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the squares of the branches' shares without their product."""
    right = architectures.stated_rate

    def wrong(algebra: Any, projected: bool) -> Any:
        gains = [algebra[gamma] ** 2 for gamma in architectures.WEIGHTS]
        return right(algebra, projected) - 2 * gains[0] * gains[1]

    monkeypatch.setattr(architectures, "stated_rate", wrong)
    assert turned("linear-rate")


# Smooth activations.


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the stated drifts 1/100 off."""
    for name, key in (("smooth_drift", "smooth-limit"), ("gate_drift", "gate-limit")):
        right = getattr(architectures, name)
        monkeypatch.setattr(architectures, name, lambda *a, f=right: Rational(99, 100) * f(*a))
        assert turned(key)


def test_explosion_needs_a_positive_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with the sign of the drift reversed the verdict turns."""
    right = architectures.drift
    monkeypatch.setattr(architectures, "drift", lambda ratio: -right(ratio))
    assert turned("smooth-explosion")


def test_smooth_blocks_have_no_second_order() -> None:
    with pytest.raises(ValueError, match="expanded to order 1/n only; got order=2"):
        sy.drift_correction(SmoothMLP(), 1)
