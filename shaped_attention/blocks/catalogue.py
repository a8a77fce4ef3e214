"""Layers and initial covariances from plain names and numbers, as in commands and sweep files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks import Block, ShapedAttention, ShapedMLP
from shaped_attention.blocks.parameters import Parameter
from shaped_attention.checks import check_choice

KINDS = ("attention", "mlp", "transformer")
"""Named layers; a transformer is attention, then MLP."""

UNUSED: dict[str, tuple[str, ...]] = {
    "mlp": (
        "gamma",
        "tau0",
        "heads",
        "key_size",
        "query_bias",
        "key_bias",
        "mask",
        "output_projection",
    ),
    "attention": ("mlp_gamma", "c_plus", "c_minus"),
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
) -> list[Block]:
    """Return the blocks of a layer of a kind in `KINDS`; `mlp_gamma` is `gamma` by default.

    Raises
    ------
    ValueError
        If the kind is unknown, or a parameter is outside its range.
    """
    check_choice("layer", kind, KINDS)
    attention = ShapedAttention(
        gamma, tau0, heads, mask, output_projection, key_size, query_bias, key_bias
    )
    mlp = ShapedMLP(gamma if mlp_gamma is None else mlp_gamma, c_plus, c_minus)
    blocks: dict[str, list[Block]] = {
        "attention": [attention], "mlp": [mlp], "transformer": [attention, mlp]
    }  # fmt: skip
    return blocks[kind]


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
