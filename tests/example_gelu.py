"""A worked example: an MLP with the activation GELU, which has a chain and no limit."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention import Block, bounded
from shaped_attention.numerics.primitives import normal_cdf


@dataclass(frozen=True)
class GeluMLP(Block):
    """X' = lambda X + gamma s(X W_pre / sqrt n) W_post / sqrt n, s(x) = x Phi(x)."""

    gamma: float = bounded(0.0, 1.0)

    def activation(self, x):
        """Return GELU(x), entry by entry; Phi is the normal distribution function."""
        return x * normal_cdf(x)

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        hidden = self.activation(project(tokens, n) / n**0.5)
        return project(hidden, n) / n**0.5


def gelu_layer(gamma):
    """Return a layer for a sweep: ``layer = "tests.example_gelu:gelu_layer"``."""
    return GeluMLP(gamma)
