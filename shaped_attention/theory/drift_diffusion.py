"""Drift and diffusion of the limit as functions of V, for users and for tests.

No sampler uses the dense diffusion: stepping with it costs O(m^6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer, blocks_of
from shaped_attention.blocks.overrides import Overrides
from shaped_attention.blocks.parameters import scheduled
from shaped_attention.blocks.reasons import check_limit, limit_of
from shaped_attention.checks import argument_error, check_not_meta, real_array
from shaped_attention.numerics.covariance import SYMMETRY_TOLERANCE
from shaped_attention.theory.moments import limits_at, moments

Covariance = TypeVar("Covariance", NDArray[np.float64], Tensor)


def drift(
    layer: Layer,
    v: Covariance,
    *,
    at: float | None = None,
    parameters: Overrides | Sequence[Overrides] | None = None,
) -> Covariance:
    """Return the drift b(V) (..., m, m) of the limit, the sum over the blocks of a layer.

    Parameters
    ----------
    layer
        A block, a list of blocks, or a `Pattern`.
    v
        Covariances (..., m, m), positive semidefinite, a NumPy array or a torch tensor. The result
        has the same type and, if `v` is a tensor of nonsingular matrices, is differentiable in it.
        The limit of normalised blocks needs correlations, V_aa = 1.
    at
        Relative depth t / T in [0, 1] at which schedules are evaluated; required for a layer with
        schedules.
    parameters
        Tensors of shape () that replace parameters, by name, as in `pathwise`. The result is
        differentiable in them if `v` is a tensor.

    Raises
    ------
    ValueError
        If `v` is not a finite array of symmetric positive semidefinite matrices, or a block
        cannot act on matrices of this size or has no limit.
    FloatingPointError
        If an entry of the result is not finite.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, equicorrelated
    >>> drift(ShapedAttention(gamma=0.5), equicorrelated(tokens=2, rho=0.0))
    array([[0.0625, 0.    ],
           [0.    , 0.0625]])
    """
    tensor = _as_tensor(layer, v)
    value = moments(limits_at(layer, _depth(layer, at), parameters), tensor).drift
    return _like(v, _finite(layer, value, "drift"))


def diffusion(
    layer: Layer,
    v: Covariance,
    *,
    at: float | None = None,
    parameters: Overrides | Sequence[Overrides] | None = None,
) -> Covariance:
    """Return the diffusion matrix Sigma(V) (..., d, d), d = m (m + 1) / 2, of the limit.

    ``Sigma dt = Cov[d vech V]``, where vech takes the lower triangle row by row. Arguments and
    errors are those of `drift`.

    Examples
    --------
    >>> from shaped_attention import ShapedMLP
    >>> diffusion(ShapedMLP(gamma=0.5), np.array([[2.0]]))
    array([[4.]])
    """
    tensor = _as_tensor(layer, v)
    parts = limits_at(layer, _depth(layer, at), parameters)
    total = moments(parts, tensor, diffusion=True).diffusion
    i, j = torch.tril_indices(*tensor.shape[-2:])
    return _like(v, _finite(layer, total[..., i, j, :, :][..., i, j], "diffusion"))


def _finite(layer: Layer, value: Tensor, name: str) -> Tensor:
    """Return a value, or raise FloatingPointError if an entry is not finite."""
    if not bool(torch.isfinite(value).all()):
        raise FloatingPointError(
            f"the {name} of {layer!r} at v is not finite: a parameter is outside its range, or an "
            "entry of v too large"
        )
    return value


def _depth(layer: Layer, at: float | None) -> float:
    """Return the relative depth, which is arbitrary for a layer without schedules."""
    if at is None and any(scheduled(block) for block in blocks_of(layer)):
        raise ValueError(
            "at, a relative depth in [0, 1], must be given, since the layer changes with depth"
        )
    return 0.0 if at is None else at


def _as_tensor(layer: Layer, v: ArrayLike | Tensor) -> Float[Tensor, "*B m m"]:
    check_limit(layer)
    tensor = v if isinstance(v, Tensor) else torch.tensor(real_array(v, "v"))
    check_not_meta(tensor, "v")
    if not tensor.is_floating_point():
        raise argument_error("v", "a tensor of floating-point numbers", tensor.dtype)
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 1:
        raise argument_error("v", "of shape (..., m, m)", tuple(tensor.shape))
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError("v must be finite; it has NaN or infinite entries")
    for block in blocks_of(layer):
        block.check(tensor.shape[-1], None)
        limit_of(block).check(tensor.shape[-1])
    if tensor.numel():
        _check_covariances(tensor.detach(), limit_of(blocks_of(layer)[0]).normalised)
    return tensor


def _check_covariances(v: Float[Tensor, "*B m m"], correlations: bool) -> None:
    """Raise ValueError unless matrices are covariances, to the tolerance of `check_covariance`."""
    eps, size = 64.0 * torch.finfo(v.dtype).eps, v.abs().amax((-2, -1))
    asymmetry = (v - v.mT).abs().amax((-2, -1))
    if bool((asymmetry > max(SYMMETRY_TOLERANCE, eps) * size).any()):
        raise ValueError(
            "v must be symmetric; entries differ from their mirror image by up to "
            f"{float(asymmetry.max()):.3g}"
        )
    smallest = torch.linalg.eigvalsh(v)[..., 0]
    if bool((smallest < -max(SYMMETRY_TOLERANCE, v.shape[-1] * eps) * size).any()):
        raise ValueError(
            "v must be positive semidefinite; its smallest eigenvalue is "
            f"{float(smallest.min()):.3g}"
        )
    deviation = float((v.diagonal(dim1=-2, dim2=-1) - 1.0).abs().max())
    if correlations and deviation > SYMMETRY_TOLERANCE:
        raise ValueError(
            "v must be a correlation matrix, since the blocks are normalised; its diagonal differs "
            f"from 1 by {deviation:.3g}"
        )


def _like(v: Covariance, tensor: Tensor) -> Covariance:
    return tensor if isinstance(v, Tensor) else tensor.numpy()
