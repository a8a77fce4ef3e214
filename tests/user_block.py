"""The block that `shaped_attention.blocks.base` writes out in its docstring."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit


class LinearLimit(Limit):
    def linear_rate(self, p):
        return p.gamma**2 * (2 - p.gamma**2)


@dataclass(frozen=True)
class Linear(Block):
    gamma: float
    limit = LinearLimit()

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        return project(tokens, n) / n**0.5
