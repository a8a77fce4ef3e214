"""Flow of tokens in all d coordinates under self-attention with arbitrary matrices.

This is the counterpart of `shaped_attention.sphere.flow` for fields that are not functions of the
Gram matrix (arXiv 2312.10794, section 2), with the same integrator and the same kind of result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import check_count
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.devices import check_device
from shaped_attention.sphere.flow import (
    Observe,
    check_start,
    checked_times,
    flow_variables,
    follow,
    observed,
)
from shaped_attention.sphere.random_parts import SpherePart
from shaped_attention.sphere.token_attention import TokenAttention
from shaped_attention.sphere.unit_vectors import unit_rows


def random_tokens(
    tokens: int,
    dimension: int,
    samples: int = 1,
    seed: int = 0,
    *,
    device: str | torch.device = "cpu",
) -> Float[Tensor, "samples N d"]:
    """Draw independent uniform tokens on S^{d-1}, in all d coordinates.

    The Gram matrices have the same law as those of `uniform_start`, but differ from them for the
    same seed. They depend on the device only by rounding.

    Raises
    ------
    ValueError
        If an argument is not an integer in its range, or the device is unknown or unavailable.
    """
    check_count("tokens", tokens)
    check_count("dimension", dimension)
    check_count("samples", samples)
    check_count("seed", seed, lowest=0)
    numbers = torch.arange(samples, device=check_device(device))
    draws = Draws(stream_key(seed, "sphere", SpherePart.TOKENS), numbers, 0)
    return unit_rows(draws.normal(tokens, dimension))


@recorded("sphere tokens")
def token_flow(
    attention: TokenAttention,
    start: Float[Tensor, "samples N d"],
    times: Sequence[float],
    *,
    observe: Observe | None = None,
    keep_tokens: bool = False,
    tolerance: float = 1e-5,
    chunk: int | None = None,
) -> xr.Dataset:
    """Follow tokens on the sphere and keep their Gram matrices, or a function of them.

    Parameters
    ----------
    attention
        Field of the flow. Matrices that differ between samples need one set for each sample of
        `start`.
    start
        Unit tokens (samples, N, d) in all coordinates, such as those of `random_tokens`.
    times
        Increasing times >= 0.
    observe
        Function of Gram matrices (B, N, N) that returns (B, ...); None keeps the matrices.
    keep_tokens
        Whether to keep the tokens too.
    tolerance
        Largest local error of a token per step.
    chunk
        Number of samples integrated together. It changes results only by rounding errors.

    Returns
    -------
    xarray.Dataset
        A result like that of `sphere_flow`: `V` (time, sample, row, col) and `stopping_time`, or
        `observed` (time, sample, ...); `start`; and `tokens` (time, sample, row, feature) with
        `keep_tokens`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the shapes are incompatible.
    FloatingPointError
        If the field overflows, or is too steep to integrate.
    """
    wanted = checked_times(times)
    check_start(start)
    if not isinstance(attention, TokenAttention):
        raise ValueError(
            f"attention={attention!r}: a TokenAttention is needed (sphere_flow takes a "
            "SphereAttention)"
        )
    attention.check_start(start)

    def look(tokens: Tensor) -> Tensor:
        # A copy, because the integrator overwrites these tokens.
        return tokens.clone() if keep_tokens else observed(tokens, observe)

    data = follow(
        attention.field, start, wanted.tolist(), look, tolerance, chunk,
        autonomous=attention.autonomous,
    )  # fmt: skip
    kept = data
    if keep_tokens:
        there = (torch.from_numpy(tokens).to(start.device) for tokens in kept)
        data = np.stack([observed(tokens, observe).cpu().numpy() for tokens in there])
    variables = flow_variables(data[None], start, observe).isel(beta=0)
    if keep_tokens:
        variables["tokens"] = (("time", "sample", "row", "feature"), kept)
    return variables.assign_coords(time=wanted).assign_attrs(horizon=float(wanted[-1]))
