"""The exact step of a Gaussian residual branch, at a cost independent of the width.

Write X = sqrt(n) F Q with F (m, c) and orthonormal rows Q (c, n). The n columns of a branch Z are
independent N(0, R R^T), Z = R W with W (r, n) Gaussian; W Q^T is a Gaussian H (r, c), and the part
of W orthogonal to Q has the Gram of a Gaussian (r, n - c), which is Wishart. In an orthonormal
basis that begins with the rows of Q, the tokens X / sqrt n are [F, 0], and the branch Z / sqrt n is

    R [H, B] / sqrt n  with  B B^T ~ Wishart_r(n - c, I),

exactly, and without an n-dimensional object. The next factor is the triangular factor of
lambda [F, 0] + gamma R [H, B] / sqrt n, or of any other function of these rows that commutes with
rotations of the columns, such as a norm (`shaped_attention.blocks.norms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shaped_attention.blocks.state import State
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    columns,
    compress,
    concatenate,
    lower,
)

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
