"""Reduction of a layer to the scalar law: where u = w^T V w follows an SDE of its own.

The coefficients are read off the limit that the layer itself describes, at a few states V. At
other random states with other values of u, drift and variance of u must be those of the scalar law:
a layer for which u is not autonomous is refused. So no formula of a block is repeated here, and
blocks of users are covered.

`CANDIDATES` lists the states from which a scalar law is known. Tokens that are equal stay equal and
tokens that are zero stay zero, which is checked too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.theory.explosion.scalar_law import ScalarLaw
from shaped_attention.theory.moments import limits_at, moments_along, unit_noise

TOLERANCE = 1e-9
"""Relative deviation of drift or variance beyond which u is not autonomous."""

_ROUNDING = 1e-12
"""Relative size below which a coefficient is rounding."""

_EQUAL = 1e-12
"""Deviation, relative to the largest entry of V_0, up to which tokens are equal."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Reduction:
    """States V on which u = w^T V w may follow the scalar law, and why u decides on explosions.

    The `direction` is w. The states are V = (spread A) (spread A)^T for any r x r matrix A, with
    `spread` (m, r). For the vectors z in the rows of `still`, z^T V z = 0 must stay 0. `growth`
    tells whether the limits' `growth` and `decay` act on u: where they cancel exactly they are left
    out, as their difference would be rounding.
    """

    scalar: str
    reason: str
    direction: Matrix
    spread: Matrix
    still: Matrix
    growth: bool = True

    def start(self, v0: Matrix) -> float:
        """Return u_0."""
        return max(float(self.direction @ v0 @ self.direction), 0.0)


def _coefficients(
    layer: Layer, reduction: Reduction, rounding: float
) -> tuple[float, float, float, float]:
    """Return alpha, mu, k and delta; drifts of the size `rounding` may be 0.

    Raise ValueError if u is not autonomous, or does not follow the scalar law.
    """
    parts = limits_at(layer, 0.0)
    rng = np.random.default_rng(0)
    u = torch.tensor([1.0, 2.0, 0.3, 0.8, 1.7, 3.0], dtype=torch.float64)
    factors = torch.tensor(_factors(reduction, u.numpy(), rng))
    directions = torch.tensor(np.vstack([reduction.direction, reduction.still]))
    drift, linear, free = moments_along(parts, factors, directions, reduction.growth)
    k, still = linear[0, 0] / 2.0, drift[:, 1:].abs() + free[:, 1:]
    alpha, mu = _odd(drift[:, 0])
    delta, more = _even(free[:, 0])
    k = k + torch.where(more.abs() > _ROUNDING * delta.abs(), more, 0.0)
    size = alpha.abs() * u**3 + mu.abs() * u + k * u + (rounding / TOLERANCE) * (u + u**3)
    fits = (drift[:, 0] - alpha * u**3 + mu * u).abs() <= TOLERANCE * size
    variance = delta * u**4 + 2.0 * k * u**2
    fits &= (linear[:, 0] + free[:, 0] - variance).abs() <= TOLERANCE * variance
    stays = (still <= TOLERANCE * (size + variance)[:, None]).all()
    if not bool(fits.all()) or not bool(stays):
        raise ValueError(
            f"layer={layer!r}: u = {reduction.scalar} does not follow an SDE of its own with drift "
            "alpha u^3 - mu u, so its law is not known exactly"
        )
    return float(alpha), float(mu), float(k), float(delta)


def scalar_law(layer: Layer, reduction: Reduction, v0: Matrix) -> ScalarLaw:
    """Return the law of u, or raise ValueError if u is not autonomous.

    Coefficients at the level of rounding, compared with a state without structure, are 0.
    """
    rng = np.random.default_rng(1)
    factor = torch.tensor(rng.normal(size=(len(v0), 2)) / math.sqrt(2.0 * len(v0)))
    every = torch.eye(len(v0), dtype=torch.float64)
    generic = moments_along(limits_at(layer, 0.0), factor, every, reduction.growth)
    drift, _, free = (_ROUNDING * float(x.abs().max()) for x in generic)
    alpha, mu, k, delta = _coefficients(layer, reduction, drift)
    alpha = alpha if abs(alpha) > drift else 0.0
    delta = delta if abs(delta) > free and alpha != 0.0 else 0.0
    mu = mu if abs(mu) > drift + _ROUNDING * (abs(alpha) + k) else 0.0
    return ScalarLaw(alpha, mu, k, delta, reduction.start(v0))


def _odd(drift: Tensor) -> tuple[Tensor, Tensor]:
    """Return alpha and mu from alpha u^3 - mu u at u = 1 and 2."""
    return (drift[1] - 2.0 * drift[0]) / 6.0, (drift[1] - 8.0 * drift[0]) / 6.0


def _even(variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return delta and k from delta u^4 + 2 k u^2 at u = 1 and 2."""
    return (variance[1] - 4.0 * variance[0]) / 12.0, (16.0 * variance[0] - variance[1]) / 24.0


def _factors(reduction: Reduction, u: Matrix, rng: np.random.Generator) -> Matrix:
    """Return factors of random states with the values u."""
    rank = reduction.spread.shape[1]
    factors = reduction.spread @ rng.normal(size=(len(u), rank, rank))
    lengths = np.linalg.norm(reduction.direction @ factors, axis=-1)
    return factors * (np.sqrt(u) / lengths)[:, None, None]


def _entry(row: int, column: int) -> str:
    """Return an entry of V, counted from 0, as in the names of observables."""
    return f"V[{row},{column}]"


def one_token(v0: Matrix) -> Reduction | None:
    """Return the reduction of equal tokens, or of a single one, to V_00."""
    m = len(v0)
    if not np.allclose(v0, v0[0, 0], rtol=0.0, atol=_EQUAL * np.abs(v0).max()):
        return None
    unit = np.eye(m)
    return Reduction(
        _entry(0, 0),
        f"all tokens are equal and stay equal, and {_entry(0, 0)} determines V" if m > 1 else
        "there is one token",
        unit[0], np.ones((m, 1)), unit[1:] - unit[0],
    )  # fmt: skip


def one_live_token(v0: Matrix) -> Reduction | None:
    """Return the reduction to V_jj if all other tokens are zero."""
    live = np.flatnonzero(np.diag(v0))
    if len(live) != 1:
        return None
    j, unit = int(live[0]), np.eye(len(v0))
    return Reduction(
        _entry(j, j),
        f"all tokens but token {j} are zero and stay zero",
        unit[j], unit[:, [j]], np.delete(unit, j, axis=0),
    )  # fmt: skip


def two_groups(v0: Matrix) -> Reduction | None:
    """Return the reduction to V_00 - 2 V_01 + V_11 of two tokens, or two groups of equal ones."""
    groups = groups_of(v0)
    if len(groups) != 2 or len(groups[0]) != len(groups[1]):
        return None
    m = len(v0)
    first, second = (int(group[0]) for group in groups)
    unit, spread = np.eye(m), np.zeros((m, 2))
    for column, group in enumerate(groups):
        spread[group, column] = 1.0
    still = [unit[a] - unit[group[0]] for group in groups for a in group[1:]]
    return Reduction(
        f"{_entry(first, first)} - 2 {_entry(first, second)} + {_entry(second, second)}",
        "V explodes if and only if u does"
        + ("" if m == 2 else f"; the tokens form two groups of {m // 2} equal ones"),
        unit[first] - unit[second], spread, np.array(still).reshape(-1, m),
    )  # fmt: skip


def groups_of(v0: Matrix) -> list[Matrix]:
    """Return the indices of equal tokens, in order of their first members."""
    tolerance = _EQUAL * float(np.abs(v0).max())
    groups: list[list[int]] = []
    for token in range(len(v0)):
        for group in groups:
            if np.abs(v0[token] - v0[group[0]]).max() <= tolerance:
                group.append(token)
                break
        else:
            groups.append([token])
    return [np.array(group) for group in groups]


def without_attention(layer: Layer, v0: Matrix) -> Reduction | None:
    """Return the reduction to V_00 of a layer in which no V_jj can explode, or None."""
    m, parts = len(v0), limits_at(layer, 0.0)
    column = torch.ones(m, 1, dtype=torch.float64)
    v = 4.0 * torch.eye(m, dtype=torch.float64)
    for limit, p, _ in parts:
        if limit.factor_drift(p, column) is not None or unit_noise(limit, p, column) is not None:
            return None
    # The ReLU network leaves the diagonal unchanged, exactly and not only to rounding.
    rates = [(limit.growth(p, v), limit.decay(p)) for limit, p, _ in parts]
    growth = any(
        grown is not None and not torch.allclose(grown.diagonal(), 4.0 * v.new_tensor(decay))
        for grown, decay in rates
    )
    reason = "the layer has no attention, so that no entry of V can explode"
    unit = np.eye(m)
    each = [Reduction(_entry(0, 0), reason, row, unit, np.zeros((0, m)), growth) for row in unit]
    for reduction in each:
        try:
            if scalar_law(layer, reduction, v0).alpha != 0.0:
                return None
        except ValueError:
            return None
    return each[0]


CANDIDATES: tuple[Callable[[Matrix], Reduction | None], ...] = (
    one_token, one_live_token, two_groups,
)  # fmt: skip


def reduction_of(v0: Matrix) -> Reduction | None:
    """Return the first reduction of `CANDIDATES` that fits V_0, or None."""
    return next((reduction for f in CANDIDATES if (reduction := f(v0)) is not None), None)
