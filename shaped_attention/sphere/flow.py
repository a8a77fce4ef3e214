"""Gram matrices of tokens under self-attention on the sphere, for batches of realisations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.checks import check_count, check_positive, real_array
from shaped_attention.results import FORMAT, plain, versions
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.integrate import Field, integrate_flow

Observe = Callable[[Tensor], Tensor]

_CHUNK_ENTRIES = 2**18
"""Entries of the tokens in a chunk: in the cache, and enough to hide the interpreter."""


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
    """Follow tokens on the sphere and keep their Gram matrices, or what `observe` makes of them.

    Parameters
    ----------
    attention
        The field.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`; the
        flow runs on their device.
    times
        Increasing times >= 0.
    betas
        Follow the same starts for each of these beta, together, in the place of the attention's.
    observe
        Function of Gram matrices (B, N, N) that gives (B, ...); None keeps them.
    tolerance
        Largest local error of a token in a step. Errors of V at the end are of this order times
        the number of steps, or less, since the flow contracts.
    chunk
        Samples that are integrated together; they do not change a sample's numbers beyond rounding.

    Returns
    -------
    xarray.Dataset
        A result as those of the samplers, with `V` (time, sample, row, col), symmetric, positive
        semidefinite and of unit diagonal to rounding, `stopping_time` (infinite: nothing explodes)
        and the `start` (sample, row, feature); or `observed` (time, sample, ...). With `betas`,
        `V` or `observed` has the dimension `beta` first.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    wanted = checked_times(times)
    check_start(start)
    if betas is not None and len(betas) == 0:
        raise ValueError("betas: at least one number is needed")
    every = [attention.beta] if betas is None else [replace(attention, beta=b).beta for b in betas]
    of_start = torch.tensor(every, dtype=start.dtype, device=start.device)
    of_sample = of_start.repeat_interleave(len(start))[:, None, None]

    def field(tokens: Tensor, _time: Tensor, which: Tensor) -> Tensor:
        return attention.field(tokens, of_sample[which])

    def look(tokens: Tensor) -> Tensor:
        gram = tokens @ tokens.mT
        return gram if observe is None else observe(gram)

    repeated = start.repeat(len(every), 1, 1)
    found = follow(field, repeated, wanted.tolist(), look, tolerance, chunk)
    data = found.reshape(len(wanted), len(every), len(start), *found.shape[2:]).swapaxes(0, 1)
    variables = flow_variables(data, start, observe)
    if betas is None:
        variables = variables.isel(beta=0)
    else:
        variables = variables.assign_coords(beta=list(betas))
    parameters = {"attention": asdict(attention), "betas": betas, "tolerance": tolerance}
    return variables.assign_coords(time=wanted).assign_attrs(
        flow_attributes("sphere", parameters, wanted)
    )


def run_again(
    result: xr.Dataset, specification: dict[str, Any], changes: dict[str, Any]
) -> xr.Dataset:
    """The flow of a result with Gram matrices again, from its start; see `results.rerun`."""
    arguments = {**specification, **changes}
    attention = arguments.pop("attention")
    if isinstance(attention, dict):
        attention = SphereAttention(**attention)
    start = arguments.pop("start", None)
    if start is None:
        start = torch.from_numpy(result["start"].values)
    return sphere_flow(attention, start, arguments.pop("times"), **arguments)


def follow(
    field: Field,
    start: Float[Tensor, "samples N r"],
    times: Sequence[float],
    observe: Observe,
    tolerance: float,
    chunk: int | None = None,
) -> NDArray[np.float64]:
    """``observe(tokens)`` (time, sample, ...) along a flow, integrated in chunks of samples.

    Raises
    ------
    ValueError
        If the tolerance or the chunk is outside its range.
    """
    check_positive("tolerance", tolerance)
    size = max(1, _CHUNK_ENTRIES // start[0].numel()) if chunk is None else chunk
    check_count("chunk", size)
    parts = []
    for first in range(0, len(start), size):

        def of_chunk(tokens: Tensor, time: Tensor, which: Tensor, first: int = first) -> Tensor:
            return field(tokens, time, which + first)

        part = start[first : first + size]
        parts.append(torch.stack(integrate_flow(of_chunk, part, times, observe, tolerance)))
    return torch.cat(parts, dim=1).cpu().numpy()


def checked_times(times: ArrayLike) -> NDArray[np.float64]:
    """`times` as an array of finite increasing numbers >= 0, or a ValueError."""
    wanted = real_array(times, "times")
    if wanted.ndim != 1 or wanted.size == 0 or not np.isfinite(wanted).all():
        raise ValueError("times: a list of finite numbers, at least one, is needed")
    if (wanted < 0.0).any() or (np.diff(wanted) <= 0.0).any():
        raise ValueError("times: increasing numbers >= 0 are needed")
    return wanted


def check_start(start: Tensor) -> None:
    """Raise ValueError unless these are unit tokens (samples, N, r)."""
    if not isinstance(start, Tensor) or start.ndim != 3 or start.numel() == 0:
        shape = tuple(start.shape) if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(f"start has shape {shape}; a tensor (samples, N, r) is needed")
    if not bool(((start.norm(dim=-1) - 1.0).abs() < 1e-6).all()):
        raise ValueError("start has tokens that are not of norm 1; unit vectors are needed")


def flow_variables(data: NDArray[np.float64], start: Tensor, observe: Observe | None) -> xr.Dataset:
    """What a flow keeps, from data (beta, time, sample, ...)."""
    if observe is not None:
        rest = tuple(f"o{k}" for k in range(data.ndim - 3))
        return xr.Dataset({"observed": (("beta", "time", "sample", *rest), data)})
    return xr.Dataset(
        {
            "V": (
                ("beta", "time", "sample", "row", "col"), data,
                {"long_name": "Gram matrix of the tokens"},
            ),
            "stopping_time": ("sample", np.full(len(start), np.inf)),
            "start": (("sample", "row", "feature"), start.cpu().numpy()),
        }
    )  # fmt: skip


def flow_attributes(
    sampler: str, parameters: dict[str, Any], times: NDArray[np.float64]
) -> dict[str, Any]:
    """Attributes of a result: format, specification and versions, as those of the samplers."""
    specification = {"sampler": sampler, **parameters, "times": times.tolist()}
    return {
        "format": FORMAT,
        "sampler": sampler,
        "horizon": float(times[-1]),
        "specification": json.dumps(specification, default=plain),
        "versions": json.dumps(versions()),
    }
