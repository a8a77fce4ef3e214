"""Attention on tokens that are all zero but one: a block of one row, for any number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Expr, Matrix, Rational, Symbol, diff, exp, expand, factorial

from symbolic.algebra import Algebra
from symbolic.blocks import ShapedAttention
from symbolic.series import HALF, Series

SHARE = Symbol("p", positive=True)
"""p, the weight of the live token in its row at score 0: 1 / (number of tokens that it sees)."""


class LiveToken(ShapedAttention):
    """Row j of attention at V = v e_j e_j^T, with p as a symbol.

    E[G_ab G_cd] = V_ac V_bd leaves one score, G_jj. All rows of A but row j are those of the
    identity, and the other entries of row j meet tokens that are zero. Only A_jj is left:
    A_jj = 1 + p e^x / (1 - p + p e^x) - p with x = G_jj / (tau_0 sqrt n).
    """

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters of attention, and p."""
        return [*super().generators(v), SHARE]

    def attention(self, algebra: Algebra, order: int) -> Series:
        """Return A_jj as a series of 1 x 1 matrices."""
        x = Symbol("x")
        logistic = SHARE * exp(x) / (1 - SHARE + SHARE * exp(x))
        score = algebra.field(self.scores) * algebra.matrix([[self.inverse_tau]])
        total = Series({0: algebra.identity}, order)
        power = algebra.identity
        for degree in range(1, 2 * order + 1):
            power = power * score
            coefficient = expand(diff(logistic, x, degree).subs(x, 0).simplify())
            term = Series({degree * HALF: power}, order)
            total += term * algebra[coefficient / factorial(degree)]
        return total


def at_live_token(tokens: int, live: int, value: Expr | Rational) -> Matrix:
    """Return v e_j e_j^T, with j = `live` counted from 0."""
    return Matrix(tokens, tokens, lambda a, b: value if a == b == live else 0)
