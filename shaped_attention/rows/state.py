"""The state that a chain carries from layer to layer, and why a step needs no more.

Write X = sqrt(n) F Q with F (m, c) and orthonormal rows Q (c, n). The n columns of a branch Z are
independent N(0, R R^T), Z = R W with W (r, n) Gaussian; W Q^T is a Gaussian H (r, c), and the part
of W orthogonal to Q has the Gram of a Gaussian (r, n - c), which is Wishart. In an orthonormal
basis that begins with the rows of Q, the tokens X / sqrt n are [F, 0], and the branch Z / sqrt n is

    R [H, B] / sqrt n  with  B B^T ~ Wishart_r(n - c, I),

exactly, and without an n-dimensional object. The next factor is the triangular factor of
lambda [F, 0] + gamma R [H, B] / sqrt n, or of any other function of these rows that commutes with
rotations of the columns, such as a norm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shaped_attention.numerics.primitives import (
    M,
    columns,
    concatenate,
    lower,
)


class State(NamedTuple):
    """The state of a chain, which determines the law of the next layer.

    Attributes
    ----------
    factors
        Factors F_g (m, c) of the Grams V_g of g groups of columns, V = (1/g) sum of V_g. One group
        suffices unless the blocks treat the groups separately, as unmixed heads do.
    means
        Whether the first column of F_g is h_g, the means of the tokens over the n / g columns of
        the group. F_g consists of the coordinates of X_g / sqrt(n / g) in an orthonormal basis, and
        the first vector of the basis is then 1 / sqrt(n / g) in every entry.
    """

    factors: tuple[Any, ...]
    means: bool = False


def factor_columns(tokens: int, width: int, groups: int, means: bool) -> int:
    """Return the number of columns of the factors in a state."""
    return min(tokens + means, width // groups)


def covariance(state: State) -> Any:
    """Return V (m, m), of the same type as the state's factors."""
    grams = [factor @ factor.mT for factor in state.factors]
    return sum(grams[1:], grams[0]) * (1.0 / len(grams))


def turned(parts: list[M], means: bool) -> M:
    """Return a factor with the Gram of [parts], with few columns; a column of means is kept."""
    along, *rest = parts
    if means:
        first, body = columns(along, 0, 1), columns(along, 1, along.shape[-1])
        return concatenate([first, turned([body, *rest], False)])
    if rest or along.shape[-1] >= along.shape[-2]:
        return lower(concatenate(parts))
    return along
