"""A worked example: shaped attention with a position bias, an array as a field.

A = I + softmax(Y / tau + B) - w with an (m, m) array B and w = softmax(B).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax as rows_softmax

from shaped_attention import Block
from shaped_attention.numerics.primitives import constant, softmax


@dataclass(frozen=True)
class BiasedAttention(Block):
    gamma: float
    tau0: float
    bias: tuple  # plain data, which a result can store

    def __post_init__(self):
        rows = tuple(tuple(float(x) for x in row) for row in self.bias)
        object.__setattr__(self, "bias", rows)

    @property
    def w(self):
        return rows_softmax(np.array(self.bias), axis=1)

    def attend(self, scores, values):
        """Return A times the values, for scores Y / tau."""
        seen = softmax(scores + constant(np.array(self.bias), like=scores), self.w > 0.0)
        return values + (seen - constant(self.w, like=scores)) @ values

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        scores = project(tokens, n) @ project(tokens, n).mT / n
        return self.attend(scores / (p.tau0 * n), project(tokens, n) / n**0.5)
