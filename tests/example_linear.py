"""A worked example: a linear branch whose strength may change with depth."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention import Block
from shaped_attention.blocks.parameters import Parameter, bounded


@dataclass(frozen=True)
class Linear(Block):
    """X' = lambda X + gamma X W / sqrt n."""

    gamma: Parameter = bounded(0.0, 1.0)

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        return project(tokens, n) / n**0.5
