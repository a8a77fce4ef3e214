"""MLPs with a smooth activation phi, shaped by the width: s = a sqrt n.

The kernel E phi_s(g_a) phi_s(g_b), g ~ N(0, V), is expanded in Gaussian moments of the Taylor terms
of phi, whose term of degree i has order s^-i relative to the term of degree 0. The factor 1/c is
its value for V_aa = V_bb = V_ab = 1. The expansion holds if the derivatives of phi grow at most
like polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import factorial
from typing import Any

from sympy import Expr, Matrix, Rational, Symbol

from symbolic.algebra import Algebra, Field, Pair, Poly
from symbolic.blocks import gram_covariance, parameter, weight
from symbolic.gaussian import isserlis
from symbolic.recursion import Block, Recursion, skip_only
from symbolic.series import HALF, Series

SECOND = Symbol("p_2", real=True)
"""p_2 = phi''(0) / phi'(0)."""

THIRD = Symbol("p_3", real=True)
"""p_3 = phi'''(0) / phi'(0)."""

GATE_SLOPE = Symbol("r_1", real=True)
"""r_1 = phi'(beta) / phi(beta)."""

GATE_CURVATURE = Symbol("r_2", real=True)
"""r_2 = phi''(beta) / phi(beta)."""


class SmoothMLP(Block):
    """Block ``X' = lambda X + gamma sqrt(c / d_ff) phi_s(X W / sqrt n) W_post``, smooth phi.

    phi_s(x) = s phi(x / s) with phi(0) = 0, so phi_s / phi'(0) = x + p_2 x^2 / (2 s) + ... The
    fluctuation of d_ff columns is that of a Gram matrix to leading order, because this tends to x.

    Parameters
    ----------
    gamma, a, p2, p3
        Symbols or rational numbers; lambda^2 = 1 - gamma^2.
    ratio
        n / d_ff.
    normalised
        Whether the branch has the factor c; without it, it is divided by phi'(0)^2.
    """

    gated = False

    def __init__(
        self,
        gamma: Any = "gamma",
        a: Any = "a",
        p2: Any = SECOND,
        p3: Any = THIRD,
        ratio: Any = 1,
        normalised: bool = True,
    ) -> None:
        self.gamma = weight(gamma)
        self.inverse_a = 1 / parameter("a", a, positive=True)
        self.taylor = (parameter("p2", p2), parameter("p3", p3))
        self.ratio = parameter("ratio", ratio, at_least=0)
        self.normalised = normalised
        self.hidden = Field("N", self._hidden_covariance)
        self.fields = (self.hidden,)

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters that are symbols."""
        every = (self.gamma, self.inverse_a, *self.taylor, self.ratio)
        return [expression for expression in every if not expression.is_number]

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and branch gamma^2 (kernel + N / sqrt n)."""
        if order > 1:
            raise ValueError(f"the MLP is expanded to order 1/n only; got order={order}")
        gain, tokens = algebra[self.gamma] ** 2, range(algebra.tokens)

        def covariance(a: int, b: int) -> Poly:
            return algebra.entry(algebra.v, a, b)

        kernel = [[self._kernel(algebra, covariance, a, b) for b in tokens] for a in tokens]
        if self.normalised:
            one, first, second = self._kernel(algebra, lambda _x, _y: algebra.ring.one, 0, 0)
            inverse = [one, -first, first**2 - second]
            kernel = [[_product(inverse, orders) for orders in row] for row in kernel]
        branch = Series({HALF: algebra.field(self.hidden)}, order)
        for power in range(3):
            rows = [[orders[power] for orders in row] for row in kernel]
            branch += Series({power * HALF: algebra.matrix(rows)}, order)
        return Recursion(skip_only(algebra, 1 - gain, order), branch * gain)

    def _kernel(
        self, algebra: Algebra, covariance: Callable[[int, int], Poly], a: int, b: int
    ) -> list[Poly]:
        """Return the orders n^0, n^(-1/2), n^(-1) of the kernel, divided by the leading factor."""
        ring = algebra.ring
        derivatives = [algebra[1], *(algebra[value] for value in self.taylor)]
        # The leading term of phi_s is of degree 1 without a gate, and of degree 0 with one.
        lowest = 0 if self.gated else 1
        orders = [ring.zero] * 3
        for i, j in product(range(len(derivatives)), repeat=2):
            if i + j <= 2:
                degrees = i + lowest, j + lowest
                moment = isserlis([a] * degrees[0] + [b] * degrees[1], covariance)
                scale = algebra[Rational(1, factorial(degrees[0]) * factorial(degrees[1]))]
                term = scale * derivatives[i] * derivatives[j] * moment
                orders[i + j] += term * algebra[self.inverse_a] ** (i + j)
        gate = covariance(a, b) if self.gated else ring.one
        return [gate * order for order in orders]

    def _hidden_covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        return gram_covariance(algebra, first, second) * algebra[self.ratio]


class GatedMLP(SmoothMLP):
    """Block with hidden units ``u phi(beta + g / s) / phi(beta)``, u and g independent Gaussians.

    Parameters
    ----------
    gamma, a, r1, r2
        Symbols or rational numbers; lambda^2 = 1 - gamma^2.
    ratio
        n / d_ff.
    """

    gated = True

    def __init__(
        self,
        gamma: Any = "gamma",
        a: Any = "a",
        r1: Any = GATE_SLOPE,
        r2: Any = GATE_CURVATURE,
        ratio: Any = 1,
    ) -> None:
        super().__init__(gamma, a, r1, r2, ratio)


def _product(left: Sequence[Poly], right: Sequence[Poly]) -> list[Poly]:
    """Return the first three orders of a product of two series."""
    return [
        sum((left[i] * right[k - i] for i in range(1, k + 1)), left[0] * right[k]) for k in range(3)
    ]
