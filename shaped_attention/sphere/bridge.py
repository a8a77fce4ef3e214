"""Tokens on the sphere with the noise of random value matrices: networks, chain, generator.

One layer of step h has the value matrix V = s I + (sigma / sqrt h) W / sqrt d, where s = 1 (-1 for
repulsion) and W (d, d) has independent N(0, 1) entries, new in each layer, common to all tokens:

    X' = N( X + s h A X + sigma sqrt(h) A X W / sqrt d ),    A = w(X X^T),    N(y) = y / |y|.

For sigma = 0 this is the discrete layer-normalised network of the flow of Geshkovski, Letrouit,
Polyanskiy and Rigollet (arXiv 2312.10794), their V = s I. For h -> 0 the Gram matrix R of X follows
an SDE. Before the rows are normalised, with R = F F^T, U = A R and C = A R A^T,

    dR = (s U + s U^T + sigma^2 C) dt + (sigma / sqrt d) (A F dH F^T + transpose),

since W W^T / d has mean I; H is a Brownian motion of square matrices, so that

    d<R_ij, R_kl> = (sigma^2 / d) (C_ik R_jl + C_il R_jk + C_jk R_il + C_jl R_ik) dt.

Ito's formula for R_ij / sqrt(R_ii R_jj) at R_ii = R_jj = 1 gives the drift

    F_ij + sigma^2 [ (1 - (2 - R_ij^2) / d) C_ij - (1 - 1/d) R_ij (C_ii + C_jj) / 2 ]

with the flow's field F (`SphereAttention.gram_field`). The noise has a variance of order
sigma^2 / d, but for d -> infinity there remains the drift sigma^2 (C_ij - R_ij (C_ii + C_jj) / 2),
a pull by the noise alone: tokens with like weights receive like noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.checks import check_count, check_positive, check_width
from shaped_attention.draws import Draws, stream_key
from shaped_attention.network import WeightProduct
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import Observe, check_start, flow_attributes, flow_variables

_CHAIN_STREAM, _NETWORK_STREAM = 1, 2

_LARGEST_SCALE = 1e12
"""Of sigma and the step: with weights of at most exp(600) nothing overflows."""

_CHUNK_ENTRIES = 2**18

_Advance = Callable[[Tensor, int, int], Tensor]
"""The next tokens of a chunk, from these, the number of the layer and of the first sample."""


def noisy_network(
    attention: SphereAttention,
    start_tokens: Float[Tensor, "samples N d"],
    sigma: float,
    step: float,
    layers: int,
    *,
    seed: int = 0,
    save_every: int | None = None,
    observe: Observe | None = None,
) -> xr.Dataset:
    """Explicit networks: a real Gaussian matrix W (d, d) for each layer and sample.

    Parameters
    ----------
    attention
        The weights A and the sign s.
    start_tokens
        Unit tokens (samples, N, d); d is the dimension of the networks.
    sigma
        Strength of the noise, from 0 to 1e12.
    step, layers
        h, positive, at most 1e12, and the number of layers; layer l ends at time l h.
    seed
        Whole number >= 0, of the matrices. They are independent of a start with the same seed and
        of those of `noisy_chain`.
    save_every
        Keep every so many layers, and the last; by default the start and the last.
    observe
        Function of Gram matrices (B, N, N) that gives (B, ...); None keeps them.

    Returns
    -------
    xarray.Dataset as that of `sphere_flow`: `V` (time, sample, row, col), `stopping_time` and
    `start`, or `observed` (time, sample, ...). A token whose new vector is 0, which has no
    direction, keeps its place.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_start(start_tokens)
    dimension = start_tokens.shape[-1]
    _check_run(sigma, step, layers, seed, save_every)
    key = stream_key(seed, "sphere", _NETWORK_STREAM)
    scale = sigma * math.sqrt(step / dimension)

    def advance(tokens: Tensor, layer: int, first: int) -> Tensor:
        mixed, moved = _mixed_and_moved(attention, tokens, step)
        if sigma > 0.0:
            samples = torch.arange(first, first + len(tokens))
            project = WeightProduct(Draws(key, samples, layer), first)
            moved = moved + scale * project(mixed, dimension)
        return _unit_rows(moved, tokens)

    parameters = {"sigma": sigma, "step": step, "layers": layers, "seed": seed}
    return _run(
        "noisy network", attention, start_tokens, parameters, advance, save_every, observe
    )  # fmt: skip


def noisy_chain(
    attention: SphereAttention,
    start: Float[Tensor, "samples N r"],
    dimension: int,
    sigma: float,
    step: float,
    layers: int,
    *,
    seed: int = 0,
    save_every: int | None = None,
    observe: Observe | None = None,
) -> xr.Dataset:
    """Gram matrices with the law of `noisy_network`, at a cost independent of the dimension.

    X = F Q with F (N, r) and orthonormal rows Q (r, d). Q W is an (r, d) Gaussian matrix; its part
    (Q W) Q^T = H along Q is Gaussian (r, r), and what is orthogonal to Q is independent of H with
    the Gram of a Gaussian (r, d - r), B B^T ~ Wishart_r(d - r, I). So before normalisation

        R' = D D^T + E E^T,   D = F + s h A F + sigma sqrt(h/d) A F H,   E = sigma sqrt(h/d) A F B,

    exactly. The next F is [D, E], reduced to N columns if it has more (by QR), with rows of
    length 1. B has r columns, or d - r if these are fewer or r + 1: F never has more than d.

    Parameters
    ----------
    attention, sigma, step, layers, save_every, observe
        As for `noisy_network`.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`.
    dimension
        d, at least min(N, r).
    seed
        Whole number >= 0, of the noise; independent of a start with the same seed.

    Returns
    -------
    xarray.Dataset as that of `noisy_network`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
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
    key = stream_key(seed, "sphere", _CHAIN_STREAM)
    scale = sigma * math.sqrt(step / dimension)

    def advance(tokens: Tensor, layer: int, first: int) -> Tensor:
        if tokens.shape[-1] > count:
            tokens = _reduced(tokens)
        mixed, moved = _mixed_and_moved(attention, tokens, step)
        if sigma == 0.0:
            return _unit_rows(moved, tokens)
        columns = tokens.shape[-1]
        draws = Draws(key, torch.arange(first, first + len(tokens)), layer)
        moved = moved + scale * (mixed @ draws.normal(columns, columns))
        if dimension > columns:
            rest = draws.wishart_factor(columns, dimension - columns)
            moved = torch.cat([moved, scale * (mixed @ rest)], dim=-1)
        unit = _unit_rows(moved, torch.nn.functional.pad(tokens, (0, moved.shape[-1] - columns)))
        return _unit_rows(_reduced(unit), tokens) if unit.shape[-1] > count else unit

    parameters = {
        "dimension": dimension, "sigma": sigma, "step": step, "layers": layers, "seed": seed,
    }  # fmt: skip
    return _run("noisy chain", attention, start, parameters, advance, save_every, observe)


def common_noise_drift(
    attention: SphereAttention, v: Float[Tensor, "*B N N"], dimension: int, sigma: float
) -> Float[Tensor, "*B N N"]:
    """The drift of Gram matrices (..., N, N) for h -> 0: see the module, with R = v.

    Raises
    ------
    ValueError
        If `v` has no unit diagonal, or another argument is outside its range.
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
    """A factor of the same Gram matrices with N <= c columns: factor^T = Q R gives R^T."""
    return torch.linalg.qr(factor.mT, mode="r").R.mT


def _mixed_and_moved(
    attention: SphereAttention, tokens: Float[Tensor, "B N r"], step: float
) -> tuple[Float[Tensor, "B N r"], Float[Tensor, "B N r"]]:
    """A X and X + s h A X."""
    mixed = attention.weights(tokens @ tokens.mT) @ tokens
    return mixed, tokens + (-step if attention.repulsion else step) * mixed


def _unit_rows(rows: Float[Tensor, "B N c"], old: Float[Tensor, "B N c"]) -> Tensor:
    """Rows divided by their lengths, and the old one in the place of a row that is 0."""
    largest = rows.abs().amax(-1, keepdim=True)
    # The squares of entries of the size of exp(600) would overflow.
    scaled = rows / torch.where(largest > 0.0, largest, 1.0)
    scaled = torch.where(largest > 0.0, scaled, old)
    return scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)


def _run(
    sampler: str,
    attention: SphereAttention,
    start: Float[Tensor, "samples N r"],
    parameters: dict[str, Any],
    advance: _Advance,
    save_every: int | None,
    observe: Observe | None,
) -> xr.Dataset:
    """The result of a sampler, computed in chunks of samples that stay in the cache."""
    layers, step = parameters["layers"], parameters["step"]
    kept = sorted({*range(0, layers, layers if save_every is None else save_every), layers})
    size = max(1, _CHUNK_ENTRIES // start[0].numel())
    parts = []
    for first in range(0, len(start), size):
        tokens = start[first : first + size].double()
        found = []
        for layer in range(layers + 1):
            if layer in kept:
                gram = tokens @ tokens.mT
                found.append(gram if observe is None else observe(gram))
            if layer < layers:
                tokens = advance(tokens, layer, first)
        parts.append(torch.stack(found))
    times: NDArray[np.float64] = np.array(kept) * step
    variables = flow_variables(torch.cat(parts, dim=1).numpy()[None], start, observe)
    specification = {"attention": asdict(attention), **parameters, "save_every": save_every}
    return (
        variables.isel(beta=0)
        .assign_coords(time=times)
        .assign_attrs(flow_attributes(sampler, specification, times))
    )


def _check_scale(name: str, value: float) -> None:
    if isinstance(value, bool) or value != 0.0:
        check_positive(name, value)
        if value > _LARGEST_SCALE:
            raise ValueError(f"{name}={value!r}: at most {_LARGEST_SCALE:g} is needed")


def _check_run(sigma: float, step: float, layers: int, seed: int, save_every: int | None) -> None:
    _check_scale("sigma", sigma)
    check_positive("step", step)
    _check_scale("step", step)
    check_count("layers", layers)
    check_count("seed", seed, lowest=0)
    if save_every is not None:
        check_count("save_every", save_every)
