"""One layer as an exact function of V and of centred noise, expanded in s = 1 / sqrt n.

A block that adds its branch to V is a `Recursion`. A normalised one is a quotient of such sums.
Write V' as a function of s, with a noise symbol of order s for each random term. Its Taylor
coefficients at s = 0, averaged over the noise, are mean and covariance of a layer to order 1/n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from sympy import Expr, Integer, Poly, Symbol, diff, factorial, simplify

from symbolic.checks import check_count
from symbolic.gaussian import isserlis

STEP = Symbol("s", positive=True)
"""1 / sqrt n, the square root of the time of a layer."""

Covariance = Callable[[Symbol, Symbol], Expr]


def layer_orders(image: Expr, order: int = 2) -> list[Expr]:
    """Return the Taylor coefficients of `image` in `STEP` at 0, orders 0 to `order`.

    Examples
    --------
    >>> x = Symbol("x")
    >>> layer_orders(1 / (1 + STEP * x))
    [1, -x, x**2]
    """
    coefficients = []
    for power in range(check_count("order", order, at_least=0) + 1):
        coefficients.append(simplify(image.subs(STEP, 0) / factorial(power)))
        image = diff(image, STEP)
    return coefficients


def average(expression: Expr, noises: Sequence[Symbol], covariance: Covariance) -> Expr:
    """Return the expectation of a polynomial in centred jointly Gaussian `noises`.

    Up to degree two only mean and covariance matter, and the noises need not be Gaussian.

    Examples
    --------
    >>> x, y = Symbol("x"), Symbol("y")
    >>> average((x + 2) * (x + y), [x, y], lambda a, b: Symbol(f"C_{a}{b}"))
    C_xx + C_xy
    """
    total: Expr = Integer(0)
    for powers, coefficient in Poly(expression, *noises).terms():
        labels = list(chain.from_iterable([x] * p for x, p in zip(noises, powers, strict=True)))
        total += coefficient * isserlis(labels, covariance)
    return total
