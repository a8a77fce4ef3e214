"""Tokens under self-attention on the sphere, for batches of realisations: what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.checks import argument_error
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.integrate import Keep, checked_times, integrate_flow
from shaped_attention.sphere.token_attention import TokenAttention


@recorded("sphere")
def sphere_flow(
    attention: SphereAttention | TokenAttention,
    start: Float[Tensor, "samples N r"],
    times: Sequence[float],
    *,
    normalise: str | None = "after",
    keep: str | Callable[[Tensor], Tensor] = "V",
    keep_tokens: bool = False,
    tolerance: float = 1e-5,
    chunk: int | None = None,
) -> xr.Dataset:
    """Follow tokens on the sphere, or their directions and lengths, and keep their Gram matrices.

    Parameters
    ----------
    attention
        Field of the flow. Matrices of a `TokenAttention` that differ between samples need one set
        for each sample of `start`.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`. A
        `TokenAttention` needs all coordinates, r = d. The flow runs on their device.
    times
        Increasing times >= 0.
    normalise
        Where the layers that this flow describes normalise, as in `sphere_network`: "after"
        (Post-LN, the flow on the sphere), "before" (Pre-LN), or None. Lengths of tokens are 1 at
        first, and constant for "after". Under "before" a token x = r u with |u| = 1 follows
        du/dt = P_u A(u) / r and dr/dt = <u, A(u)>, with A the attention before the projection.
    keep
        "V" for the Gram matrices, which `compare` and figures need, or a function of Gram matrices
        (B, N, N) that returns a tensor (B, ...), such as ``lambda v: cluster_count(v, 1e-3)``.
    keep_tokens
        Whether to keep the tokens too.
    tolerance
        Largest local error of a token per step, divided by max(1, |x|), at least 1e-12. Errors of V
        are of this order times the number of steps while tokens separate, and smaller while they
        approach each other.
    chunk
        Number of samples integrated together. It changes results only by rounding errors.

    Returns
    -------
    xarray.Dataset
        A result like those of the samplers, with

        - `V` (time, sample, row, col), the Gram matrices, symmetric and positive semidefinite up to
          rounding, and `stopping_time`, which is infinite because nothing explodes; or, with a
          function, `kept` (time, sample, ...). The diagonal is 1 for "after"; otherwise its
          roots are `length` (time, sample, row), and ``sa.correlations(V)`` the cosines;
        - `start` (sample, row, feature);
        - with `keep_tokens`, `tokens` (time, sample, row, feature).

    Raises
    ------
    ValueError
        If an argument is outside its range, or the shapes are incompatible.
    FloatingPointError
        If the field overflows, or is too steep to integrate; or if a token comes within 10
        tolerances of 0 under "before", as under repulsion, which takes lengths to 0 in finite time.
    """
    at = checked_times(times)
    attention.check_start(start)
    check_normalise(normalise)

    def field(tokens: Tensor, time: Tensor, which: Tensor) -> Tensor:
        if normalise == "before":
            tokens = tokens / tokens.norm(dim=-1, keepdim=True)
        return attention.moved(tokens, time, which)

    kept = integrate_flow(
        field, start, at.tolist(),
        lambda tokens: tokens if keep_tokens else measured(tokens, keep), tolerance, chunk,
        autonomous=attention.autonomous, sphere=normalise == "after",
        directed=normalise == "before",
    )  # fmt: skip
    data = kept
    if keep_tokens:
        there = (torch.from_numpy(tokens).to(start.device) for tokens in kept)
        data = np.stack([measured(tokens, keep).cpu().numpy() for tokens in there])
    result = flow_result(data, start, keep, normalise != "after")
    if keep_tokens:
        result["tokens"] = (("time", "sample", "row", "feature"), kept)
    return result.assign_coords(time=at).assign_attrs(horizon=float(at[-1]))


def check_normalise(normalise: str | None) -> None:
    """Raise ValueError unless `normalise` is "after", "before" or None."""
    if normalise is not None and normalise not in ("after", "before"):
        raise argument_error("normalise", "'after', 'before' or None", normalise)


def measured(tokens: Float[Tensor, "B N r"], keep: str | Keep) -> Tensor:
    """Return the Gram matrices (B, N, N) of tokens, or a function of them."""
    gram = tokens @ tokens.mT
    if keep == "V":
        return gram
    if isinstance(keep, str):
        raise argument_error("keep", '"V" or a function of Gram matrices (B, N, N)', keep)
    return keep(gram)


def flow_result(
    data: NDArray[np.float64], start: Tensor, keep: str | Keep, lengths: bool = False
) -> xr.Dataset:
    """Return the variables of a flow from data (time, sample, ...), with `lengths` if any."""
    first = xr.Dataset({"start": (("sample", "row", "feature"), start.cpu().numpy())})
    if keep != "V":
        rest = tuple(f"o{k}" for k in range(data.ndim - 2))
        return first.assign(kept=(("time", "sample", *rest), data))
    if lengths:
        length = np.sqrt(np.diagonal(data, axis1=-2, axis2=-1))
        first["length"] = (("time", "sample", "row"), length)
    first["stopping_time"] = ("sample", np.full(len(start), np.inf))
    about = {"long_name": "Gram matrix of the tokens"}
    return first.assign(V=(("time", "sample", "row", "col"), data, about))
