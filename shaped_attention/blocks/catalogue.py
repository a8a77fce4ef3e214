"""Layers and initial covariances from plain names and numbers, as in commands and sweep files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks import Block, Normalised, ShapedAttention, ShapedMLP
from shaped_attention.blocks.parameters import Parameter
from shaped_attention.checks import argument_error, check_choice

KINDS = ("attention", "mlp", "transformer")
"""Named layers; a transformer is attention, then MLP."""

_OF_ATTENTION = (
    "tau0", "heads", "key_size", "query_bias", "key_bias", "mask", "output_projection", "kv_heads",
    "head_size", "value_ratio", "rope", "qk_norm", "softcap",
)  # fmt: skip
_OF_MLP = (
    "mlp_gamma", "c_plus", "c_minus", "activation", "activation_scale", "gated", "gate_bias",
    "hidden", "hidden_ratio",
)  # fmt: skip

ARGUMENTS: tuple[str, ...] = (
    "gamma", *_OF_ATTENTION, *_OF_MLP, "norm", "norm_place", "norm_eps",
)  # fmt: skip
"""Names of all parameters of named layers."""

UNUSED: dict[str, tuple[str, ...]] = {
    "mlp": ("gamma", *_OF_ATTENTION),
    "attention": _OF_MLP,
    "transformer": (),
}
"""Parameters that a layer of this kind ignores; the MLP's weight defaults to gamma."""


def named_layer(
    kind: str,
    *,
    gamma: Parameter,
    mlp_gamma: Parameter | None = None,
    norm: str | None = None,
    norm_place: str = "before",
    norm_eps: float = 0.0,
    **options: Any,
) -> list[Block]:
    """Return the blocks of a layer of a kind in `KINDS`; `mlp_gamma` is `gamma` by default.

    With `norm` each block is normalised. The options are those of `ShapedAttention` and
    `ShapedMLP` in `ARGUMENTS`; `activation_scale` is the `scale` of the MLP.

    Raises
    ------
    ValueError
        If the kind is unknown, or a parameter is outside its range.
    """
    check_choice("layer", kind, KINDS)
    for name in options:
        check_choice("option", name, ARGUMENTS)
    attention = ShapedAttention(gamma, **{x: options[x] for x in _OF_ATTENTION if x in options})
    of_mlp = {x.removeprefix("activation_"): options[x] for x in _OF_MLP if x in options}
    mlp = ShapedMLP(gamma if mlp_gamma is None else mlp_gamma, **of_mlp)
    kinds: dict[str, list[Block]] = {"attention": [attention], "mlp": [mlp]}
    blocks = kinds.get(kind, [attention, mlp])
    if norm is not None:
        return [Normalised(block, norm_place, norm, norm_eps) for block in blocks]
    if (norm_place, norm_eps) != ("before", 0.0):
        raise ValueError(
            f"norm_place={norm_place!r}, norm_eps={norm_eps!r} have no effect without norm"
        )
    return blocks


def rescaled(v0: NDArray[np.float64], scale: str | float) -> NDArray[np.float64]:
    """Rescale a covariance to the mean diagonal `scale`; leave it unchanged if that is 'raw'.

    Raises
    ------
    ValueError
        If `scale` is neither 'raw' nor a positive number, or the covariance is zero.
    """
    if scale == "raw":
        return v0
    try:
        target = float(scale)
    except (TypeError, ValueError):
        target = float("nan")
    if not (np.isfinite(target) and target > 0.0):
        raise argument_error("scale", "a positive number or 'raw'", scale)
    mean = float(np.diag(v0).mean())
    if mean == 0.0:
        raise ValueError("scale must be 'raw' for a covariance that is zero")
    return v0 * (target / mean)
