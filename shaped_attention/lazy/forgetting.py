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

from dataclasses import dataclass

from jaxtyping import Float

from shaped_attention.lazy.directions import directions
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.spaces import AnySpace, Frame, Sum
from shaped_attention.libraries import Tensor, torch


@dataclass
class _Part:
    """One summand of the space below and above the border between two layers.

    The first directions above are `units`, in the frame below; without these the first `shared` are
    the same. `there` is 0 where a direction has length 0, and 1 elsewhere.
    """

    below: Frame
    above: Frame
    shared: int
    units: Float[Tensor, "B r k"] | None = None
    there: Float[Tensor, "B 1 r"] | None = None


class Border:
    """Takes rows up into new spaces, and gradients down into the old ones.

    Attributes
    ----------
    rows
        The rows in the new space.
    """

    def __init__(self, rows: Rows, with_ones: bool, name: str) -> None:
        _ = rows.parts
        self._old, self._name = rows.space, name
        self._parts: list[_Part] = []
        coordinates = []
        for space, tokens in zip(self._old, rows.parts, strict=True):
            if space.knows_ones and not with_ones:
                raise ValueError(
                    "a block takes the mean of the entries of tokens, so its `means` must be True"
                )
            part, values = _border(space, tokens, with_ones)
            self._parts.append(part)
            coordinates.append(values)
        above = [part.above for part in self._parts]
        new: AnySpace = above[0] if len(above) == 1 else Sum(above)
        self.rows = Rows(new, tuple(coordinates), needs_gradient=True)

    def down(self, gradient: Rows) -> Rows:
        """Return rows of the upper space in the lower one, exactly in law."""
        names = [f"{self._name}.{number}" for number in range(len(self._parts))]
        every = zip(self._parts, gradient.parts, names, strict=True)
        return Rows(self._old, tuple(_down(part, g, name) for part, g, name in every))


def _border(space: Frame, tokens: Tensor, with_ones: bool) -> tuple[_Part, Tensor]:
    """Return both sides of a summand, and the coordinates of the tokens above."""
    above = Frame(space.n, space.source, explicit=space.explicit)
    if space.explicit:
        # What acts on the entries of tokens above must find the same standard basis.
        return _Part(space, above, space.n), tokens
    ones = [space.ones()] if with_ones else []
    values = torch.cat([*ones, space.padded(tokens)], dim=1)
    count = min(values.shape[1], space.size)
    above.grow(count)
    part = _Part(space, above, count)
    if count < space.size:
        _, values, part.units = directions(values, values[:, :0])
        there = torch.diagonal(values, dim1=-2, dim2=-1) > 0.0
        part.there = there.to(values.dtype)[:, None]
    if with_ones:
        above.set_ones(values[:, :1])
    return part, values[:, len(ones) :]


def _down(part: _Part, gradient: Tensor, name: str) -> Tensor:
    """Return coordinates below the border, from those above."""
    below, shared = part.below, part.shared
    inside, outside = gradient[..., :shared], gradient[..., shared:]
    if part.units is None or part.there is None:
        units = torch.eye(shared, below.size, dtype=gradient.dtype, device=gradient.device)
        units = units.expand(len(gradient), -1, -1)
    else:
        outside = torch.cat([inside * (1.0 - part.there), outside], dim=-1)
        inside, units = inside * part.there, part.units
    if outside.shape[-1] == 0:
        return inside @ units
    _, lower, _ = directions(outside, outside[:, :0])
    # Columns of zeros last: in a narrow space there are fewer new directions than rows.
    zero = torch.diagonal(lower, dim1=-2, dim2=-1) <= 0.0
    order = torch.argsort(zero.to(torch.int8), dim=-1, stable=True)
    lower = lower.gather(-1, order[:, None].expand_as(lower))
    fresh = below.fresh(lower.shape[-1], below.source.stream(name).draws())
    units = below.padded(units)
    return below.padded(inside @ units) + lower @ directions(fresh, units).units
