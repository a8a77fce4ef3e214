"""A worked example: attention to a latent, two weight matrices in sequence with a norm between.

Keys and values are made of a latent of few columns, as in multi-head latent attention (DeepSeek-AI,
arXiv 2405.04434), which is normalised after the first matrix:

    C = N(X W_C / sqrt n),   X' = lambda X + gamma softmax(Q K^T / (tau_0 n)) C W_V / sqrt r,

with Q = X W_Q / sqrt n, K = C W_K / sqrt r, r columns of C, and N the norm of RMSNorm. The chain
needs neither C nor the weights: it follows from the branch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shaped_attention import Block, bounded
from shaped_attention.numerics.primitives import by_mean_square, softmax


@dataclass(frozen=True)
class LatentAttention(Block):
    """Attention whose keys and values come from a normalised latent of `rank` columns."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)
    rank: int = 8

    def branch(self, p, tokens, project):
        n, r = tokens.shape[-1], self.rank
        latent = by_mean_square(project(tokens, r) / n**0.5, 0.0)
        queries, keys = project(tokens, n) / n**0.5, project(latent, n) / r**0.5
        scores = queries @ keys.mT / (p.tau0 * n)
        weights = softmax(scores, np.ones(scores.shape[-2:], dtype=bool))
        return weights @ (project(latent, n) / r**0.5)


def latent_layer(gamma, rank=8):
    """Return a layer for a sweep: ``layer = "tests.example_latent:latent_layer"``."""
    return LatentAttention(gamma, rank=rank)
