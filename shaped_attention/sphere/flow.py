"""Gram matrices of tokens under self-attention on the sphere, for batches of realisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.checks import check_count, check_positive, real_array
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.integrate import Field, integrate_flow

Observe = Callable[[Tensor], Tensor]

CHUNK_ENTRIES = 2**16
"""Token entries per chunk: few enough for the cache, enough to hide the interpreter's cost."""

_FINEST = 1e-12


@recorded("sphere")
def sphere_flow(
    attention: SphereAttention,
    start: Float[Tensor, "samples N r"],
    times: Sequence[float],
    *,
    betas: Sequence[float] | None = None,
    observe: Observe | None = None,
    tolerance: float = 1e-5,
    chunk: int | None = None,
) -> xr.Dataset:
    """Follow tokens on the sphere and keep their Gram matrices, or a function of them.

    Parameters
    ----------
    attention
        Field of the flow.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`. The
        flow runs on their device.
    times
        Increasing times >= 0.
    betas
        Inverse temperatures that replace the attention's. The same initial tokens are followed for
        each, all together.
    observe
        Function of Gram matrices (B, N, N) that returns a tensor (B, ...), such as
        ``lambda v: cluster_count(v, 1e-3)``. None keeps the matrices, which `compare` and figures
        need.
    tolerance
        Largest local error of a token per step, at least 1e-12. Errors of V are of this order
        times the number of steps while tokens separate, and smaller where they approach.
    chunk
        Number of samples integrated together. It changes results only by rounding errors.

    Returns
    -------
    xarray.Dataset
        A result like those of the samplers, with

        - `V` (time, sample, row, col), to rounding symmetric, positive semidefinite and of unit
          diagonal, and `stopping_time`, which is infinite because nothing explodes; or, with
          `observe`, `observed` (time, sample, ...);
        - `start` (sample, row, feature).

        With `betas`, the first dimension of `V` or `observed` is `beta`; ``isel(beta=0)`` is a
        single result.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If the field is too steep to integrate.
    """
    wanted = checked_times(times)
    check_start(start)
    if not isinstance(attention, SphereAttention):
        raise ValueError(
            f"attention={attention!r}: a SphereAttention is needed (token_flow takes a "
            "TokenAttention)"
        )
    every = [attention.beta]
    if betas is not None:
        listed = real_array(betas, "betas")
        if listed.ndim != 1 or listed.size == 0:
            raise ValueError("betas: a list of numbers, at least one, is needed")
        betas = [replace(attention, beta=beta).beta for beta in listed.tolist()]
        every = betas
    of_start = torch.tensor(every, dtype=start.dtype, device=start.device)
    of_sample = of_start.repeat_interleave(len(start))[:, None, None]

    def field(tokens: Tensor, _time: Tensor, which: Tensor) -> Tensor:
        return attention.field(tokens, beta=of_sample[which])

    def look(tokens: Tensor) -> Tensor:
        return observed(tokens, observe)

    repeated = start.repeat(len(every), 1, 1)
    found = follow(field, repeated, wanted.tolist(), look, tolerance, chunk, autonomous=True)
    data = found.reshape(len(wanted), len(every), len(start), *found.shape[2:]).swapaxes(0, 1)
    variables = flow_variables(data, start, observe)
    variables = variables.isel(beta=0) if betas is None else variables.assign_coords(beta=betas)
    return variables.assign_coords(time=wanted).assign_attrs(horizon=float(wanted[-1]))


def follow(
    field: Field,
    start: Float[Tensor, "samples N r"],
    times: Sequence[float],
    observe: Observe,
    tolerance: float,
    chunk: int | None = None,
    *,
    autonomous: bool = False,
) -> NDArray[np.float64]:
    """Return ``observe(tokens)`` (time, sample, ...) along a flow, in chunks of samples.

    Raises
    ------
    ValueError
        If the tolerance or the chunk is outside its range.
    FloatingPointError
        If `integrate_flow` fails.
    """
    check_positive("tolerance", tolerance)
    if tolerance < _FINEST:
        raise ValueError(f"tolerance={tolerance!r}: at least {_FINEST:g} is needed (rounding)")
    size = max(1, CHUNK_ENTRIES // start[0].numel()) if chunk is None else chunk
    check_count("chunk", size)
    parts = []
    for first in range(0, len(start), size):

        def of_chunk(tokens: Tensor, time: Tensor, which: Tensor, first: int = first) -> Tensor:
            return field(tokens, time, which + first)

        part = start[first : first + size]
        found = integrate_flow(of_chunk, part, times, observe, tolerance, autonomous=autonomous)
        parts.append(torch.stack(found))
    return torch.cat(parts, dim=1).cpu().numpy()


def checked_times(times: ArrayLike) -> NDArray[np.float64]:
    """Return `times` as an array; raise ValueError unless finite, increasing and >= 0."""
    wanted = real_array(times, "times")
    if wanted.ndim != 1 or wanted.size == 0 or not np.isfinite(wanted).all():
        raise ValueError("times: a list of finite numbers, at least one, is needed")
    if (wanted < 0.0).any() or (np.diff(wanted) <= 0.0).any():
        raise ValueError("times: increasing numbers >= 0 are needed")
    return wanted


def check_start(start: Tensor) -> None:
    """Raise ValueError unless `start` holds unit tokens (samples, N, r)."""
    if not isinstance(start, Tensor) or start.ndim != 3 or start.numel() == 0:
        tensor = isinstance(start, Tensor)
        found = f"has shape {tuple(start.shape)}" if tensor else f"has type {type(start).__name__}"
        raise ValueError(
            f"start {found}; a tensor (samples, N, r) is needed, such as "
            "given_start(tokens) makes of an array"
        )
    if not bool(((start.norm(dim=-1) - 1.0).abs() < 1e-6).all()):
        raise ValueError("start has tokens that are not of norm 1; unit vectors are needed")


def observed(tokens: Float[Tensor, "B N r"], observe: Observe | None) -> Tensor:
    """Return the Gram matrices (B, N, N) of tokens, or `observe` of them.

    Raises
    ------
    ValueError
        If `observe` does not return a tensor with as many samples.
    """
    gram = tokens @ tokens.mT
    if observe is None:
        return gram
    if not callable(observe):
        raise ValueError(f"observe={observe!r}: a function of Gram matrices (B, N, N) is needed")
    seen = observe(gram)
    if not isinstance(seen, Tensor) or seen.shape[:1] != gram.shape[:1]:
        raise ValueError(
            f"observe gives {type(seen).__name__}; a tensor (B, ...) for Gram matrices (B, N, N) "
            "is needed"
        )
    return seen


def flow_variables(data: NDArray[np.float64], start: Tensor, observe: Observe | None) -> xr.Dataset:
    """Return the variables of a flow from data (beta, time, sample, ...)."""
    first = {"start": (("sample", "row", "feature"), start.cpu().numpy())}
    if observe is not None:
        rest = tuple(f"o{k}" for k in range(data.ndim - 3))
        return xr.Dataset({"observed": (("beta", "time", "sample", *rest), data), **first})
    return xr.Dataset(
        {
            "V": (
                ("beta", "time", "sample", "row", "col"), data,
                {"long_name": "Gram matrix of the tokens"},
            ),
            "stopping_time": ("sample", np.full(len(start), np.inf)),
            **first,
        }
    )  # fmt: skip
