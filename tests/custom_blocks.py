"""Custom blocks, right and wrong ones, that several tests need."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention import Block, ShapedAttention
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.primitives import row_sums, sigmoid


@dataclass(frozen=True)
class LinearAttention(Block):
    """X' = lambda X + gamma (I + Y C / (m tau_0 n)) X W_V / sqrt n, as in notebook 07."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def attend(self, p, scores, width, values):
        m = scores.shape[-1]
        return values + (scores - row_sums(scores) / m) @ values / (m * p.tau0 * width)

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        scores = (project(tokens, n) / n**0.5) @ (project(tokens, n) / n**0.5).mT
        return self.attend(p, scores, n, project(tokens, n) / n**0.5)


@dataclass(frozen=True)
class SigmoidAttention(Block):
    """A = I + (2 / m) (sigmoid(Y / tau) - 1/2), tau = tau_0 n: no normalisation of rows."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def attend(self, p, scores, width, values):
        weights = sigmoid(scores / (p.tau0 * width)) - 0.5
        return values + (2.0 / scores.shape[-1]) * (weights @ values)

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        scores = project(tokens, n) @ project(tokens, n).mT / n
        return self.attend(p, scores, n, project(tokens, n) / n**0.5)


@dataclass(frozen=True)
class Hotter(ShapedAttention):
    """Twice the temperature."""

    def temperature(self, p, width):
        return 2.0 * super().temperature(p, width)
