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

from shaped_attention.blocks.base import Layer, blocks_of, check_limit
from shaped_attention.blocks.overrides import Overrides
from shaped_attention.blocks.parameters import scheduled
from shaped_attention.checks import real_array
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
        has the same type, and is differentiable in a tensor of regular matrices. The limit of
        normalised blocks needs correlations, V_aa = 1.
    at
        Relative depth t / T in [0, 1] at which schedules are evaluated; a layer with schedules
        needs it.
    parameters
        Tensors () that replace parameters, by name, as in `pathwise`. The result is differentiable
        in them if `v` is a tensor.

    Raises
    ------
    ValueError
        If `v` is not a finite array of symmetric positive semidefinite matrices, or a block does
        not fit its size or has no limit.
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
    found = moments(limits_at(layer, _depth(layer, at), parameters), tensor).drift
    return _as_given(_finite(layer, found, "drift"), v)


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
    return _as_given(_finite(layer, total[..., i, j, :, :][..., i, j], "diffusion"), v)


def _finite(layer: Layer, found: Tensor, name: str) -> Tensor:
    """Return what was computed, or raise FloatingPointError if an entry is not finite."""
    if not bool(torch.isfinite(found).all()):
        raise FloatingPointError(
            f"the {name} of {layer!r} at v is not finite: a parameter is outside its range, or an "
            "entry of v too large"
        )
    return found


def _depth(layer: Layer, at: float | None) -> float:
    """Return the relative depth, which is arbitrary for a layer without schedules."""
    if at is None and any(scheduled(block) for block in blocks_of(layer)):
        raise ValueError(
            "at must be given, a relative depth in [0, 1], since the layer changes with depth"
        )
    return 0.0 if at is None else at


def _as_tensor(layer: Layer, v: ArrayLike | Tensor) -> Float[Tensor, "*B m m"]:
    check_limit(layer)
    tensor = v if isinstance(v, Tensor) else torch.tensor(real_array(v, "v"))
    if not tensor.is_floating_point():
        raise ValueError(f"v has entries of type {tensor.dtype}; floating-point ones are needed")
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 1:
        raise ValueError(f"v has shape {tuple(tensor.shape)}; matrices (..., m, m) are needed")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError("v has NaN or infinite entries; finite numbers are needed")
    _check_symmetric(tensor.detach())
    variances = tensor.detach().diagonal(dim1=-2, dim2=-1)
    smallest = float(variances.min()) if variances.numel() else 0.0
    if smallest < 0.0:
        raise ValueError(f"v has the diagonal entry {smallest:.6g}; variances >= 0 are needed")
    _check_semidefinite(tensor.detach())
    for block in blocks_of(layer):
        block.check(tensor.shape[-1], None)
        block.limit.check(tensor.shape[-1])
    if blocks_of(layer)[0].limit.normalised:
        _check_correlations(variances)
    return tensor


def _check_correlations(variances: Float[Tensor, "*B m"]) -> None:
    """Raise ValueError unless the diagonal is 1."""
    far = (variances - 1.0).abs()
    if far.numel() and float(far.max()) > SYMMETRY_TOLERANCE:
        raise ValueError(
            f"v has a diagonal entry that differs from 1 by {float(far.max()):.3g}; the limit of "
            "normalised blocks needs correlations"
        )


def _check_symmetric(v: Float[Tensor, "*B m m"]) -> None:
    """Raise ValueError if a matrix is asymmetric beyond the tolerance of `check_covariance`."""
    if v.numel() == 0:
        return
    asymmetry = (v - v.mT).abs().amax((-2, -1))
    tolerance = max(SYMMETRY_TOLERANCE, 64.0 * torch.finfo(v.dtype).eps)
    if bool((asymmetry > tolerance * v.abs().amax((-2, -1))).any()):
        raise ValueError(
            f"v is asymmetric: entries differ from their mirror image by up to "
            f"{float(asymmetry.max()):.3g}; symmetric matrices are needed"
        )


def _check_semidefinite(v: Float[Tensor, "*B m m"]) -> None:
    """Raise ValueError if a matrix is indefinite beyond the tolerance of `check_covariance`."""
    if v.numel() == 0:
        return
    values = torch.linalg.eigvalsh(v)
    tolerance = max(SYMMETRY_TOLERANCE, 64.0 * v.shape[-1] * torch.finfo(v.dtype).eps)
    if bool((values[..., 0] < -tolerance * v.abs().amax((-2, -1))).any()):
        raise ValueError(
            f"v must be positive semidefinite; its smallest eigenvalue is {float(values.min()):.3g}"
        )


def _as_given(tensor: Tensor, v: Covariance) -> Covariance:
    return tensor if isinstance(v, Tensor) else tensor.numpy()
