"""Blocks that nobody has derived a limit for: their branch is all there is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import shaped_attention as sa
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.primitives import (
    concatenate,
    constant,
    row_squares,
    sigmoid,
    softmax,
    sqrt,
    tanh,
)


def seen(tokens: int, causal: bool = False) -> NDArray[np.bool_]:
    """Return which tokens each token sees."""
    whole = np.ones((tokens, tokens), bool)
    return np.tril(whole) if causal else whole


def centred(logits, allowed):
    """Return the softmax minus its value at 0."""
    weights = allowed / allowed.sum(1, keepdims=True)
    return softmax(logits, allowed) - constant(weights, like=logits)


def logits_of(p, x, n, size, project, head=0):
    """Return q k^T / (tau_0 sqrt(n n_k)); a test changes the sign of the weights "keys"."""
    queries = project(x, size, "queries", head) / n**0.5
    keys = project(x, size, "keys", head) / n**0.5
    return queries @ keys.mT / (p.tau0 * (n * size) ** 0.5)


@dataclass(frozen=True)
class Sigmoid(sa.Block):
    """(sigmoid(scores) - 1/2) / m in place of the centred softmax."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        weights = (sigmoid(logits_of(p, tokens, n, n, project)) - 0.5) / m
        values = project(tokens, n) / n**0.5
        return values + weights @ values


@dataclass(frozen=True)
class Differential(sa.Block):
    """The difference of two softmax, as in the differential transformer (arXiv 2410.05258)."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)
    mu: float = 0.6

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        one, two = (centred(logits_of(p, tokens, n, n, project, h), seen(m)) for h in range(2))
        values = project(tokens, n) / n**0.5
        return values + (one - p.mu * two) @ values


@dataclass(frozen=True)
class TalkingHeads(sa.Block):
    """Scores that are mixed over the heads before the softmax (arXiv 2003.02436)."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)
    mixing: tuple = ((1.0, 0.5), (-0.3, 0.8))

    def branch(self, p, tokens, project):
        """Return the branch."""
        (m, n), heads = tokens.shape[-2:], len(self.mixing)
        scores = [logits_of(p, tokens, n, n // heads, project, h) for h in range(heads)]
        rows = []
        for weights in self.mixing:
            mixed = sum(w * x for w, x in zip(weights, scores, strict=True))
            values = project(tokens, n // heads) / n**0.5
            rows.append(values + centred(mixed, seen(m, causal=True)) @ values)
        return project(concatenate(rows), n) / n**0.5


@dataclass(frozen=True)
class UnitRows(sa.Block):
    """Values and scores of rows of length sqrt n; each row gets its length back."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)
    back: bool = True

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        unit = tokens / sqrt(row_squares(tokens) / n)
        weights = centred(logits_of(p, unit, n, n, project), seen(m, causal=True))
        values = project(unit, n) / n**0.5
        mixed = values + weights @ values
        return mixed * sqrt(row_squares(tokens) / n) if self.back else mixed


@dataclass(frozen=True)
class Latent(sa.Block):
    """Keys and values from a projection to n / 2 columns (multi-head latent attention)."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        size = n // 2
        latent = project(tokens, size) / n**0.5
        queries = project(tokens, size) / n**0.5
        keys = project(latent, size, "keys") / size**0.5
        weights = centred(queries @ keys.mT / (p.tau0 * (n * size) ** 0.5), seen(m))
        values = project(latent, n) / size**0.5
        return values + weights @ values


@dataclass(frozen=True)
class SharedKeys(sa.Block):
    """Keys that are the values."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        keys, queries = project(tokens, n) / n**0.5, project(tokens, n, "keys") / n**0.5
        return keys + centred(queries @ keys.mT / (p.tau0 * n), seen(m)) @ keys


@dataclass(frozen=True)
class Twice(sa.Block):
    """The same attention twice, A (v + A v)."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        weights = centred(logits_of(p, tokens, n, n, project), seen(m))
        values = project(tokens, n) / n**0.5
        return values + weights @ (values + weights @ values)


@dataclass(frozen=True)
class Nested(sa.Block):
    """A softmax of scores that another softmax has mixed over tokens."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        scores = logits_of(p, tokens, n, n, project)
        weights = centred(softmax(scores, seen(m)) @ scores, seen(m))
        values = project(tokens, n) / n**0.5
        return values + weights @ values


@dataclass(frozen=True)
class Even(sa.Block):
    """Hidden units x + a tanh(x)^2 / sqrt n."""

    gamma: float = bounded(0.0, 1.0)
    a: float = 1.5

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        hidden = project(tokens, n) / n**0.5
        bent = tanh(hidden)
        return project(hidden + p.a * (bent * bent) / n**0.5, n) / n**0.5


@dataclass(frozen=True)
class Odd(sa.Block):
    """Hidden units x + a tanh(x) / n."""

    gamma: float = bounded(0.0, 1.0)
    a: float = 1.5

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        hidden = project(tokens, n) / n**0.5
        return project(hidden + p.a * tanh(hidden) / n, n) / n**0.5
