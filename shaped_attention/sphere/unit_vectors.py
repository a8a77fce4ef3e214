"""Normalisation of vectors of any length, and of the tokens of a layer.

N(y) = y / |y|, row by row. The square of an entry above 1e154 overflows, and that of an entry below
1e-162 vanishes. So rows are first scaled near 1 by a power of two, which is exact: where x / |x|
can be computed directly, the result is bit-identical.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def unit_rows(x: Float[Tensor, "*B N r"]) -> Float[Tensor, "*B N r"]:
    """Return the rows of x (..., N, r) divided by their norms, for any finite numbers.

    Returns
    -------
    Rows (..., N, r) of norm 1 to rounding. A row of zeros stays zero, and a row with an entry that
    is not finite becomes NaN; callers handle both.
    """
    largest = x.abs().amax(-1, keepdim=True)
    # frexp gives 2 m in [1, 2); the whole power would overflow for the largest numbers.
    power = largest / (2.0 * torch.frexp(largest).mantissa)
    some = largest != 0.0
    scaled = x / torch.where(some, power, 1.0)
    norms = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(some, norms, 1.0)


def unit_tokens(x: Float[Tensor, "B N r"], layer: int) -> Float[Tensor, "B N r"]:
    """Normalise tokens (B, N, r), the output of the layer with this number, counted from 1.

    All networks normalise their tokens with it, so all report the same errors.

    Raises
    ------
    FloatingPointError
        If a token is not finite, or zero.
    """
    unit = unit_rows(x)
    # All norms are 1 except in these two cases.
    squares = unit.square().sum(-1)
    if not bool((squares > 0.5).all()):
        if bool((squares == 0.0).any()):
            raise FloatingPointError(
                f"layer {layer} gives a token that is zero and has no direction"
            )
        raise FloatingPointError(f"layer {layer} gives tokens that are not finite")
    return unit
