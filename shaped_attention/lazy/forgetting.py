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
from typing import Any

import numpy as np
import torch

from shaped_attention.numerics.primitives import concatenate
from shaped_attention.rows.directions import directions
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import AnySpace, Frame, Sum
from shaped_attention.rows.values import Plain, padded, pieces, some_rows, stacked


@dataclass
class _Part:
    """One summand of the space below and above the border between two layers.

    The first directions above are `units`, in the frame below. `there` is 0 where a direction has
    length 0, and 1 elsewhere. If the standard basis is the frame of both, there are none.
    """

    below: Frame
    above: Frame
    units: Plain | None
    there: Plain | None


class Border:
    """Takes `rows` up into new spaces, and gradients down into the old ones.

    `values` are, for each summand of the space, the coordinates of the vector of ones, if the
    blocks need it, and of the rows below it.
    """

    def __init__(self, rows: Rows, with_ones: bool) -> None:
        _ = rows.parts
        self._old = rows.space
        self._parts: list[_Part] = []
        self.values: list[Plain] = []
        for space, tokens in zip(self._old, rows.parts, strict=True):
            if space.known_ones is not None and not with_ones:
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


def entering_rows(spaces: Sequence[Frame], values: Sequence[Plain], with_ones: bool) -> Rows:
    """Return the tokens that enter a layer, of which new spaces know nothing but these values."""
    parts = []
    for space, value in zip(spaces, values, strict=True):
        if not space.explicit:
            space.grow(value.shape[-1])
            if with_ones:
                space.known_ones = some_rows(value, 0, 1)
        first = int(with_ones and not space.explicit)
        parts.append(some_rows(value, first, value.shape[-2]))
    new: AnySpace = spaces[0] if len(spaces) == 1 else Sum(spaces)
    return Rows(new, tuple(parts), needs_gradient=True)


def seen_below(gradient: Rows, values: Sequence[Plain]) -> list[Plain]:
    """Return all that the layer below sees of a gradient, from the values of the border there.

    This is its coordinates in the span, and a triangular root of the rest.
    """
    parts = []
    for part, value in zip(gradient.parts, values, strict=True):
        inside, outside = pieces(part, [value.shape[-1], part.shape[-1] - value.shape[-1]])
        rows, columns = outside.shape[-2:]
        if columns > rows:
            outside = directions(outside).lower
        else:
            outside = padded(outside, 0, rows - columns)
        parts.append(concatenate([inside, outside]))
    return parts


def _border(space: Frame, tokens: Plain, with_ones: bool) -> tuple[_Part, Plain]:
    """Return both sides of a summand, and the values above."""
    above = Frame(space.n, space.source, explicit=space.explicit)
    if space.explicit:
        # What acts on the entries of tokens above must find the same standard basis.
        return _Part(space, above, None, None), tokens
    ones = [space.ones()] if with_ones else []
    values = stacked([*ones, space.padded(tokens)])
    if values.shape[-2] < space.size:
        _, values, units, there = directions(values)
        return _Part(space, above, units, there.mT), values
    eye = space.source.filled(1, 1, 1.0) * space.source.constant(np.eye(space.size))
    return _Part(space, above, eye, space.source.filled(1, 1, 1.0)), values


def _down(part: _Part, gradient: Any, name: str) -> Any:
    """Return coordinates below the border, from those above."""
    below, above, units, there = part.below, part.above, part.units, part.there
    if units is None or there is None:
        return gradient
    shared = units.shape[-2]
    if above.explicit:
        # A block above acts on entries of these tokens.
        assert above.basis is not None
        known = some_rows(above.basis, 0, shared)
        inside = gradient @ known.mT
        outside = gradient - inside @ known
    else:
        inside, outside = pieces(gradient, [shared, gradient.shape[-1] - shared])
    outside = concatenate([inside * (1.0 - there), outside])
    inside = inside * there
    if outside.shape[-1] == 0:
        return inside @ units
    lower = directions(outside).lower
    if below.n - shared < lower.shape[-1]:
        # Columns of zeros last: in a narrow space there are fewer new directions than rows.
        zero = torch.diagonal(lower, dim1=-2, dim2=-1) <= 0.0
        order = torch.argsort(zero.to(torch.int8), dim=-1, stable=True)
        lower = lower.gather(-1, order[:, None].expand_as(lower))
    fresh = below.fresh(lower.shape[-1], below.source.stream(name).draws())
    units = below.padded(units)
    return below.padded(inside @ units) + lower @ directions(fresh, units).units
