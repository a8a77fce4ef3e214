"""Derivative tensors of softmax and the expansion of the attention matrix."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sympy import Integer, Poly, Rational, Symbol, diff, exp, factorial, simplify, symbols

import symbolic as sy
from symbolic.softmax import PROBABILITIES, softmax_series


@pytest.mark.parametrize(("order", "tokens"), [(1, 2), (2, 3), (3, 3), (4, 5)])
def test_the_cumulant_tensor_is_what_differentiation_gives(tokens: int, order: int) -> None:
    """Exact, all entries: two derivations that share no line.

    Five tokens have five different indices, as many as a tensor of order 4.
    """
    assert sy.derivative_tensor(order, tokens) == sy.differentiated_tensor(order, tokens)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_formula_for_any_m_gives_the_tensors(order: int) -> None:
    """Kronecker deltas in symbolic indices and symbolic m, then numbers for both."""
    names = symbols(f"i_0:{order + 1}", integer=True)
    formula = sy.derivative_at_zero(*names)
    tokens = 3
    tensor = sy.differentiated_tensor(order, tokens)
    m = Symbol("m", integer=True, positive=True)
    for indices in product(range(tokens), repeat=order + 1):
        value = formula.subs(m, tokens).subs(dict(zip(names, indices, strict=True)))
        assert value == tensor[indices]


def test_derivatives_at_a_general_point() -> None:
    """Against differentiation at a rational point of exp(z), so in exact arithmetic."""
    tokens = 3
    z = symbols(f"z_0:{tokens}")
    weights = (Integer(1), Integer(2), Rational(1, 3))
    total = sum(exp(entry) for entry in z)
    at_point = {exp(entry): weight for entry, weight in zip(z, weights, strict=True)}
    s = [weight / sum(weights) for weight in weights]
    values = {PROBABILITIES[i]: s[i] for i in range(tokens)}
    for order in (1, 2, 3):
        for indices in product(range(tokens), repeat=order + 1):
            direct = exp(z[indices[0]]) / total
            for i in indices[1:]:
                direct = diff(direct, z[i])
            assert sy.derivative(*indices).subs(values) == direct.subs(at_point)


@pytest.mark.parametrize(
    ("mask", "rows"),
    [
        (None, [(0, 1, 2)] * 3),
        ("causal", [(0,), (0, 1), (0, 1, 2)]),
        ([[1, 0, 1], [0, 1, 0], [1, 1, 1]], [(0, 2), (1,), (0, 1, 2)]),
    ],
)
def test_the_expansion_is_the_taylor_series_of_the_attention_matrix(
    mask: Any, rows: list[tuple[int, ...]]
) -> None:
    """Weights times the sum of exp(epsilon G / tau_0) are one of its terms, to order epsilon^4."""
    tokens, order = 3, 4
    epsilon, tau = Symbol("epsilon"), Symbol("tau_0", positive=True)
    terms = sy.expand_attention(tokens, order, mask)
    for a, columns in enumerate(rows):
        scores = [epsilon * Symbol(f"G[{a},{c}]") / tau for c in range(tokens)]
        powers = [sum(x**k / factorial(k) for k in range(order + 1)) for x in scores]
        total = sum(powers[c] for c in columns)
        for b in range(tokens):
            ours = sum(matrix[a, b] * epsilon ** (2 * power) for power, matrix in terms.items())
            weight = ours - int(a == b) + Rational(b in columns, len(columns))
            difference = weight * total - (powers[b] if b in columns else 0)
            coefficients = Poly(difference, epsilon).all_coeffs()[::-1]
            assert all(simplify(x) == 0 for x in coefficients[: order + 1])


def test_the_term_for_any_m_is_the_term_for_three() -> None:
    """Row means mu_j replaced by means of three scores."""
    tau = Symbol("tau_0", positive=True)
    row = [Symbol(f"G[0,{b}]") / tau for b in range(3)]
    terms = sy.expand_attention(3, 4)
    for degree in (1, 2, 3, 4):
        formula = sy.taylor_term(degree)
        means = {
            symbol: sum(x ** symbol.indices[0] for x in row) / 3
            for symbol in formula.atoms(type(PROBABILITIES[0]))
        }
        m = Symbol("m", positive=True, integer=True)
        value = formula.subs(means).subs({Symbol("x"): row[1], m: 3})
        assert (value - terms[Rational(degree, 2)][0, 1]).expand() == 0


def test_the_series_starts_from_a_centre() -> None:
    """softmax(epsilon x + B) of numbers, to order epsilon^4; from 1/3 it is another function."""
    x, bias, epsilon = np.array([0.3, -1.0, 0.5]), np.array([0.2, 0.7, -0.4]), 0.05

    def softmax(z: Any) -> Any:
        return np.exp(z) / np.exp(z).sum()

    def summed(centre: Any) -> Any:
        terms = softmax_series(list(x), 4, 1.0, centre)
        return sum(np.array(term, float) * epsilon**k for k, term in enumerate(terms))

    exact = softmax(epsilon * x + bias)
    assert np.abs(summed(list(softmax(bias))) - exact).max() < 1e-7
    assert np.abs(summed(None) - exact).max() > 1e-2
