"""A worked example: shaped attention with a position bias, from the weights to the limit.

A = I + softmax(Y / tau + B) - w with an (m, m) array B and w = softmax(B); the derivatives of
softmax at B are those at 0 with w for 1/m, so A_1 = w o (G - rowmean G) / tau_0, E A_2 likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax as rows_softmax

from shaped_attention import Block, Limit
from shaped_attention.numerics.primitives import constant, diagonal, row_sums, softmax


class BiasedLimit(Limit):
    """(gamma / tau_0)^2 [T o V + A_2 V + V A_2^T], T_ac = tr(C_a V C_c V), with noise A_1 F."""

    def linear_rate(self, p):
        return p.gamma**2 * (2.0 - p.gamma**2)

    def factor_drift(self, p, factor):
        w, v = constant(p.w, like=factor), factor @ factor.mT
        s = diagonal(v).mT - 2.0 * (w @ v)
        second = diagonal(v) * (w * (s - row_sums(w * s)))
        return (p.gamma / p.tau0) ** 2 / 2.0 * (second @ factor)

    def factor_noise(self, p, factor, numbers):
        w, c = constant(p.w, like=factor), factor.shape[-1]
        scores = factor @ numbers.normal("scores", c, c) @ factor.mT
        first = w * (scores - row_sums(w * scores))
        return p.gamma**2 / p.tau0 * (first @ factor)

    def growth(self, p, v):
        """Return what the noise of the factor leaves of T o V."""
        w = constant(p.w, like=v)
        mean = w @ v
        cross, both = (mean * mean) @ w.mT, mean @ w.mT
        t = (w @ (v * v)) @ w.mT - (cross + cross.mT) + both * both
        return (p.gamma / p.tau0) ** 2 * (1.0 - p.gamma**2) * (t * v)


@dataclass(frozen=True)
class BiasedAttention(Block):
    gamma: float
    tau0: float
    bias: tuple  # plain data, which a result can store
    limit = BiasedLimit()

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


def sloped_layer(gamma, slope, t=range(3)):
    """Return a layer for a sweep whose scores fall with the distance, as in ALiBi."""
    return BiasedAttention(gamma, 1.0, [[-slope * abs(a - b) for a in t] for b in t])
