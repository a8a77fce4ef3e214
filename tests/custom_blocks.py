"""Custom blocks, right and wrong ones, that several tests need."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention import Block, Limit, ShapedAttention
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.primitives import column_sums, row_squares, row_sums, sigmoid


def centred(factor):
    """C F."""
    return factor - column_sums(factor) / factor.shape[-2]


class LinearAttentionLimit(Limit):
    """T V with T = |C V C|^2 / m^2, in part from the noise of the factor; nothing for the clock."""

    def linear_rate(self, p):
        return p.gamma**2 * (2.0 - p.gamma**2)

    def factor_drift(self, p, factor):
        inner = centred(factor).mT @ centred(factor)
        square = column_sums(row_squares(inner)) / factor.shape[-2] ** 2
        return p.gamma**2 * (1.0 - p.gamma**2) / (2.0 * p.tau0**2) * (square * factor)

    def factor_noise(self, p, factor, numbers):
        m, c = factor.shape[-2:]
        inner = centred(factor).mT @ centred(factor)
        return p.gamma**2 / (p.tau0 * m) * (factor @ (numbers.normal("scores", c, c) @ inner))


@dataclass(frozen=True)
class LinearAttention(Block):
    """X' = lambda X + gamma (I + Y C / (m tau_0 n)) X W_V / sqrt n, as in notebook 07."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)
    limit = LinearAttentionLimit()

    def attend(self, p, scores, width, values):
        m = scores.shape[-1]
        return values + (scores - row_sums(scores) / m) @ values / (m * p.tau0 * width)

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        scores = (project(tokens, n) / n**0.5) @ (project(tokens, n) / n**0.5).mT
        return self.attend(p, scores, n, project(tokens, n) / n**0.5)


class SigmoidLimit(Limit):
    """A_1 = G / (2 m tau_0), A_2 = 0: b = gamma^2 |V|^2 V / (4 m^2 tau_0^2)."""

    def linear_rate(self, p):
        return p.gamma**2 * (2.0 - p.gamma**2)

    def factor_drift(self, p, factor):
        m, inner = factor.shape[-2], factor.mT @ factor
        rate = p.gamma**2 * (1.0 - p.gamma**2) / (8.0 * m**2 * p.tau0**2)
        return rate * (column_sums(row_squares(inner)) * factor)

    def factor_noise(self, p, factor, numbers):
        m, c = factor.shape[-2:]
        scores = numbers.normal("scores", c, c) @ (factor.mT @ factor)
        return p.gamma**2 / (2.0 * m * p.tau0) * (factor @ scores)


@dataclass(frozen=True)
class SigmoidAttention(Block):
    """A = I + (2 / m) (sigmoid(Y / tau) - 1/2), tau = tau_0 n: no normalisation of rows."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)
    limit = SigmoidLimit()

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


class _Hot:
    def temperature(self, p, width):
        return 2.0 * super().temperature(p, width)


@dataclass(frozen=True)
class HotterByMixin(_Hot, ShapedAttention):
    """The same by a class that is no block."""


@dataclass(frozen=True)
class Doubled(ShapedAttention):
    """Twice the centred softmax, in networks and chain."""

    def mix(self, logits, head=0):
        return 2.0 * super().mix(logits, head)


class UncheckedLimit(Limit):
    """No drift; the root of a rate that is negative for gamma > sqrt 2, and a division."""

    def linear_rate(self, p):
        return p.gamma**2 * (2.0 - p.gamma**2)

    def factor_drift(self, p, factor):
        return 0.0 / p.tau0 * factor


@dataclass(frozen=True)
class Unchecked(Block):
    """A linear branch that accepts any parameters."""

    gamma: float
    tau0: float = 1.0
    limit = UncheckedLimit()

    def branch(self, p, tokens, project):
        return project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5
