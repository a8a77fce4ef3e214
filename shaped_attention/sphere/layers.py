"""Discrete networks whose continuum limits are self-attention flows.

    after:   x' = N(x + h A(x)),  N(y) = y / |y|   (post-norm: after the residual sum),
    None:    x' = x + h A(x)                       (no normalisation),
    before:  x' = x + h A(N(x))                    (pre-norm: before the attention),

with A the attention (and MLP) before the projection. As h -> 0 with time = layer * h, the first
converges to the flow on the sphere, dx/dt = P_x A(x), since N(x + h y) = x + h P_x y + O(h^2). The
second is Euler's method for dx/dt = A(x) in R^d, the third for dx/dt = A(N(x)). The directions
u = N(x) of the third satisfy du/dt = P_u A(u) / |x|: the flow on the sphere with a clock 1 / |x|
for each token. Errors are of order h. With h = 1 the first is the network of arXiv 2312.10794,
section 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import check_count, check_positive
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import (
    CHUNK_ENTRIES,
    Observe,
    check_start,
    flow_variables,
    observed,
)
from shaped_attention.sphere.token_attention import TokenAttention
from shaped_attention.sphere.unit_vectors import unit_tokens

NORMALISATIONS = ("after", None, "before")

Advance = Callable[[Tensor, int, int], Tensor]
"""Map of a chunk's tokens, the layer's number and the first sample's number to the next tokens."""


@recorded("sphere network")
def sphere_network(
    attention: SphereAttention | TokenAttention,
    start: Float[Tensor, "samples N r"],
    step: float,
    layers: int,
    *,
    normalise: str | None = "after",
    save_every: int = 1,
    observe: Observe | None = None,
) -> xr.Dataset:
    """Pass tokens through the layers of a network and keep their Gram matrices.

    Parameters
    ----------
    attention
        Attention of every layer; matrices that depend on time are evaluated at layer * step.
    start
        Unit tokens (samples, N, r). `TokenAttention` needs all coordinates; min(N, d) suffice for
        `SphereAttention`.
    step
        Positive step h; 1 in practical networks.
    layers
        Number of layers.
    normalise
        With N(y) = y / |y|, "after": x' = N(x + h A(x)); None: x' = x + h A(x); or "before":
        x' = x + h A(N(x)).
    save_every
        Number of layers between stored ones; layer 0 and the last are always stored.
    observe
        Function of Gram matrices (B, N, N) that returns (B, ...); None keeps the matrices.

    Returns
    -------
    xarray.Dataset
        A result like that of `sphere_flow`, at times layer * step, with the layer as a second
        coordinate. `V` has unit diagonal only for "after".

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If the norm of a token overflows, or a token to be normalised is zero. (Without
        normalisation USA explodes in finite time, as its weights grow like e^{beta |x|^2}.)
    """
    check_start(start)
    check_layers(step, layers, save_every)
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise={normalise!r}: 'after', None or 'before' is needed")
    if isinstance(attention, TokenAttention):
        attention.check_start(start)

    def advance(tokens: Tensor, layer: int, first: int) -> Tensor:
        read = unit_tokens(tokens, layer) if normalise == "before" else tokens
        moved = tokens + step * unprojected(attention, read, layer * step, first)
        return unit_tokens(moved, layer + 1) if normalise == "after" else moved

    return run_layers(start, step, layers, save_every, advance, observe)


def run_layers(
    start: Float[Tensor, "samples N r"],
    step: float,
    layers: int,
    save_every: int,
    advance: Advance,
    observe: Observe | None,
) -> xr.Dataset:
    """Run a network of any kind, in chunks of samples that stay in the cache.

    Parameters
    ----------
    start
        Unit tokens (samples, N, r).
    step, layers, save_every
        As in `sphere_network`.
    advance
        Function that applies one layer to a chunk of samples.
    observe
        Function of Gram matrices (B, N, N) that returns (B, ...); None keeps the matrices.

    Returns
    -------
    xarray.Dataset like that of `sphere_network`.

    Raises
    ------
    FloatingPointError
        If the norm of a token overflows.
    """
    stored = np.append(np.arange(0, layers, save_every), layers)
    times = stored * step
    size = max(1, CHUNK_ENTRIES // start[0].numel())
    parts = []
    for first in range(0, len(start), size):
        tokens = start[first : first + size].double()
        found = [observed(tokens, observe)]
        for layer in range(layers):
            tokens = advance(tokens, layer, first)
            if not bool(torch.isfinite(tokens.square().sum(-1)).all()):
                raise FloatingPointError(f"layer {layer + 1} gives tokens that are not finite")
            if (layer + 1) % save_every == 0 or layer + 1 == layers:
                found.append(observed(tokens, observe))
        parts.append(torch.stack(found))
    data = torch.cat(parts, dim=1).cpu().numpy()
    variables = flow_variables(data[None], start, observe).isel(beta=0)
    variables = variables.assign_coords(time=times, layer=("time", stored))
    return variables.assign_attrs(horizon=float(times[-1]))


def unprojected(
    attention: SphereAttention | TokenAttention,
    tokens: Float[Tensor, "B N r"],
    time: float,
    first: int = 0,
) -> Float[Tensor, "B N r"]:
    """Return A(x): the attention (and MLP) of tokens of any norm, before the projection.

    The samples are consecutive, and `first` is the number of the first.
    """
    if isinstance(attention, TokenAttention):
        which = torch.arange(first, first + len(tokens), device=tokens.device)
        return attention.moved(tokens, tokens.new_full((len(tokens),), time), which)
    moved = attention.weights(tokens @ tokens.mT) @ tokens
    return -moved if attention.repulsion else moved


def check_layers(step: float, layers: int, save_every: int) -> None:
    """Raise ValueError unless the step is positive and the two counts are integers >= 1."""
    check_positive("step", step)
    check_count("layers", layers)
    check_count("save_every", save_every)
