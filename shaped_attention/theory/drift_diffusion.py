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

from shaped_attention.blocks.base import Layer, Limit, Parameters, blocks_of, check_limit
from shaped_attention.blocks.overrides import Overrides, overridden
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.checks import check_fraction, real_array
from shaped_attention.numerics.covariance import SYMMETRY_TOLERANCE
from shaped_attention.numerics.factor import semidefinite_cholesky
from shaped_attention.numerics.primitives import Numbers

Covariance = TypeVar("Covariance", NDArray[np.float64], Tensor)


def drift(
    layer: Layer,
    v: Covariance,
    *,
    at: float = 0.0,
    parameters: Overrides | Sequence[Overrides] | None = None,
) -> Covariance:
    """Return the drift b(V) (..., m, m) of the limit, the sum over the blocks of a layer.

    Parameters
    ----------
    layer
        A block, a list of blocks, or a `Pattern`.
    v
        Covariances (..., m, m), positive semidefinite, a NumPy array or a torch tensor. The result
        has the same type, and is differentiable in a tensor of regular matrices.
    at
        Relative depth t / T in [0, 1] at which schedules are evaluated.
    parameters
        Tensors () that replace parameters, by name, as in `pathwise`. The result is differentiable
        in them if `v` is a tensor.

    Raises
    ------
    ValueError
        If `v` is not a finite array of symmetric positive semidefinite matrices, or a block does
        not fit its size or has no limit.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, equicorrelated
    >>> drift(ShapedAttention(gamma=0.5), equicorrelated(tokens=2, rho=0.0))
    array([[0.0625, 0.    ],
           [0.    , 0.0625]])
    """
    tensor = _as_tensor(layer, v)
    F = semidefinite_cholesky(tensor)
    total = torch.zeros_like(tensor)
    parts = limits_at(layer, at, parameters)
    for limit, p, share in parts:
        factor_drift = limit.factor_drift(p, F)
        if factor_drift is not None:
            total = total + share * symmetric(factor_drift @ F.mT)
        noise = unit_noise(limit, p, F)
        if noise is not None:
            total = total + share * (noise @ noise.mT).sum(0)
        growth = limit.growth(p, tensor)
        total = total - share * limit.decay(p) * tensor
        if growth is not None:
            total = total + share * growth
    return _as_given(total, v)


def diffusion(
    layer: Layer,
    v: Covariance,
    *,
    at: float = 0.0,
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
    F = semidefinite_cholesky(tensor)
    parts = limits_at(layer, at, parameters)
    total = sum(share * limit.linear_rate(p) for limit, p, share in parts) * linear_diffusion(
        tensor
    )
    for limit, p, share in parts:
        noise = unit_noise(limit, p, F)
        if noise is not None:
            moved = symmetric(noise @ F.mT)
            total = total + share * torch.einsum("e...ab,e...cd->...abcd", moved, moved)
    i, j = torch.tril_indices(*tensor.shape[-2:])
    return _as_given(total[..., i, j, :, :][..., i, j], v)


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
    sizes = _Sizes()
    if limit.factor_noise(p, factor, sizes) is None:
        return None
    count = sizes.total
    units = torch.eye(count, dtype=factor.dtype, device=factor.device)
    rows = [limit.factor_noise(p, factor, _Unit(unit)) for unit in units]
    return torch.stack([row for row in rows if row is not None])


class _Sizes(Numbers):
    """Numbers that only count the normals drawn."""

    def __init__(self) -> None:
        self.total = 0

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return zeros, and count them."""
        self.total += rows * columns
        return torch.zeros(rows, columns, dtype=torch.float64)


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
    return tensor


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
            f"v is indefinite: its smallest eigenvalue is {float(values.min()):.3g}; positive "
            "semidefinite matrices are needed"
        )


def _as_given(tensor: Tensor, v: Covariance) -> Covariance:
    return tensor if isinstance(v, Tensor) else tensor.numpy()
