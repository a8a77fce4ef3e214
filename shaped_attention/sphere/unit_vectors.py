"""Unit vectors from vectors of any length, and the tokens of a layer put back on the sphere.

N(y) = y / |y|, row by row. An entry above 1e154 has a square that overflows and one below 1e-162 a
square that vanishes, so rows are first brought near 1 by a power of two, which rounds nothing:
where x / |x| can be computed directly, the result is the same to the last bit.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def unit_rows(x: Float[Tensor, "*B N r"]) -> Float[Tensor, "*B N r"]:
    """Rows of x (..., N, r) divided by their norms, for any finite numbers.

    Returns
    -------
    Rows (..., N, r) of norm 1 to rounding. A row of zeros, which has no direction, stays zero, and
    one with an entry that is not finite becomes NaN: what they mean is up to the caller.
    """
    largest = x.abs().amax(-1, keepdim=True)
    # frexp gives 2 m in [1, 2); the whole power would overflow for the largest numbers.
    power = largest / (2.0 * torch.frexp(largest).mantissa)
    some = largest != 0.0
    scaled = x / torch.where(some, power, 1.0)
    norms = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(some, norms, 1.0)


def unit_tokens(x: Float[Tensor, "B N r"], layer: int) -> Float[Tensor, "B N r"]:
    """`unit_rows` of the tokens (B, N, r) that the layer with this number, from 1, gives.

    Networks use it wherever a token is to be put on the sphere, so that all report alike.

    Raises
    ------
    FloatingPointError
        If a token is not finite, or zero.
    """
    unit = unit_rows(x)
    # Of norm 1 but for these two.
    squares = unit.square().sum(-1)
    if not bool((squares > 0.5).all()):
        if bool((squares == 0.0).any()):
            raise FloatingPointError(
                f"layer {layer} gives a token that is zero and has no direction"
            )
        raise FloatingPointError(f"layer {layer} gives tokens that are not finite")
    return unit
