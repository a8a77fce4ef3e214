"""Tokens on the sphere with noise from random value matrices: networks, chain and drift.

One layer of step h has the value matrix V = s I + (sigma / sqrt h) W / sqrt d, where s = 1 (-1 for
repulsion). W (d, d) has independent N(0, 1) entries, new in each layer and common to all tokens:

    X' = N( X + s h A X + sigma sqrt(h) A X W / sqrt d ),    A = w(X X^T),    N(y) = y / |y|.

For sigma = 0 this is the layer-normalised network of Geshkovski, Letrouit, Polyanskiy and Rigollet
(arXiv 2312.10794) with V = s I. As h -> 0 the Gram matrix R of X follows an SDE. Before the rows
are normalised, with R = F F^T, U = A R and C = A R A^T,

    dR = (s U + s U^T + sigma^2 C) dt + (sigma / sqrt d) (A F dH F^T + transpose),

since W W^T / d has mean I; H is a Brownian motion of square matrices, so that

    d<R_ij, R_kl> = (sigma^2 / d) (C_ik R_jl + C_il R_jk + C_jk R_il + C_jl R_ik) dt.

Ito's formula for R_ij / sqrt(R_ii R_jj) at R_ii = R_jj = 1 gives the drift

    Phi_ij + sigma^2 [ (1 - (2 - R_ij^2) / d) C_ij - (1 - 1/d) R_ij (C_ii + C_jj) / 2 ]

with the flow's field Phi (`SphereAttention.gram_field`). The noise has a variance of order
sigma^2 / d, but as d -> infinity the drift sigma^2 (C_ij - R_ij (C_ii + C_jj) / 2) remains. This
attraction is due to the noise alone: tokens with similar weights receive similar noise.
"""

from __future__ import annotations

import math

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import check_count, check_positive, check_width, with_types
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.network import WeightProduct
from shaped_attention.sphere.array_arguments import also_of_arrays
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import Observe, check_start
from shaped_attention.sphere.layers import check_layers, run_layers, unprojected
from shaped_attention.sphere.random_parts import SpherePart
from shaped_attention.sphere.unit_vectors import unit_rows, unit_tokens

_LARGEST_SCALE = 1e12
"""Largest sigma and step: with weights of at most exp(600) nothing overflows."""


@recorded("noisy network")
def noisy_network(
    attention: SphereAttention,
    start: Float[Tensor, "samples N d"],
    sigma: float,
    step: float,
    layers: int,
    *,
    seed: int = 0,
    save_every: int = 1,
    observe: Observe | None = None,
) -> xr.Dataset:
    """Sample explicit networks, with a Gaussian matrix W (d, d) for each layer and sample.

    One layer is X' = N(X + s h A X + sigma sqrt(h) A X W / sqrt d), with N(y) = y / |y|.

    Parameters
    ----------
    attention
        Attention, which gives the weights A and the sign s (-1 for repulsion).
    start
        Unit tokens (samples, N, d); d is the dimension of the networks.
    sigma
        Strength of the noise, from 0 to 1e12.
    step, layers
        Positive step h, at most 1e12, and number of layers; layer l ends at time l h.
    seed
        Seed of the matrices (integer >= 0). They are independent of an initial condition with the
        same seed and of the noise of `noisy_chain`.
    save_every
        Number of layers between stored ones; layer 0 and the last are always stored.
    observe
        Function of Gram matrices (B, N, N) that returns (B, ...); None keeps the matrices.

    Returns
    -------
    xarray.Dataset like that of `sphere_network`: `V` (time, sample, row, col) and `stopping_time`,
    or `observed` (time, sample, ...); `start`; and the layer as a second coordinate. Without noise
    it equals that of `sphere_network` with normalise="after".

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If a token becomes zero, which has no direction.
    """
    check_start(start)
    dimension = start.shape[-1]
    _check_run(sigma, step, layers, seed, save_every)
    key = stream_key(seed, "sphere", SpherePart.NOISY_NETWORK)
    scale = _noise_scale(attention, sigma, step, dimension)

    def advance(tokens: Tensor, layer: int, first: int) -> Tensor:
        mixed = unprojected(attention, tokens, layer * step)
        moved = tokens + step * mixed
        if sigma > 0.0:
            samples = torch.arange(first, first + len(tokens), device=tokens.device)
            project = WeightProduct(Draws(key, samples, layer), first)
            moved = moved + scale * project(mixed, dimension)
        return unit_tokens(moved, layer + 1)

    return run_layers(start, step, layers, save_every, advance, observe)


@recorded("noisy chain")
def noisy_chain(
    attention: SphereAttention,
    start: Float[Tensor, "samples N r"],
    dimension: int,
    sigma: float,
    step: float,
    layers: int,
    *,
    seed: int = 0,
    save_every: int = 1,
    observe: Observe | None = None,
) -> xr.Dataset:
    """Sample Gram matrices with the law of `noisy_network`, at a cost independent of d.

    Write X = F Q with F (N, r) and Q (r, d) with orthonormal rows. Q W is an (r, d) Gaussian
    matrix. Its part H = (Q W) Q^T along Q is Gaussian (r, r). Its part orthogonal to Q is
    independent of H and has the Gram matrix of a Gaussian (r, d - r) matrix,
    B B^T ~ Wishart_r(d - r, I). So before normalisation

        R' = D D^T + E E^T,   D = F + s h A F + sigma sqrt(h/d) A F H,   E = sigma sqrt(h/d) A F B,

    exactly. The next F is [D, E] with normalised rows, reduced by QR to N columns if it has more.
    B has d - r columns if d - r <= r + 1 and r otherwise, so F never has more than d columns.

    Parameters
    ----------
    attention, sigma, step, layers, save_every, observe
        As for `noisy_network`.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`.
    dimension
        Dimension d of the networks, at least min(N, r).
    seed
        Seed of the noise (integer >= 0), which is independent of an initial condition with the same
        seed.

    Returns
    -------
    xarray.Dataset like that of `noisy_network`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If a token becomes zero, which has no direction.
    """
    check_start(start)
    check_width("dimension", dimension)
    count = start.shape[-2]
    if dimension < min(start.shape[-2:]):
        raise ValueError(
            f"dimension={dimension!r}: at least {min(start.shape[-2:])} is needed for a start of "
            f"shape {tuple(start.shape)}"
        )
    _check_run(sigma, step, layers, seed, save_every)
    key = stream_key(seed, "sphere", SpherePart.NOISY_CHAIN)
    scale = _noise_scale(attention, sigma, step, dimension)

    def advance(tokens: Tensor, layer: int, first: int) -> Tensor:
        if tokens.shape[-1] > count:
            tokens = _reduced(tokens)
        mixed = unprojected(attention, tokens, layer * step)
        moved = tokens + step * mixed
        if sigma == 0.0:
            return unit_tokens(moved, layer + 1)
        columns = tokens.shape[-1]
        samples = torch.arange(first, first + len(tokens), device=tokens.device)
        draws = Draws(key, samples, layer)
        moved = moved + scale * (mixed @ draws.normal(columns, columns))
        if dimension > columns:
            rest = draws.wishart_factor(columns, dimension - columns)
            moved = torch.cat([moved, scale * (mixed @ rest)], dim=-1)
        unit = unit_tokens(moved, layer + 1)
        return unit_rows(_reduced(unit)) if unit.shape[-1] > count else unit

    return run_layers(start, step, layers, save_every, advance, observe)


@also_of_arrays("v")
@with_types
def common_noise_drift(
    attention: SphereAttention, v: Float[Tensor, "*B N N"], dimension: int, sigma: float
) -> Float[Tensor, "*B N N"]:
    """Return the drift of Gram matrices `v` (..., N, N) of `noisy_network` in the limit h -> 0.

    It is Phi_ij + sigma^2 [ (1 - (2 - v_ij^2) / d) C_ij - (1 - 1/d) v_ij (C_ii + C_jj) / 2 ] with
    C = A v A^T, the weights A and Phi = ``attention.gram_field(v)``. Accepts a tensor or an array
    and returns the same kind.

    Raises
    ------
    ValueError
        If `v` does not have unit diagonal, or another argument is outside its range.
    """
    check_width("dimension", dimension)
    _check_scale("sigma", sigma)
    if v.ndim < 2 or v.shape[-1] != v.shape[-2]:
        raise ValueError(f"v has shape {tuple(v.shape)}; square matrices (..., N, N) are needed")
    if not bool(((v.diagonal(dim1=-2, dim2=-1) - 1.0).abs() < 1e-6).all()):
        raise ValueError("v has diagonal entries that are not 1; cosines of tokens are needed")
    weights = attention.weights(v)
    c = weights @ v @ weights.mT
    own = c.diagonal(dim1=-2, dim2=-1)
    mean = 0.5 * (own[..., :, None] + own[..., None, :])
    pull = (1.0 - (2.0 - v * v) / dimension) * c - (1.0 - 1.0 / dimension) * v * mean
    return attention.gram_field(v) + sigma**2 * pull


def _reduced(factor: Float[Tensor, "B N c"]) -> Float[Tensor, "B N N"]:
    """Return a factor of the same Gram matrices with N <= c columns: R^T if factor^T = Q R."""
    return torch.linalg.qr(factor.mT, mode="r").R.mT


def _noise_scale(attention: SphereAttention, sigma: float, step: float, dimension: int) -> float:
    """Return s sigma sqrt(h / d): W multiplies s A X here, and s undoes its sign."""
    sign = -1.0 if attention.repulsion else 1.0
    return sign * sigma * math.sqrt(step / dimension)


def _check_scale(name: str, value: float) -> None:
    if isinstance(value, bool) or value != 0.0:
        check_positive(name, value)
        if value > _LARGEST_SCALE:
            raise ValueError(f"{name}={value!r}: at most {_LARGEST_SCALE:g} is needed")


def _check_run(sigma: float, step: float, layers: int, seed: int, save_every: int) -> None:
    _check_scale("sigma", sigma)
    check_layers(step, layers, save_every)
    _check_scale("step", step)
    check_count("seed", seed, lowest=0)
