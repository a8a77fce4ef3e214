"""Blocks that nobody has derived a limit for, besides those of figures/blocks/attentions.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import shaped_attention as sa
from figures.blocks.attentions import Attention, centred, scores
from shaped_attention.numerics.primitives import diagonal, row_squares, sqrt, tanh


@dataclass(frozen=True)
class UnitRows(Attention):
    """Values and scores of rows of length sqrt n; each row gets its length back."""

    back: bool = True

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        unit = tokens / sqrt(row_squares(tokens) / n)
        weights = centred(scores(p, unit, project, n), np.tri(m, dtype=bool))
        values = project(unit, n) / n**0.5
        mixed = values + weights @ values
        return mixed * sqrt(row_squares(tokens) / n) if self.back else mixed


class Lengths(Attention):
    """Values times what is random in the squared lengths of keys."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        keys, values = project(tokens, n) / n**0.5, project(tokens, n) / n**0.5
        random = (keys @ keys.mT - tokens @ tokens.mT) / (p.tau0 * n)
        return values + diagonal(random) * values


class ScoredValues(Attention):
    """Weights v u^T that act on u."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        v, u = project(tokens, n) / n**0.5, project(tokens, n) / n**0.5
        return v + (v @ u.mT / (p.tau0 * n)) @ u


class Twice(Attention):
    """The same attention twice, A (v + A v)."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        weights = centred(scores(p, tokens, project, n))
        values = project(tokens, n) / n**0.5
        return values + weights @ (values + weights @ values)


class Nested(Attention):
    """A softmax of scores that another softmax has mixed over tokens."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        logits = scores(p, tokens, project, n)
        weights = centred((centred(logits) + 1.0 / tokens.shape[-2]) @ logits)
        values = project(tokens, n) / n**0.5
        return values + weights @ values


@dataclass(frozen=True)
class Odd(sa.Block):
    """Hidden units x + a tanh(x) / n."""

    gamma: float = sa.bounded(0.0, 1.0)
    a: float = 1.5

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        hidden = project(tokens, n) / n**0.5
        return project(hidden + p.a * tanh(hidden) / n, n) / n**0.5
