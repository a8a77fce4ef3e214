"""Blocks for tests whose step has a root of their own, whatever their branch says."""

from __future__ import annotations

import math
from typing import Any

from shaped_attention.numerics.primitives import concatenate, lower
from shaped_attention.rows.step import State


class OwnRoot:
    """X' = lambda X + gamma R W / sqrt n, with R = ``root(p, factor, numbers, width)``."""

    def step(self: Any, p: Any, state: State, numbers: Any, width: int) -> State:
        """Take the state of layer l to that of layer l + 1."""
        (factor,) = state.factors
        root = self.root(p, factor, numbers, width)
        rows, known = root.shape[-1], factor.shape[-1]
        along, rest = (
            numbers.normal("branch", rows, known),
            numbers.wishart("rest", rows, width - known),
        )
        scale = p.gamma / math.sqrt(width)
        first = self.skip_weight(p) * factor + scale * (root @ along)
        return State((lower(concatenate([first, scale * (root @ rest)])),))
