"""The exact step of a Gaussian residual branch, at a cost independent of the width."""

from __future__ import annotations

from typing import Any

from shaped_attention.blocks.state import State
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    columns,
    compress,
    concatenate,
    lower,
    unit_rows,
)


def gaussian_step(
    factor: M, root: M, skip: Any, gamma: Any, width: int, numbers: Numbers, group: int = 0
) -> M:
    """Return a factor of the covariance of ``lambda X + gamma Z``, Z = (root) times Gaussian.

    X = sqrt(n) F Q with F (m, c) and orthonormal rows Q (c, n), and the n columns of Z are
    independent N(0, R R^T). Z = R W with W (r, n) Gaussian; W Q^T is a Gaussian H (r, c), and the
    part of W orthogonal to Q has the Gram of a Gaussian (r, n - c), which is Wishart. So

        V' = D D^T + E E^T,  D = lambda F + gamma R H / sqrt n,  E = gamma R B / sqrt n

    with B B^T ~ Wishart_r(n - c, I), exactly, and without an n-dimensional object.
    """
    root = compress(root)
    own, inner = factor.shape[-1], root.shape[-1]
    scale = gamma / width**0.5
    along = skip * factor + scale * (root @ numbers.normal("branch", inner, own, group))
    if width == own:
        return lower(along) if own >= factor.shape[-2] else along
    rest = numbers.wishart("branch, orthogonal", inner, width - own, group)
    return lower(concatenate([along, scale * (root @ rest)]))


def residual_step(
    state: State, root: M | list[M], skip: Any, gamma: Any, width: int, numbers: Numbers
) -> State:
    """Take the state of g groups of n / g columns through ``lambda X + gamma Z``.

    Given the past the branches of the groups are independent, and each group has its own skip
    connection: V_g' is the Gram of lambda X_g + gamma Z_g, where the columns of Z_g have the
    covariance given by `root`, or by the group's entry if that is a list.
    """
    groups = len(state.factors)
    heads = root if isinstance(root, list) else [root]
    share = groups // len(heads)
    return State(
        tuple(
            gaussian_step(factor, heads[g // share], skip, gamma, width // groups, numbers, g)
            for g, factor in enumerate(state.factors)
        )
    )


def unit_groups(state: State) -> State:
    """Divide the rows of all groups by their joint lengths."""
    factors = state.factors
    if len(factors) == 1:
        return State((unit_rows(factors[0]),))
    unit = unit_rows(concatenate(factors))
    root = len(factors) ** 0.5
    size = factors[0].shape[-1]
    return State(tuple(root * columns(unit, g * size, (g + 1) * size) for g in range(len(factors))))
