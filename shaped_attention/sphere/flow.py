"""Gram matrices of tokens under self-attention on the sphere, for batches of realisations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import check_count, check_positive, real_array
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.integrate import integrate_flow
from shaped_attention.version import __version__

_CHUNK_ENTRIES = 2**18
"""Entries of the tokens in a chunk: in the cache, and enough to hide the interpreter."""


def sphere_flow(
    attention: SphereAttention,
    start: Float[Tensor, "samples N r"],
    times: Sequence[float],
    *,
    observe: Callable[[Tensor], Tensor] | None = None,
    tolerance: float = 1e-5,
    chunk: int | None = None,
) -> xr.Dataset:
    """Follow tokens on the sphere and keep their Gram matrices, or what `observe` makes of them.

    Parameters
    ----------
    attention
        The field.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`.
    times
        Increasing times >= 0.
    observe
        Function of Gram matrices (B, N, N) that gives (B, ...); None keeps them.
    tolerance
        Largest local error of a token in a step. Errors of V at the end are of this order times
        the number of steps, or less, since the flow contracts.
    chunk
        Samples that are integrated together; they do not change a sample's numbers beyond rounding.

    Returns
    -------
    xarray.Dataset with `V` (time, sample, row, col), symmetric, positive semidefinite and of unit
    diagonal to rounding, or `observed` (time, sample, ...).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    wanted = real_array(times, "times")
    if wanted.ndim != 1 or wanted.size == 0 or not np.isfinite(wanted).all():
        raise ValueError("times: a list of finite numbers, at least one, is needed")
    if (wanted < 0.0).any() or (np.diff(wanted) <= 0.0).any():
        raise ValueError("times: increasing numbers >= 0 are needed")
    check_positive("tolerance", tolerance)
    if start.ndim != 3 or start.numel() == 0:
        raise ValueError(f"start has shape {tuple(start.shape)}; (samples, N, r) is needed")
    if not bool(((start.norm(dim=-1) - 1.0).abs() < 1e-6).all()):
        raise ValueError("start has tokens that are not of norm 1; unit vectors are needed")
    size = max(1, _CHUNK_ENTRIES // start[0].numel()) if chunk is None else chunk
    check_count("chunk", size)

    def look(tokens: Tensor) -> Tensor:
        gram = tokens @ tokens.mT
        return gram if observe is None else observe(gram)

    parts = [
        torch.stack(integrate_flow(attention.field, part, wanted.tolist(), look, tolerance))
        for part in start.split(size)
    ]
    data = torch.cat(parts, dim=1).numpy()
    name = "V" if observe is None else "observed"
    dims = ("row", "col") if observe is None else tuple(f"o{k}" for k in range(data.ndim - 2))
    return xr.Dataset(
        {name: (("time", "sample", *dims), data)},
        coords={"time": wanted},
        attrs={
            "attention": json.dumps(asdict(attention)),
            "tolerance": tolerance,
            "version": __version__,
        },
    )
