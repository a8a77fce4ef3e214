"""Moments: pairings against integration, generating functions and numbers."""

from __future__ import annotations

from itertools import product

import pytest
from sympy import (
    Integer,
    Rational,
    Symbol,
    acos,
    diff,
    exp,
    expand,
    pi,
    simplify,
    sqrt,
    symbols,
)

import symbolic as sy
from symbolic.gaussian import pairings, relu_kernel_orders


def v(a: int, b: int) -> Symbol:
    return Symbol(f"V_{min(a, b)}{max(a, b)}")


def test_pairings_are_all_and_distinct() -> None:
    assert [len(set(pairings(n))) for n in range(9)] == [1, 0, 1, 0, 3, 0, 15, 0, 105]


@pytest.mark.parametrize("labels", [(0, 1), (0, 0, 1, 1), (0, 0, 0, 1, 1, 2), (0,)])
def test_isserlis_is_the_derivative_of_the_generating_function(labels: tuple[int, ...]) -> None:
    """E prod g = the derivatives at 0 of exp(t^T V t / 2)."""
    t = symbols("t_0:3")
    form = sum(v(a, b) * t[a] * t[b] for a in range(3) for b in range(3)) / 2
    value = exp(form)
    for label in labels:
        value = diff(value, t[label])
    assert expand(value.subs(dict.fromkeys(t, 0)) - sy.isserlis(labels, v)) == 0


def test_score_moments_at_any_key_size() -> None:
    """Summing n_k = 2 columns by hand; the Gaussian limit; the covariance at every n_k."""
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    by_hand = Integer(0)
    for columns in product(range(2), repeat=4):
        queries = [(a, k) for (a, _), k in zip(pairs, columns, strict=True)]
        keys = [(b, k) for (_, b), k in zip(pairs, columns, strict=True)]

        def covariance(x: tuple[int, int], y: tuple[int, int]) -> object:
            return v(x[0], y[0]) if x[1] == y[1] else Integer(0)

        by_hand += sy.isserlis(queries, covariance) * sy.isserlis(keys, covariance)
    assert expand(by_hand / 4 - sy.score_moment(pairs, v, key_size=2)) == 0
    gaussian = sy.isserlis(pairs, lambda x, y: v(x[0], y[0]) * v(x[1], y[1]))
    assert expand(sy.score_moment(pairs, v) - gaussian) == 0
    assert sy.score_moment([(0, 1), (2, 3)], v, key_size=5) == v(0, 2) * v(1, 3)


def test_the_half_gaussian_moment_at_known_angles() -> None:
    """rho = 1: E max(g, 0)^2 = 1/2; independent: (E max(g, 0))^2 = 1 / (2 pi); rho = -1: 0."""
    assert sy.half_gaussian_moment(Integer(0)) == Rational(1, 2)
    assert sy.half_gaussian_moment(pi / 2) == 1 / (2 * pi)
    assert sy.half_gaussian_moment(pi) == 0


def test_the_exact_kernel_is_the_closed_form() -> None:
    """rho + 2 (s_+ - s_-)^2 / (s_+^2 + s_-^2) (sqrt(1 - rho^2) - rho arccos rho) / (2 pi)."""
    rho, p, q = symbols("rho s_p s_m")
    function = (sqrt(1 - rho**2) - rho * acos(rho)) / (2 * pi)
    closed = rho + 2 * (p - q) ** 2 / (p**2 + q**2) * function
    assert simplify(sy.shaped_relu_kernel(rho, p, q) - closed) == 0
    wrong = rho + 2 * (p + q) ** 2 / (p**2 + q**2) * function
    assert simplify(sy.shaped_relu_kernel(rho, p, q) - wrong) != 0


def test_nu_and_the_next_order() -> None:
    rho, p, q = symbols("rho c_p c_m")
    function = (sqrt(1 - rho**2) - rho * acos(rho)) / (2 * pi)
    assert simplify(sy.nu(rho, p, q) - (p - q) ** 2 * function) == 0
    orders = relu_kernel_orders(rho, p, q, 3)
    assert orders[0] == rho
    assert orders[1] == 0
    assert simplify(orders[3] + (p - q) ** 2 * (p + q) * function) == 0
