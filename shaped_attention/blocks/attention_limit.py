"""Coefficients of the limit of shaped attention, as functions of V and the centre w.

With A = I + A_1 / sqrt n + A_2 / n + ... and logits G of E[G_ab G_cd] = (V_ac + sigma_Q^2) V_bd
(`shaped_attention.blocks.attention` has the expansion); tau_0 is left out, sigma_Q^2 is `bias`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.base import symmetric


def second_order(
    v: Float[Tensor, "*B m m"], w: Float[Tensor, "m m"], bias: float
) -> Float[Tensor, "*B m m"]:
    """``tau_0^2 E[A_2] = w o (s - rowmean s) q / 2``, s_ab = V_bb - 2 (w V)_ab, q = V_aa + bias."""
    q = v.diagonal(dim1=-2, dim2=-1)
    s = q[..., None, :] - 2.0 * w @ v
    return 0.5 * (q + bias)[..., :, None] * w * (s - (w * s).sum(-1, keepdim=True))


def first_order_square(
    v: Float[Tensor, "*B m m"], w: Float[Tensor, "m m"]
) -> Float[Tensor, "*B m m"]:
    """T with ``tau_0^2 E[A_1 V A_1^T] = T o (V + bias)``.

    ``T_ac = tr(C_a V C_c V)`` with ``C_a = diag w_a - w_a w_a^T``.

    Without a mask T_ac = |C V C|_F^2 / m^2 for all a, c. It is a Gram matrix.
    """
    mean = w @ v
    cross = mean**2 @ w.mT
    return w @ v**2 @ w.mT - cross - cross.mT + (mean @ w.mT) ** 2


def scores_diffusion(
    v: Float[Tensor, "*B m m"], w: Float[Tensor, "m m"], bias: float
) -> Float[Tensor, "*B m m m m"]:
    """The sum of (V_ac + bias) R^{ac}_bd over the four ways to pair, R^{ac} = V C_a V C_c V.

    Without a mask R = V C V C V / m^2 for all a, c.
    """
    centred = torch.diag_embed(w) - w[:, :, None] * w[:, None, :]
    vc = torch.einsum("...ij,ajk->...aik", v, centred)
    r = torch.einsum("...abi,...ij,...cdj->...acbd", vc, v, vc)
    query = v + bias
    total = torch.einsum("...ac,...acbd->...abcd", query, r)
    total = total + torch.einsum("...bd,...bdac->...abcd", query, r)
    total = total + torch.einsum("...ad,...adbc->...abcd", query, r)
    return total + torch.einsum("...bc,...bcad->...abcd", query, r)


def drift_shape(
    v: Float[Tensor, "*B m m"], w: Float[Tensor, "m m"], bias: float
) -> Float[Tensor, "*B m m"]:
    """``T o (V + bias) + E[A_2] V + V E[A_2]^T``, to be multiplied by (gamma / tau_0)^2."""
    square = first_order_square(v, w) * (v + bias)
    return square + symmetric(second_order(v, w, bias) @ v)
