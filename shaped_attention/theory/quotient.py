"""Ito's formula for correlations: drift and diffusion of V_ab / sqrt(V_aa V_bb)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Moments(NamedTuple):
    """Drift (..., m, m) and diffusion (..., m, m, m, m) of V; 0 if it was not computed."""

    drift: Any
    diffusion: Any


def quotient_drift(moments: Moments, r: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """Return the drift of V_ab / sqrt(V_aa V_bb) at V = R, by Ito's formula.

    ``b_ab - R_ab (b_aa + b_bb) / 2 - (S_ab,aa + S_ab,bb) / 2
    + R_ab [3 (S_aa,aa + S_bb,bb) / 8 + S_aa,bb / 4]``
    """
    b, covariance = moments
    length = b.diagonal(dim1=-2, dim2=-1)
    cross = torch.einsum("...abaa->...ab", covariance)
    variances = variance_covariance(covariance)
    own = variances.diagonal(dim1=-2, dim2=-1)
    return (
        b
        - 0.5 * r * (length[..., :, None] + length[..., None, :])
        - 0.5 * (cross + cross.mT)
        + r * (0.375 * (own[..., :, None] + own[..., None, :]) + 0.25 * variances)
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


def variance_covariance(covariance: Float[Tensor, "*B m m m m"]) -> Float[Tensor, "*B m m"]:
    """Return S_aa,bb."""
    return torch.einsum("...aabb->...ab", covariance)


def variogram(covariance: Float[Tensor, "*B m m m m"]) -> Float[Tensor, "*B m m"]:
    """Return ``D_ab = S_aa,aa + S_bb,bb - 2 S_aa,bb``."""
    variances = variance_covariance(covariance)
    own = variances.diagonal(dim1=-2, dim2=-1)
    return own[..., :, None] + own[..., None, :] - 2.0 * variances
