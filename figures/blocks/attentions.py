"""Eight attentions that people use or propose, shaped; of each only the branch is written.

A layer is X' = sqrt(1 - gamma^2) X + gamma branch, and the branch (I + A) X W_V / sqrt n with A of
order 1 / sqrt n, but for a mixture of heads or a gate: scores are divided by tau0 sqrt(n n_k), with
n_k columns of keys, and weights are centred at their value for zero scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import shaped_attention as sa
from shaped_attention.numerics.primitives import (
    by_mean_square,
    concatenate,
    constant,
    sigmoid,
    softmax,
    unit_rows,
)


@dataclass(frozen=True)
class Attention(sa.Block):
    """The parameters of all: weight of the branch and temperature."""

    gamma: float = sa.bounded(0.0, 1.0)
    tau0: float = sa.bounded(above=0.0, default=1.0)


def scores(p, tokens, project, size, head=0):
    """Return the scores (m, m) of queries and keys with `size` columns."""
    n = tokens.shape[-1]
    queries = project(tokens, size, "queries", head) / n**0.5
    keys = project(tokens, size, "keys", head) / n**0.5
    return queries @ keys.mT / (p.tau0 * (n * size) ** 0.5)


def centred(logits, seen=None):
    """Return the softmax over the tokens seen, a boolean (m, m) or all, less its value at 0."""
    seen = np.ones(logits.shape[-2:], bool) if seen is None else seen
    return softmax(logits, seen) - constant(seen / seen.sum(1, keepdims=True), like=logits)


@dataclass(frozen=True)
class Differential(Attention):
    """The difference of two softmax, the second times mu (arXiv 2410.05258)."""

    mu: float = 0.6

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        one, two = (centred(scores(p, tokens, project, n, head)) for head in range(2))
        values = project(tokens, n) / n**0.5
        return values + (one - p.mu * two) @ values


class Sigmoid(Attention):
    """A sigmoid with the bias -log m in place of the softmax (arXiv 2409.04431)."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        weights = sigmoid(scores(p, tokens, project, n) - math.log(m)) - 1.0 / (m + 1)
        values = project(tokens, n) / n**0.5
        return values + weights @ values


@dataclass(frozen=True)
class TalkingHeads(Attention):
    """Heads that are mixed before the softmax and after it (arXiv 2003.02436)."""

    before: tuple = ((1.0, 0.5), (-0.3, 0.8))
    after: tuple = ((1.0, 0.3), (0.3, 1.0))

    def branch(self, p, tokens, project):
        """Return the branch."""
        n, heads = tokens.shape[-1], len(self.before)
        logits = [scores(p, tokens, project, n // heads, head) for head in range(heads)]
        weights = mixed(self.after, [centred(x) for x in mixed(self.before, logits)])
        values = [project(tokens, n // heads) / n**0.5 for _ in range(heads)]
        rows = [v + w @ v for w, v in zip(weights, values, strict=True)]
        return project(concatenate(rows), n) / n**0.5


def mixed(mixing, matrices):
    """Return the sums of matrices, one for each row of weights."""
    return [sum(w * x for w, x in zip(row, matrices, strict=True)) for row in mixing]


class Latent(Attention):
    """Keys and values from n / 2 columns of a latent, as in MLA (arXiv 2405.04434)."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        size = n // 2
        latent, queries = (project(tokens, size) / n**0.5 for _ in range(2))
        keys = project(latent, size, "keys") / size**0.5
        weights = centred(queries @ keys.mT / (p.tau0 * (n * size) ** 0.5))
        values = project(latent, n) / size**0.5
        return values + weights @ values


class QKNorm(Attention):
    """Queries and keys with rows of mean square 1 (arXiv 2010.04245)."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        n = tokens.shape[-1]
        queries = by_mean_square(project(tokens, n), 0.0)
        keys = by_mean_square(project(tokens, n, "keys"), 0.0)
        values = project(tokens, n) / n**0.5
        return values + centred(queries @ keys.mT / (p.tau0 * n)) @ values


@dataclass(frozen=True)
class Gated(Attention):
    """Softmax attention, its output times a sigmoid of a projection (arXiv 2505.06708)."""

    scale: float = sa.bounded(above=0.0, default=0.5)

    def branch(self, p, tokens, project):
        """Return the branch, with a gate that tends to 1."""
        n = tokens.shape[-1]
        values = project(tokens, n) / n**0.5
        rows = values + centred(scores(p, tokens, project, n)) @ values
        gate = 2.0 * sigmoid(project(tokens, n) / (p.scale * n))
        return project(rows * gate, n) / n**0.5


class Linear(Attention):
    """Scores without a softmax (retention without decay, arXiv 2307.08621)."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        values = project(tokens, n) / n**0.5
        return values + scores(p, tokens, project, n) @ values / m


class Cosine(Attention):
    """Cosines of queries and keys in place of the softmax (arXiv 2409.18747)."""

    def branch(self, p, tokens, project):
        """Return the branch."""
        m, n = tokens.shape[-2:]
        queries, keys = unit_rows(project(tokens, n)), unit_rows(project(tokens, n, "keys"))
        values = project(tokens, n) / n**0.5
        return values + queries @ keys.mT @ values / (p.tau0 * m)


EIGHT = {
    "differential": Differential,
    "sigmoid": Sigmoid,
    "talking heads": TalkingHeads,
    "latent": Latent,
    "QK-norm": QKNorm,
    "gated": Gated,
    "linear": Linear,
    "cosine": Cosine,
}
