"""Drift and diffusion of V from the limits of blocks, which describe a factor of V."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.base import Layer, Parameters, check_limit
from shaped_attention.blocks.layer_limit import relaxations
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.overrides import Overrides, overridden
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.checks import check_fraction
from shaped_attention.numerics.factor import semidefinite_cholesky
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.theory.quotient import (
    Moments,
    quotient_diffusion,
    quotient_drift,
    variogram,
)


def moments(
    parts: Sequence[tuple[Limit, Parameters, float]],
    v: Float[Tensor, "*B m m"],
    diffusion: bool = False,
) -> Moments:
    """Return the moments of all parts; the drift of normalised ones needs their diffusion."""
    normalised = any(limit.normalised for limit, _, _ in parts)
    factor = semidefinite_cholesky(v)
    wanted = diffusion or normalised
    own = [(share, moments_of(limit, p, v, factor, wanted)) for limit, p, share in parts]
    total = Moments(
        torch.zeros_like(v) + sum(share * part.drift for share, part in own),
        sum(share * part.diffusion for share, part in own),
    )
    if not normalised:
        return total
    if not any(limit.relaxes for limit, _, _ in parts):
        return Moments(quotient_drift(total, v), quotient_diffusion(total.diffusion, v))
    betas = relaxations([limit.weights(p) for limit, p, _ in parts])
    drift = quotient_drift(total, v)
    for beta, (share, part) in zip(betas, own, strict=True):
        drift = drift - 0.5 * share * beta * v * variogram(part.diffusion)
    return Moments(drift, quotient_diffusion(total.diffusion, v))


def moments_of(
    limit: Limit,
    p: Parameters,
    v: Float[Tensor, "*B m m"],
    factor: Float[Tensor, "*B m m"],
    diffusion: bool,
) -> Moments:
    """Return the moments of the un-normalised V of one block."""
    drift = -limit.decay(p) * v
    covariance: Any = limit.linear_rate(p) * linear_diffusion(v) if diffusion else 0.0
    if limit.normalised_branch is not None:
        _, square = limit.weights(p)
        own = limit.branch_parameters(p)
        branch = moments_of(limit.normalised_branch, own, v, factor, True)
        return Moments(
            square * quotient_drift(branch, v),
            covariance + square**2 * quotient_diffusion(branch.diffusion, v),
        )
    factor_drift = limit.factor_drift(p, factor)
    if factor_drift is not None:
        drift = drift + symmetric(factor_drift @ factor.mT)
    growth = limit.growth(p, v)
    if growth is not None:
        drift = drift + growth
    noise = unit_noise(limit, p, factor)
    if noise is not None:
        drift = drift + (noise @ noise.mT).sum(0)
        if diffusion:
            moved = symmetric(noise @ factor.mT)
            covariance = covariance + torch.einsum("e...ab,e...cd->...abcd", moved, moved)
    return Moments(drift, covariance)


def moments_along(
    parts: Sequence[tuple[Limit, Parameters, float]],
    factor: Float[Tensor, "*B m c"],
    directions: Float[Tensor, "r m"],
    growth: bool = True,
) -> tuple[Float[Tensor, "*B r"], Float[Tensor, "*B r"], Float[Tensor, "*B r"]]:
    """Return drift and variance of ``w^T V w``, V = F F^T, in each direction w.

    The variance comes in two parts: that of the linear noise, and that of the factor's noise. The
    cost is of order c^2 for the noise, so that covariances of small rank are cheap for any m.

    Parameters
    ----------
    parts
        What `limits_at` returns.
    factor
        Factor of V, with any number of columns.
    directions
        Vectors w, one per row.
    growth
        Whether the drift includes the limits' `growth` and `decay`.
    """
    along = directions @ factor
    form = along.square().sum(-1)
    drift, free = torch.zeros_like(form), torch.zeros_like(form)
    linear = torch.zeros_like(form)
    for limit, p, share in parts:
        moved = limit.factor_drift(p, factor)
        if moved is not None:
            drift = drift + 2.0 * share * ((directions @ moved) * along).sum(-1)
        noise = unit_noise(limit, p, factor)
        if noise is not None:
            kicks = directions @ noise
            drift = drift + share * kicks.square().sum((0, -1))
            free = free + 4.0 * share * (kicks * along).sum(-1).square().sum(0)
        if growth:
            raised = limit.growth(p, factor @ factor.mT)
            if raised is not None:
                drift = drift + share * ((directions @ raised) * directions).sum(-1)
            drift = drift - share * limit.decay(p) * form
        linear = linear + 2.0 * share * limit.linear_rate(p) * form.square()
    return drift, linear, free


def limits_at(
    layer: Layer, at: float, parameters: Overrides | Sequence[Overrides] | None = None
) -> list[tuple[Limit, Parameters, float]]:
    """Return the limits of all blocks, their parameters at a relative depth, and their weights."""
    check_fraction("at", at)
    pattern, given = overridden(layer, parameters)
    check_limit(pattern)
    return [
        (block.limit, at_depth(block, at, own), 1.0 / len(given))
        for blocks, tensors in zip(pattern.layers, given, strict=True)
        for block, own in zip(blocks, tensors, strict=True)
    ]


def unit_noise(
    limit: Limit, p: Parameters, factor: Float[Tensor, "*B m c"]
) -> Float[Tensor, "e *B m c"] | None:
    """Return the noise of F for each unit increment, along the first axis, or None."""
    sizes = _Sizes(factor)
    if limit.factor_noise(p, factor, sizes) is None:
        return None
    count = sizes.total
    units = torch.eye(count, dtype=factor.dtype, device=factor.device)
    rows = [limit.factor_noise(p, factor, _Unit(unit)) for unit in units]
    return torch.stack([row for row in rows if row is not None])


class _Sizes(Numbers):
    """Numbers that only count the normals drawn."""

    def __init__(self, like: Tensor) -> None:
        self._like, self.total = like, 0

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return zeros, and count them."""
        self.total += rows * columns
        return self._like.new_zeros(rows, columns)


class _Unit(Numbers):
    """One unit increment; all remaining ones are zero."""

    def __init__(self, unit: Tensor) -> None:
        self._unit, self._next = unit, 0

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return the next increments."""
        start, self._next = self._next, self._next + rows * columns
        return self._unit[start : self._next].reshape(rows, columns)


def symmetric(x: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """Return ``x + x^T``."""
    return x + x.mT


def linear_diffusion(v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"]:
    """Return ``Sigma_lin^{ab,cd} = V_ac V_bd + V_ad V_bc``."""
    return torch.einsum("...ac,...bd->...abcd", v, v) + torch.einsum("...ad,...bc->...abcd", v, v)
