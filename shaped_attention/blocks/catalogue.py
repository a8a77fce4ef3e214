"""Layers and initial covariances from plain names and numbers, as in commands and sweep files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks import Block, Normalised, ShapedAttention, ShapedMLP
from shaped_attention.blocks.parameters import Parameter
from shaped_attention.checks import check_choice

KINDS = ("attention", "mlp", "transformer")
"""Named layers; a transformer is attention, then MLP."""

_OF_ATTENTION = (
    "tau0", "heads", "key_size", "query_bias", "key_bias", "mask", "output_projection", "kv_heads",
    "head_size", "value_ratio", "rope", "rope_share", "qk_norm", "softcap",
)  # fmt: skip
_OF_MLP = (
    "mlp_gamma", "c_plus", "c_minus", "activation", "activation_scale", "gated", "gate_bias",
    "hidden", "hidden_ratio",
)  # fmt: skip

UNUSED: dict[str, tuple[str, ...]] = {
    "mlp": ("gamma", *_OF_ATTENTION),
    "attention": _OF_MLP,
    "transformer": (),
}
"""Parameters that a layer of this kind ignores; the MLP's weight defaults to gamma."""

UNUSED_BY_LIMIT = ("key_size", "key_bias")
"""Parameters of attention that its limit does not have: a key bias cancels in the softmax."""


def named_layer(
    kind: str,
    *,
    gamma: Parameter,
    tau0: Parameter = 1.0,
    heads: int = 1,
    mask: Any = None,
    output_projection: bool = False,
    key_size: int | None = None,
    query_bias: float = 0.0,
    key_bias: float = 0.0,
    mlp_gamma: Parameter | None = None,
    c_plus: Parameter = 0.0,
    c_minus: Parameter = -1.0,
    kv_heads: int | None = None,
    head_size: int | None = None,
    value_ratio: float | None = None,
    rope: Any = None,
    rope_share: float = 1.0,
    qk_norm: Any = False,
    softcap: float | None = None,
    activation: str = "relu",
    activation_scale: Parameter | None = None,
    gated: bool = False,
    gate_bias: float = 0.0,
    hidden: int | None = None,
    hidden_ratio: float = 1.0,
    norm: str | None = None,
    norm_place: str = "before",
    norm_eps: float = 0.0,
) -> list[Block]:
    """Return the blocks of a layer of a kind in `KINDS`; `mlp_gamma` is `gamma` by default.

    With `norm` each block is normalised. `activation_scale` is the `scale` of the MLP.

    Raises
    ------
    ValueError
        If the kind is unknown, or a parameter is outside its range.
    """
    check_choice("layer", kind, KINDS)
    attention = ShapedAttention(
        gamma, tau0, heads, mask, output_projection, key_size, query_bias, key_bias,
        kv_heads=kv_heads, head_size=head_size, value_ratio=value_ratio, rope=rope,
        rope_share=rope_share, qk_norm=qk_norm, softcap=softcap,
    )  # fmt: skip
    mlp = ShapedMLP(
        gamma if mlp_gamma is None else mlp_gamma, c_plus, c_minus, activation=activation,
        scale=activation_scale, gated=gated, gate_bias=gate_bias, hidden=hidden,
        hidden_ratio=hidden_ratio,
    )  # fmt: skip
    blocks: dict[str, list[Block]] = {
        "attention": [attention], "mlp": [mlp], "transformer": [attention, mlp]
    }  # fmt: skip
    if norm is None:
        if (norm_place, norm_eps) != ("before", 0.0):
            raise ValueError(
                f"norm_place={norm_place!r}, norm_eps={norm_eps!r}: no effect without a norm"
            )
        return blocks[kind]
    return [Normalised(block, norm_place, norm, norm_eps) for block in blocks[kind]]


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
        raise ValueError(f"scale={scale!r}: a positive number or 'raw' is needed")
    mean = float(np.diag(v0).mean())
    if mean == 0.0:
        raise ValueError("scale: the covariance is zero and cannot be rescaled; 'raw' is needed")
    return v0 * (target / mean)
