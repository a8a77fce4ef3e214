"""Claims on random heads and random MLPs: each has a wrong formula that its check rejects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import hermite_e
from sympy import Integer, Poly, Symbol, diff, expand, lambdify, sinh

from symbolic.claims import random_layers
from symbolic.claims.random_layers import A, B, D, K, R
from tests.ledger import turned


def _squared(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda r, s, *of: right(r, s, *of) + s[0, 1] ** 2


def _other_dimension(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: right(*arguments).subs(D, D + 1)


WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "random-heads-scores": (
        "score_moment",
        lambda right: lambda width, indices: width ** (len(indices) // 2) * right(width, indices),
    ),
    "random-mlp-kernel": ("half_gaussian_moment", lambda right: lambda angle: 2 * right(angle)),
    "random-mlp-two-tokens": ("MLP_SLOPE", lambda right: right.subs(D, D + 1)),
    "random-mlp-synchronises": ("MLP_SLOPE", lambda right: right - R),
    "random-mlp-attention": (
        "of_two_tokens",
        lambda right: lambda s: (right(s)[0], 2 * right(s)[1]),
    ),
    "random-mlp-antipode": ("MLP_SLOPE", lambda right: right + B**2),
}


@pytest.mark.parametrize("key", WRONG)
def test_wrong_formulas_are_seen(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that are not divided by sqrt k, twice a kernel or a bracket, another slope."""
    name, wrong = WRONG[key]
    monkeypatch.setattr(random_layers, name, wrong(getattr(random_layers, name)))
    assert turned(key)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("random-weights-mean", _squared), ("random-mlp-two-tokens", _other_dimension)],
)
@pytest.mark.parametrize("name", ["drift", "bracket"])
def test_another_law_of_the_gram_matrix_is_seen(
    key: str, wrong: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A term in the square of S, or d + 1 in place of d, in the drift or the bracket."""
    monkeypatch.setattr(random_layers, name, wrong(getattr(random_layers, name)))
    assert turned(key)


def test_another_polynomial_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hermite polynomials of physicists, He_n(sqrt 2 x) 2^(n / 2), are not orthogonal here."""
    monkeypatch.setattr(random_layers, "next_hermite", lambda f, u: expand(2 * u * f - diff(f, u)))
    assert turned("random-mlp-kernel")


def test_the_step_from_one_polynomial_to_the_next_is_their_definition() -> None:
    """numpy's He_1 to He_9 follow from He_0 = 1."""
    u = Symbol("u")
    polynomial = Integer(1)
    for order in range(10):
        known = hermite_e.herme2poly([0.0] * order + [1.0])
        assert Poly(polynomial, u).all_coeffs()[::-1] == [Integer(round(c)) for c in known]
        polynomial = random_layers.next_hermite(polynomial, u)


def test_coefficients_that_do_not_vanish_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without integration by parts, and a fourth moment without pairs."""
    for key, name, wrong in (
        ("random-mlp-kernel", "by_parts", lambda f, u: f),
        ("random-heads-scores", "moments_of_a_sum", lambda second, fourth, n: (second, fourth / n)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(random_layers, name, wrong)
            assert turned(key)


def test_a_kernel_that_does_not_vanish_at_the_end_is_refused() -> None:
    """Both differences must vanish at r = 1, and K must exceed A for a last dimension."""
    with pytest.raises(ArithmeticError, match="vanish"):
        random_layers._at_one(random_layers.MLP_SLOPE.subs(A, 2 * A))
    with pytest.raises(ArithmeticError, match="no such dimension"):
        random_layers.last_dimension(1 + sinh(R) / 10)


def test_the_kernel_of_sin_is_that_of_normals() -> None:
    """kappa(r) = sinh(r) / e by quadrature in the plane, and g at r = 1 from its two values."""
    x = np.arange(-9.0, 9.001, 0.05)
    mass = np.exp(-0.5 * x * x) * 0.05 / math.sqrt(2.0 * math.pi)
    for r in (-1.0, 0.3, 1.0):
        v = r * x[:, None] + math.sqrt(1.0 - r * r) * x
        mean = mass @ (np.sin(x)[:, None] * np.sin(v)) @ mass
        assert mean == pytest.approx(math.sinh(r) / math.e, abs=1e-13)
    g = lambdify((D, R, A, B), random_layers.MLP_SLOPE)
    near = 1.0 - 1e-5
    value, slope = math.sinh(1.0) / math.e, math.cosh(1.0) / math.e
    end = lambdify((D, A, K), random_layers._at_one(random_layers.MLP_SLOPE))
    for dimension in (9, 10):
        known = end(dimension, value, slope)
        assert (known > 0.0) == (dimension == 9)
        assert g(dimension, near, value, math.sinh(near) / math.e) == pytest.approx(known, abs=1e-3)
