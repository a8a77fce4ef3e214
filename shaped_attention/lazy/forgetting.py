"""Frames that forget: each layer of a deep network has spaces of its own, with O(m) directions.

Given the tokens X that enter the upper layers, these see X only through its Gram matrix (and that
with the vector of ones, for LayerNorm). What they return, a gradient G, has a part in the span of
these rows, and a rest whose frame is uniformly distributed in the complement and independent of the
layers below, since rotations that fix the span leave the law of the upper layers unchanged. So the
next layer may start in a new space with a triangular factor of (1, X) as its only coordinates, and
a gradient is transferred back: its coordinates in the span are kept, and a triangular root of the
rest is given a uniform frame of the complement.

A direction of zero length, as of equal tokens, belongs to no span: what a gradient has there is
part of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.lazy.directions import directions
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.spaces import AnySpace, Frame, Sum


@dataclass
class _Part:
    """One summand of the space below and above the border between two layers.

    The first directions above are `units`, in the frame below. `there` is 0 where a direction has
    length 0, and 1 elsewhere. If the standard basis is the frame of both, there are none.
    """

    below: Frame
    above: Frame
    units: Float[Tensor, "B r k"]
    there: Float[Tensor, "B 1 r"]


class Border:
    """Takes rows up into new spaces, and gradients down into the old ones.

    Attributes
    ----------
    rows
        The rows in the new space.
    values
        For each summand of the space, the coordinates of the vector of ones, if the blocks need it,
        and of the rows below it.
    """

    def __init__(self, rows: Rows, with_ones: bool) -> None:
        _ = rows.parts
        self._old = rows.space
        self._parts: list[_Part] = []
        self.values: list[Tensor] = []
        for space, tokens in zip(self._old, rows.parts, strict=True):
            if space.knows_ones and not with_ones:
                raise ValueError(
                    "a block takes the mean of the entries of tokens, so its `means` must be True"
                )
            part, values = _border(space, tokens, with_ones)
            self._parts.append(part)
            self.values.append(values)
        self.rows = entering_rows([part.above for part in self._parts], self.values, with_ones)

    def down(self, gradient: Rows) -> Rows:
        """Return rows of the upper space in the lower one, exactly in law."""
        every = zip(self._parts, gradient.parts, strict=True)
        parts = [_down(part, g, f"border.{number}") for number, (part, g) in enumerate(every)]
        return Rows(self._old, tuple(parts))


def entering_rows(spaces: Sequence[Frame], values: Sequence[Tensor], with_ones: bool) -> Rows:
    """Return the tokens that enter a layer, of which new spaces know nothing but these values."""
    parts = []
    for space, value in zip(spaces, values, strict=True):
        if not space.explicit:
            space.grow(value.shape[-1])
            if with_ones:
                space.set_ones(value[:, :1])
        parts.append(value[:, 1:] if with_ones and not space.explicit else value)
    new: AnySpace = spaces[0] if len(spaces) == 1 else Sum(spaces)
    return Rows(new, tuple(parts), needs_gradient=True)


def seen_below(gradient: Rows, values: Sequence[Tensor]) -> list[Tensor]:
    """Return all that the layer below sees of a gradient, from the values of the border there.

    This is its coordinates in the span, and a triangular root of the rest.
    """
    parts = []
    for part, value in zip(gradient.parts, values, strict=True):
        inside, outside = part[..., : value.shape[-1]], part[..., value.shape[-1] :]
        rows, columns = outside.shape[1:]
        if columns > rows:
            outside = directions(outside, outside[:, :0]).lower
        else:
            outside = torch.nn.functional.pad(outside, (0, rows - columns))
        parts.append(torch.cat([inside, outside], dim=-1))
    return parts


def _border(space: Frame, tokens: Tensor, with_ones: bool) -> tuple[_Part, Tensor]:
    """Return both sides of a summand, and the values above."""
    above = Frame(space.n, space.source, explicit=space.explicit)
    if space.explicit:
        # What acts on the entries of tokens above must find the same standard basis.
        return _Part(space, above, tokens[:, :0], tokens[:, :1, :0]), tokens
    ones = [space.ones()] if with_ones else []
    values = torch.cat([*ones, space.padded(tokens)], dim=1)
    if values.shape[1] < space.size:
        _, values, units, there = directions(values, values[:, :0])
        return _Part(space, above, units, there[:, None]), values
    units = torch.eye(space.size, dtype=values.dtype, device=values.device)
    return _Part(space, above, units.expand(len(values), -1, -1), values.new_ones(1)), values


def _down(part: _Part, gradient: Tensor, name: str) -> Tensor:
    """Return coordinates below the border, from those above."""
    below, above, units = part.below, part.above, part.units
    if below.explicit:
        return gradient
    shared = units.shape[1]
    if above.explicit:
        # A block above acts on entries of these tokens.
        assert above.basis is not None
        known = above.basis[:, :shared]
        inside = gradient @ known.mT
        outside = gradient - inside @ known
    else:
        inside, outside = gradient[..., :shared], gradient[..., shared:]
    outside = torch.cat([inside * (1.0 - part.there), outside], dim=-1)
    inside = inside * part.there
    if outside.shape[-1] == 0:
        return inside @ units
    lower = directions(outside, outside[:, :0]).lower
    if below.n - shared < lower.shape[-1]:
        # Columns of zeros last: in a narrow space there are fewer new directions than rows.
        zero = torch.diagonal(lower, dim1=-2, dim2=-1) <= 0.0
        order = torch.argsort(zero.to(torch.int8), dim=-1, stable=True)
        lower = lower.gather(-1, order[:, None].expand_as(lower))
    fresh = below.fresh(lower.shape[-1], below.source.stream(name).draws())
    units = below.padded(units)
    return below.padded(inside @ units) + lower @ directions(fresh, units).units
