"""The state that a chain carries from layer to layer, and its exact step through a branch.

Write X = sqrt(n) F Q with F (m, c) and orthonormal rows Q (c, n). The n columns of a branch Z are
independent N(0, R R^T), Z = R W with W (r, n) Gaussian; W Q^T is a Gaussian H (r, c), and the part
of W orthogonal to Q has the Gram of a Gaussian (r, n - c), which is Wishart. In an orthonormal
basis that begins with the rows of Q, the tokens X / sqrt n are [F, 0], and the branch Z / sqrt n is

    R [H, B] / sqrt n  with  B B^T ~ Wishart_r(n - c, I),

exactly, and without an n-dimensional object. The next factor is the triangular factor of
lambda [F, 0] + gamma R [H, B] / sqrt n, or of any other function of these rows that commutes with
rotations of the columns, such as a norm.

A norm divides each token by sqrt(mean square of its n entries + eps) and multiplies it by a gain.
LayerNorm subtracts the mean of the entries first. In the coordinates of X / sqrt n the mean square
is the squared length of a row. With the means in the first column (`State.means`), centring removes
the component along the constant vector: it subtracts h from the h_g of every group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    columns,
    compress,
    concatenate,
    lower,
    row_squares,
    sqrt,
    unit_rows,
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


def total_factor(state: State) -> Any:
    """Return a factor of V, compressed if it has more columns than rows."""
    factors = state.factors
    if len(factors) == 1:
        return compress(factors[0])
    weight = 1.0 / len(factors) ** 0.5
    return compress(concatenate([weight * factor for factor in factors]))


Rows = list[M]
"""Coordinates of the rows of one group: along the columns of its factor, then orthogonal to them.

The second matrix is missing if the factor has as many columns as the group.
"""


def branch_rows(
    factor: M, root: M, weight: Any, width: int, numbers: Numbers, group: int = 0
) -> Rows[M]:
    """Return the coordinates ``weight R [H, B] / sqrt n`` of a branch, for one group."""
    root = compress(root)
    rank, inner = factor.shape[-1], root.shape[-1]
    scale = weight / width**0.5
    along = scale * (root @ numbers.normal("branch", inner, rank, group))
    if width == rank:
        return [along]
    rest = numbers.wishart("branch, orthogonal", inner, width - rank, group)
    return [along, scale * (root @ rest)]


def branches(
    state: State, root: M | list[M], weight: Any, width: int, numbers: Numbers
) -> list[Rows[M]]:
    """Return the coordinates of the branch for each of the g groups of n / g columns.

    Given the past the branches of the groups are independent. The columns of a group have the
    covariance given by `root`, or by the group's entry if that is a list.
    """
    groups = len(state.factors)
    heads = root if isinstance(root, list) else [root]
    share = groups // len(heads)
    return [
        branch_rows(factor, heads[g // share], weight, width // groups, numbers, g)
        for g, factor in enumerate(state.factors)
    ]


def added(state: State, rows: Sequence[Rows[M]], skip: Any) -> State:
    """Return the state of ``skip X + Z``, from the coordinates of Z for each group."""
    pairs = zip(state.factors, rows, strict=True)
    return state._replace(
        factors=tuple(
            _turned([skip * factor + along, *rest], state.means) for factor, (along, *rest) in pairs
        )
    )


def _turned(parts: Rows[M], means: bool) -> M:
    """Return a factor with the Gram of [parts], with few columns; a column of means is kept."""
    along, *rest = parts
    if means:
        first, body = columns(along, 0, 1), columns(along, 1, along.shape[-1])
        return concatenate([first, _turned([body, *rest], False)])
    if rest or along.shape[-1] >= along.shape[-2]:
        return lower(concatenate(parts))
    return along


def residual_step(
    state: State, root: M | list[M], skip: Any, gamma: Any, width: int, numbers: Numbers
) -> State:
    """Take the state of g groups of n / g columns through ``lambda X + gamma Z``.

    Each group has its own skip connection: V_g' is the Gram of lambda X_g + gamma Z_g.
    """
    return added(state, branches(state, root, gamma, width, numbers), skip)


def centred(rows: Sequence[Rows[M]]) -> list[Rows[M]]:
    """Subtract the means of the tokens over all groups, whose first columns are their means."""
    firsts = [columns(along, 0, 1) for along, *_ in rows]
    mean = (1.0 / len(firsts)) * sum(firsts[1:], firsts[0])
    return [
        [concatenate([first - mean, columns(along, 1, along.shape[-1])]), *rest]
        for first, (along, *rest) in zip(firsts, rows, strict=True)
    ]


def by_length(rows: M, eps: float) -> M:
    """Divide rows by sqrt(squared length + eps); with eps = 0 a row of zeros is unchanged."""
    return unit_rows(rows) if eps == 0.0 else rows / sqrt(row_squares(rows) + eps)


def by_mean_square(rows: M, eps: float) -> M:
    """Divide rows by sqrt(mean square of the entries + eps), as RMSNorm does."""
    size = rows.shape[-1]
    return math.sqrt(size) * by_length(rows, size * eps)


def divided(rows: Sequence[Rows[M]], eps: float, gain: Any) -> list[Rows[M]]:
    """Divide the rows of all groups by sqrt(mean square + eps), and multiply them by `gain`.

    The mean square is (1/g) sum of the groups' squared lengths. With eps = 0 a row of zeros is
    unchanged.
    """
    groups = len(rows)
    flat = [part for parts in rows for part in parts]
    if len(flat) == 1:
        return [[gain * by_length(flat[0], eps)]]
    if eps > 0.0:
        squares = [row_squares(part) for part in flat]
        length = sqrt((1.0 / groups) * sum(squares[1:], squares[0]) + eps)
        return [[gain * (part / length) for part in parts] for parts in rows]
    unit, stop = unit_rows(concatenate(flat)), 0
    result = []
    for parts in rows:
        here = []
        for part in parts:
            start, stop = stop, stop + part.shape[-1]
            here.append((gain * groups**0.5) * columns(unit, start, stop))
        result.append(here)
    return result
