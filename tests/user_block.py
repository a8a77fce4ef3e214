"""The block that `shaped_attention.blocks.base` writes out in its docstring."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention.blocks.base import Block


@dataclass(frozen=True)
class Linear(Block):
    gamma: float

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        return project(tokens, n) / n**0.5
