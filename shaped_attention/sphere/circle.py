"""Tokens on the circle and their angles.

For d = 2 a token is x = (cos a, sin a), and the flow of `SphereAttention` is

    da_i/dt = -(1 / Z_i) sum_j exp(beta cos(a_i - a_j)) sin(a_i - a_j).

At beta = 0 it is Kuramoto's model of identical oscillators (Geshkovski et al., arXiv 2312.10794,
section 7).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import argument_error
from shaped_attention.sphere.array_arguments import also_of_arrays


@also_of_arrays("tokens")
def angles_of(tokens: Float[Tensor, "*B N 2"]) -> Float[Tensor, "*B N"]:
    """Return the angles in (-pi, pi] of tokens (..., N, 2) on the unit circle.

    Accepts a tensor or an array and returns the same kind.

    Raises
    ------
    ValueError
        If the tokens do not have two coordinates.
    """
    if tokens.ndim < 2 or tokens.shape[-1] != 2:
        raise argument_error("tokens", "of shape (..., N, 2)", tuple(tokens.shape))
    return torch.atan2(tokens[..., 1], tokens[..., 0])


@also_of_arrays("angles")
def tokens_of(angles: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N 2"]:
    """Return the tokens (cos a, sin a) (..., N, 2) of angles (..., N).

    Accepts a tensor or an array and returns the same kind.
    """
    return torch.stack([torch.cos(angles), torch.sin(angles)], dim=-1)
