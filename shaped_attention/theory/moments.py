"""Drift and diffusion of V from the limits of blocks, which describe a factor of V.

For correlations V_ab / sqrt(V_aa V_bb) they follow by Ito's formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.normalised_limit import relaxations
from shaped_attention.blocks.overrides import Overrides, overridden
from shaped_attention.blocks.parameters import Parameters, at_depth
from shaped_attention.blocks.reasons import check_limit, limit_of
from shaped_attention.checks import check_fraction
from shaped_attention.numerics.primitives import Numbers, cholesky, constant


class Moments(NamedTuple):
    """Drift (..., m, m) and diffusion (..., m, m, m, m) of V; 0 if it was not computed."""

    drift: Any
    diffusion: Any


def moments(
    parts: Sequence[tuple[Limit, Parameters, float]],
    v: Float[Tensor, "*B m m"],
    diffusion: bool = False,
) -> Moments:
    """Return the moments of all parts; the drift of normalised ones needs their diffusion."""
    normalised = any(limit.normalised for limit, _, _ in parts)
    wanted = diffusion or normalised
    factor = cholesky(v)
    shares = [(share, moments_of(limit, p, v, factor, wanted)) for limit, p, share in parts]
    total = Moments(
        torch.zeros_like(v) + sum(share * part.drift for share, part in shares),
        sum(share * part.diffusion for share, part in shares),
    )
    if not normalised:
        return total
    drift = quotient_drift(total, v)
    if any(limit.norm is not None and limit.norm.relaxes for limit, _, _ in parts):
        betas = relaxations([limit.norm.weights(p) for limit, p, _ in parts if limit.norm])
        for beta, (share, part) in zip(betas, shares, strict=True):
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
    norm = limit.norm
    if norm is not None and (inner := norm.branch(p)) is not None:
        _, square = norm.weights(p)
        branch = moments_of(*inner, v, factor, True)
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
    `growth` tells whether the drift includes the limits' `growth` and `decay`.
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
    pattern, tensors = overridden(layer, parameters)
    check_limit(pattern)
    return [
        (limit_of(block), at_depth(block, at, replaced), 1.0 / len(tensors))
        for blocks, overrides in zip(pattern.layers, tensors, strict=True)
        for block, replaced in zip(blocks, overrides, strict=True)
    ]


def unit_noise(
    limit: Limit, p: Parameters, factor: Float[Tensor, "*B m c"]
) -> Float[Tensor, "e *B m c"] | None:
    """Return the noise of F for each unit increment, along the first axis, or None."""
    like = factor.new_empty(0, 0)
    zeros = _Increments(like)
    if limit.factor_noise(p, factor, zeros) is None:
        return None
    units = [_Increments(like, place) for place in range(zeros.drawn)]
    rows = [limit.factor_noise(p, factor, unit) for unit in units]
    return torch.stack([row for row in rows if row is not None])


class _Increments(Numbers):
    """Increments 0, but for a 1 at one place in the order in which they are drawn."""

    def __init__(self, like: Tensor, place: int = -1) -> None:
        self._like, self._place, self.drawn = like, place, 0

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return the next increments."""
        here = np.arange(self.drawn, self.drawn + rows * columns) == self._place
        self.drawn += rows * columns
        return constant(here.reshape(rows, columns).astype(float), like=self._like)


def quotient_drift(moments: Moments, r: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """Return the drift of V_ab / sqrt(V_aa V_bb) at V = R, by Ito's formula.

    ``b_ab - R_ab (b_aa + b_bb) / 2 - (S_ab,aa + S_ab,bb) / 2
    + R_ab [3 (S_aa,aa + S_bb,bb) / 8 + S_aa,bb / 4]``
    """
    b, covariance = moments
    length = b.diagonal(dim1=-2, dim2=-1)
    cross = torch.einsum("...abaa->...ab", covariance)
    variances, sums = _variances(covariance)
    return (
        b
        - 0.5 * r * (length[..., :, None] + length[..., None, :])
        - 0.5 * (cross + cross.mT)
        + r * (0.375 * sums + 0.25 * variances)
    )


def quotient_diffusion(
    covariance: Float[Tensor, "*B m m m m"], r: Float[Tensor, "*B m m"]
) -> Float[Tensor, "*B m m m m"]:
    """Return J S J^T, where J maps dV to ``dV_ab - R_ab (dV_aa + dV_bb) / 2``."""
    first = _projected(covariance, r)
    m = r.shape[-1]
    swapped = first.flatten(-4, -3).flatten(-2, -1).mT.unflatten(-2, (m, m)).unflatten(-1, (m, m))
    return _projected(swapped, r)


def _projected(
    covariance: Float[Tensor, "*B m m m m"], r: Float[Tensor, "*B m m"]
) -> Float[Tensor, "*B m m m m"]:
    """Apply J to the first pair of indices."""
    length = torch.einsum("...aacd->...acd", covariance)
    both = length[..., :, None, :, :] + length[..., None, :, :, :]
    return covariance - 0.5 * r[..., None, None] * both


def _variances(covariance: Float[Tensor, "*B m m m m"]) -> tuple[Tensor, Tensor]:
    """Return S_aa,bb and S_aa,aa + S_bb,bb."""
    variances = torch.einsum("...aabb->...ab", covariance)
    diagonal = variances.diagonal(dim1=-2, dim2=-1)
    return variances, diagonal[..., :, None] + diagonal[..., None, :]


def variogram(covariance: Float[Tensor, "*B m m m m"]) -> Float[Tensor, "*B m m"]:
    """Return ``D_ab = S_aa,aa + S_bb,bb - 2 S_aa,bb``."""
    variances, sums = _variances(covariance)
    return sums - 2.0 * variances


def symmetric(x: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """Return ``x + x^T``."""
    return x + x.mT


def linear_diffusion(v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"]:
    """Return ``Sigma_lin^{ab,cd} = V_ac V_bd + V_ad V_bc``."""
    return torch.einsum("...ac,...bd->...abcd", v, v) + torch.einsum("...ad,...bc->...abcd", v, v)
