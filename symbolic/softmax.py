"""Derivatives of softmax of every order, and the centred attention matrix in powers of 1/sqrt(n).

Softmax is the gradient of log-sum-exp, which is the cumulant generating function of the one-hot
vector e_J, P(J = i) = s_i = softmax(z)_i, up to a constant. So its derivative of order k is the
joint cumulant of k + 1 coordinates of that vector (McCullagh, Tensor Methods in Statistics, 1987,
chapter 2):

    d^k s_{i_0} / dz_{i_1} ... dz_{i_k} = cum(e_{i_0}, ..., e_{i_k})
        = sum over partitions pi of {0, ..., k} of (-1)^(|pi| - 1) (|pi| - 1)! prod_B E_B,

where E_B = s_i if all indices of the block B equal i, and 0 otherwise. At z = 0, s_i = 1/m.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import factorial
from typing import Any, TypeAlias

from sympy import (
    Expr,
    ImmutableDenseNDimArray,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Rational,
    Symbol,
    diff,
    exp,
    symbols,
)
from sympy.utilities.iterables import multiset_partitions

from symbolic.checks import check_count, check_tokens

Index: TypeAlias = Any
"""A symbol or an integer."""

PROBABILITIES = IndexedBase("s")
"""The softmax values s_i in derivatives at a general point."""


def derivative(output: Index, *inputs: Index) -> Expr:
    """Return the derivative of softmax_output by the coordinates `inputs`, at any z and for any m.

    Indices are symbols or integers (counted from 0). The result is a polynomial in the softmax
    values s[i] and in Kronecker deltas.

    Examples
    --------
    >>> from sympy import symbols
    >>> i, j = symbols("i j", integer=True)
    >>> derivative(i, j)
    KroneckerDelta(i, j)*s[i] - s[i]*s[j]
    """
    return _cumulant((output, *inputs), lambda index: PROBABILITIES[index])


def derivative_at_zero(output: Index, *inputs: Index, tokens: Expr | int | None = None) -> Expr:
    """Return the derivative of softmax_output by the coordinates `inputs` at z = 0, for m tokens.

    `tokens` defaults to the symbol m.

    Examples
    --------
    >>> from sympy import symbols
    >>> i, j = symbols("i j", integer=True)
    >>> derivative_at_zero(i, j)
    KroneckerDelta(i, j)/m - 1/m**2
    >>> derivative_at_zero(0, 0, 1, tokens=3)
    -1/27
    """
    count = Symbol("m", integer=True, positive=True) if tokens is None else tokens
    if isinstance(count, int):
        check_tokens(count)
        for index in (output, *inputs):
            if isinstance(index, int) and not 0 <= index < count:
                raise ValueError(f"index must be an integer in [0, {count}); got {index}")
    return _cumulant((output, *inputs), lambda _index: Integer(1) / count)


def _cumulant(indices: Sequence[Index], probability: Callable[[Index], Expr]) -> Expr:
    total = Integer(0)
    for partition in multiset_partitions(list(range(len(indices)))):
        blocks = len(partition)
        term = Integer((-1) ** (blocks - 1) * factorial(blocks - 1))
        for block in partition:
            first = indices[block[0]]
            term *= probability(first)
            for other in block[1:]:
                term *= KroneckerDelta(first, indices[other])
        total += term
    return total


def derivative_tensor(order: int, tokens: int) -> ImmutableDenseNDimArray:
    """Return all derivatives of order `order` at z = 0: exact numbers, shape (m,) * (order + 1).

    The first axis is the output; the tensor is symmetric in all its axes. A derivative of order k
    is a sum over the partitions of k + 1 indices: 52 at order 4, 21,147 at order 8.

    Raises
    ------
    ValueError
        If `order` is negative or `tokens` is not positive.

    Examples
    --------
    >>> derivative_tensor(1, tokens=2)
    [[1/4, -1/4], [-1/4, 1/4]]
    """
    check_count("order", order, at_least=0)
    check_tokens(tokens)

    # A cumulant depends only on how often each index occurs.
    @cache
    def value(occurrences: tuple[int, ...]) -> Expr:
        indices = [i for i, count in enumerate(occurrences) for _ in range(count)]
        return derivative_at_zero(*indices, tokens=tokens)

    entries = [
        value(tuple(sorted(Counter(indices).values())))
        for indices in product(range(tokens), repeat=order + 1)
    ]
    return ImmutableDenseNDimArray(entries, (tokens,) * (order + 1))


def differentiated_tensor(order: int, tokens: int) -> ImmutableDenseNDimArray:
    """Return the tensor of `derivative_tensor`, by differentiating exp(z_i) / sum_j exp(z_j).

    No cumulants are used; the tests and the ledger of claims compare the two.
    """
    check_count("order", order, at_least=0)
    check_tokens(tokens)
    z = symbols(f"z_1:{tokens + 1}")
    total = sum(exp(entry) for entry in z)
    at_zero = dict.fromkeys(z, 0)
    values: dict[tuple[int, tuple[int, ...]], Expr] = {}
    for output in range(tokens):
        derivatives: dict[tuple[int, ...], Expr] = {(): exp(z[output]) / total}
        for _ in range(order):
            derivatives = {
                (*inputs, i): diff(value, z[i])
                for inputs, value in derivatives.items()
                for i in range(inputs[-1] if inputs else 0, tokens)
            }
        for inputs, value in derivatives.items():
            values[output, inputs] = value.subs(at_zero)
    entries = [
        values[indices[0], tuple(sorted(indices[1:]))]
        for indices in product(range(tokens), repeat=order + 1)
    ]
    return ImmutableDenseNDimArray(entries, (tokens,) * (order + 1))


def softmax_series(
    row: Sequence[Any], order: int, one: Any, centre: Sequence[Any] | None = None
) -> list[list[Any]]:
    """Return the Taylor coefficients in epsilon of softmax(epsilon x + B), orders 0 to `order`.

    `row` holds the k entries of x: numbers, expressions or ring elements (`one` is their unit
    element). `centre` is softmax(B), whose entries sum to 1; None stands for B = 0. The
    coefficients come from the differential equation ds_b / d epsilon = s_b (x_b - sum_c s_c x_c),
    not from the derivative tensors.

    The result is a list over orders of lists over the k entries.
    """
    size = len(row)
    coefficients = [[one * Rational(1, size)] * size if centre is None else list(centre)]
    for degree in range(order):
        means = [_dot(coefficients[j], row) for j in range(degree + 1)]
        step = Rational(1, degree + 1)
        coefficients.append(
            [
                (
                    coefficients[degree][b] * row[b]
                    - _dot([coefficients[degree - j][b] for j in range(degree + 1)], means)
                )
                * step
                for b in range(size)
            ]
        )
    return coefficients


def _dot(left: Sequence[Any], right: Sequence[Any]) -> Any:
    total = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        total = total + a * b
    return total
