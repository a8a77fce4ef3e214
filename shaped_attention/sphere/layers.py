"""Discrete networks whose continuum limits are self-attention flows: layers of a given step.

    after:   x' = N(x + h A(x)),  N(y) = y / |y|   (layer normalisation behind the residual sum),
    None:    x' = x + h A(x)                       (no normalisation),
    before:  x' = x + h A(N(x))                    (Pre-LN: in front of the attention),

with A the attention (and MLP) before the projection. For h to 0 and time = layer * h the first is
the flow on the sphere, dx/dt = P_x A(x), since N(x + h y) = x + h P_x y + O(h^2); the second is
Euler's method for dx/dt = A(x) in R^d, the third for dx/dt = A(N(x)), whose directions u = N(x)
have du/dt = P_u A(u) / |x|: the flow on the sphere with a clock 1 / |x| for each token. Errors are
of order h. With h = 1 the first is the network of arXiv 2312.10794, section 2.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import check_count, check_positive
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import Observe, check_start, flow_attributes, flow_variables
from shaped_attention.sphere.token_attention import TokenAttention

NORMALISATIONS = ("after", None, "before")


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
        Of every layer; matrices that are functions of time are taken at layer * step.
    start
        Unit tokens (samples, N, r): all coordinates for `TokenAttention`, min(N, d) are enough for
        `SphereAttention`.
    step
        h, positive; 1 in networks of practice.
    layers
        Their number.
    normalise
        "after", None or "before", as above.
    save_every
        Layers 0, s, 2 s, ... and the last are kept.
    observe
        Function of Gram matrices (B, N, N) that gives (B, ...); None keeps them.

    Returns
    -------
    xarray.Dataset
        As from `sphere_flow`, at times layer * step, with the layer as a second coordinate. `V` has
        unit diagonal for "after" only.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If the norm of a token overflows, or is zero where it is to be normalised. (Without
        normalisation USA explodes in finite time: norms feed e^{beta |x|^2}.)
    """
    check_start(start)
    check_positive("step", step)
    check_count("layers", layers)
    check_count("save_every", save_every)
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise={normalise!r}: 'after', None or 'before' is needed")
    if isinstance(attention, TokenAttention):
        attention.check_start(start)
    tokens, kept = start, [_seen(start, observe)]
    for layer in range(layers):
        read = _directions(tokens) if normalise == "before" else tokens
        tokens = tokens + step * unprojected(attention, read, layer * step)
        tokens = _directions(tokens) if normalise == "after" else tokens
        if not bool(torch.isfinite(tokens.square().sum(-1)).all()):
            raise FloatingPointError(f"layer {layer + 1} gives tokens that are not finite")
        if (layer + 1) % save_every == 0 or layer + 1 == layers:
            kept.append(_seen(tokens, observe))
    stored = np.append(np.arange(0, layers, save_every), layers)
    times = stored * step
    data = torch.stack(kept).numpy()
    described = attention.flags() if isinstance(attention, TokenAttention) else asdict(attention)
    parameters = {
        "attention": described, "step": step, "layers": layers, "normalise": normalise,
        "save_every": save_every,
    }  # fmt: skip
    variables = flow_variables(data[None], start, observe).isel(beta=0)
    return variables.assign_coords(time=times, layer=("time", stored)).assign_attrs(
        flow_attributes("sphere network", parameters, times)
    )


def unprojected(
    attention: SphereAttention | TokenAttention, tokens: Float[Tensor, "B N r"], time: float
) -> Float[Tensor, "B N r"]:
    """A(x): the attention (and MLP) of tokens of any norm, before the projection."""
    if isinstance(attention, TokenAttention):
        return attention.moved(tokens, tokens.new_full((len(tokens),), time))
    moved = attention.weights(tokens @ tokens.mT) @ tokens
    return -moved if attention.repulsion else moved


def _directions(tokens: Tensor) -> Tensor:
    norms = tokens.norm(dim=-1, keepdim=True)
    if not bool((norms > 0.0).all()):
        raise FloatingPointError("a token is zero (or NaN) and has no direction")
    return tokens / norms


def _seen(tokens: Tensor, observe: Observe | None) -> Tensor:
    gram = tokens @ tokens.mT
    return gram if observe is None else observe(gram)
