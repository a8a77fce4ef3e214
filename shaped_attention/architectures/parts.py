"""Blocks with the standard deviations of a model's weights.

The package's blocks have weights of variance 1 and divide by the root of their number of inputs. A
model multiplies by matrices whose entries have a standard deviation sigma of their own. Both agree
if the factors are collected in the weight of the branch and in the temperature:

- attention: gamma = sigma_V sqrt(n) sigma_O sqrt(H d_h), and the logits s q k^T, with
  q = sigma_Q sqrt(n) times the package's q, have tau_0 = 1 / (s sigma_Q sigma_K n sqrt(d_h)).
  QK-norm divides queries and keys by their root mean square, so that tau_0 = 1 / (s sqrt(d_h)) and
  its eps is divided by sigma_Q sigma_K n, if these are equal;
- MLP: phi(sigma_1 sqrt(n) z) with the mean square 1/c at V_aa = 1, so that
  gamma = sigma_2 sqrt(d / c); a gated unit is multiplied by sigma_1 sqrt(n) u;
- a norm behind the branch removes gamma: the eps of that norm is divided by gamma^2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from shaped_attention.architectures.fields import field_error
from shaped_attention.architectures.model import LayerStds, Norm
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.attention_fields import QKNorm
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parameters import value_at


def attention(
    width: int, stds: LayerStds, heads: int, head_size: int, *, logit_scale: float,
    qk_norm: QKNorm | None = None, **options: Any,
) -> ShapedAttention:  # fmt: skip
    """Return softmax attention whose weights have given standard deviations.

    `width`, `heads` and `head_size` are n, H and d_h, `logit_scale` the factor s of the logits, and
    `qk_norm` has the model's eps; `options` are further fields of `ShapedAttention`.
    """
    inner = stds.queries * stds.keys * width
    if qk_norm and qk_norm.eps and stds.queries != stds.keys:
        raise ValueError(
            "init has different standard deviations of queries and keys, which is not covered with "
            f"QK-norm; got {stds.queries:g} and {stds.keys:g}"
        )
    return ShapedAttention(
        gamma=stds.values * math.sqrt(width * heads * head_size) * stds.output,
        tau0=1.0 / (logit_scale * math.sqrt(head_size) * (1.0 if qk_norm else inner)),
        heads=heads,
        head_size=head_size,
        output_projection=True,
        identity=False,
        centring=False,
        scaled_temperature=False,
        qk_norm=qk_norm and replace(qk_norm, eps=qk_norm.eps / inner),
        skip=1.0,
        **options,
    )


def mlp(
    width: int, stds: LayerStds, hidden: int, activation: str, *, gated: bool = False
) -> ShapedMLP:
    """Return an MLP whose weights have given standard deviations."""
    inner = (stds.gate if gated else stds.up) * math.sqrt(width)
    if not 1e-6 <= inner <= 100.0:
        what = "such that the inputs of the hidden units have a standard deviation in [1e-06, 100]"
        raise field_error("initializer_range", f"{what} at width {width}", inner)
    unit = ShapedMLP(
        1.0, activation=activation, hidden=hidden, gated=gated, input_scale=inner, skip=1.0
    )
    weight = stds.down * math.sqrt(hidden * unit.mean_square(width))
    gate = stds.up * math.sqrt(width) if gated else 1.0
    return replace(unit, gamma=weight * gate)


def normed(block: Any, place: str, norm: Norm, weight: float = 1.0) -> Normalised:
    """Return a block with a norm of its tokens, of its branch, of both, or of the sum.

    The gamma of `block` is the weight of the model's branch; `place` is as in `Normalised`, and
    `weight` a factor of the branch, or of its norm.
    """
    gamma = value_at(block.gamma, 0.0)
    if place in ("branch", "sandwich"):
        # The norm of gamma x with some eps is the norm of x with eps / gamma^2.
        inner = replace(block, gamma=weight)
        return Normalised(inner, place, norm.kind, norm.eps, branch_eps=norm.eps / gamma**2)
    inner = block if weight == 1.0 else replace(block, gamma=weight * gamma)
    return Normalised(inner, place, norm.kind, norm.eps)
