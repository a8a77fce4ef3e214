"""The block that the documentation of blocks writes out, as a user would have it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shaped_attention import Block


@dataclass(frozen=True)
class Linear(Block):
    """In torch alone: X' = lambda X + gamma X W / sqrt n."""

    gamma: float

    @property
    def linear_rate(self):
        return self.gamma**2 * (2.0 - self.gamma**2)

    def branch(self, tokens, project):
        n = tokens.shape[-1]
        return project(tokens, n) / n**0.5

    def branch_factor(self, factor, width, draws):
        return factor

    def drift(self, v):
        return torch.zeros_like(v)
