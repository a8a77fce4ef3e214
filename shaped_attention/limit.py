"""Drift and diffusion of the limit as functions of V, for users and for tests.

No sampler uses the dense diffusion: stepping with it costs O(m^6).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer, blocks_of, check_limit, linear_diffusion
from shaped_attention.checks import real_array
from shaped_attention.covariance import SYMMETRY_TOLERANCE

Covariance = TypeVar("Covariance", NDArray[np.float64], Tensor)


def drift(layer: Layer, v: Covariance) -> Covariance:
    """The drift b(V) (..., m, m) of the limit; blocks of a layer add.

    Parameters
    ----------
    layer
        A block or a list of blocks.
    v
        Covariances (..., m, m), a NumPy array or a torch tensor; the result is of the same kind,
        and differentiable in a tensor where the variances are positive.

    Raises
    ------
    ValueError
        If `v` is not a finite array of symmetric matrices with variances >= 0 on their diagonals,
        or a block does not fit its size or has no limit.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, equicorrelated
    >>> drift(ShapedAttention(gamma=0.5), equicorrelated(tokens=2, rho=0.0))
    array([[0.0625, 0.    ],
           [0.    , 0.0625]])
    """
    tensor = _as_tensor(layer, v)
    total = torch.stack([block.drift(tensor) for block in blocks_of(layer)]).sum(0)
    return _as_given(total, v)


def diffusion(layer: Layer, v: Covariance) -> Covariance:
    """The diffusion matrix Sigma(V) (..., d, d), d = m (m + 1) / 2, of the half-vectorised V.

    The lower triangle is taken row by row; ``Sigma dt = Cov[d vech V]``. Arguments and errors are
    those of `drift`.

    Examples
    --------
    >>> from shaped_attention import ShapedMLP
    >>> diffusion(ShapedMLP(gamma=0.5), np.array([[2.0]]))
    array([[4.]])
    """
    tensor = _as_tensor(layer, v)
    blocks = blocks_of(layer)
    total = sum(block.linear_rate for block in blocks) * linear_diffusion(tensor)
    for block in blocks:
        extra = block.extra_diffusion(tensor)
        total = total if extra is None else total + extra
    i, j = torch.tril_indices(*tensor.shape[-2:])
    return _as_given(total[..., i, j, :, :][..., i, j], v)


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
    for block in blocks_of(layer):
        block.check(tensor.shape[-1], None)
    return tensor


def _check_symmetric(v: Float[Tensor, "*B m m"]) -> None:
    """Raise ValueError if a matrix is asymmetric beyond rounding, that of `check_covariance`."""
    if v.numel() == 0:
        return
    asymmetry = (v - v.mT).abs().amax((-2, -1))
    tolerance = max(SYMMETRY_TOLERANCE, 64.0 * torch.finfo(v.dtype).eps)
    if bool((asymmetry > tolerance * v.abs().amax((-2, -1))).any()):
        raise ValueError(
            f"v is asymmetric: entries differ from their mirror image by up to "
            f"{float(asymmetry.max()):.3g}; symmetric matrices are needed"
        )


def _as_given(tensor: Tensor, v: Covariance) -> Covariance:
    return tensor if isinstance(v, Tensor) else tensor.numpy()
