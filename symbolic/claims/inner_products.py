"""Tokens on the sphere through their inner products.

For a token x and a vector y the symbols are xx = <x, x>, xy, yy, with xx = 1 on the sphere. The
identities therefore hold in every dimension, and for y = sum_j w_j x_j with any number of tokens.
"""

from __future__ import annotations

from sympy import Expr, Integer, Matrix, Symbol, symbols

BETA = Symbol("beta", positive=True)
XX, XY, YY = symbols("xx xy yy", real=True)


def projected_square() -> Expr:
    """Return |P_x y|^2 for P_x y = y - <x, y> x."""
    return YY - 2 * XY**2 + XY**2 * XX


def gram_symbols(count: int) -> tuple[Matrix, Matrix]:
    """Return inner products c_ij with c_ii = 1, and weights w_ij = exp(beta c_ij), as symbols."""
    c = Matrix(
        count,
        count,
        lambda i, j: Integer(1) if i == j else Symbol(f"c_{min(i, j)}{max(i, j)}", real=True),
    )
    w = Matrix(count, count, lambda i, j: Symbol(f"w_{min(i, j)}{max(i, j)}", positive=True))
    return c, w
