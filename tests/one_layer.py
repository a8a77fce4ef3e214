"""Moments of one layer with real numbers at two widths, against drift and noise of a limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth


class Drawn:
    """project(x, columns): exact in law given x, from a root of x x^T; keys may change sign."""

    def __init__(self, generator: Any, batch: int, sign: float, drawn: list[Any]) -> None:
        self.generator, self.batch, self.sign = generator, batch, sign
        self.drawn, self.calls = drawn, 0

    def __call__(self, x: Any, columns: int, name: str | None = None, head: int = 0) -> Any:
        """Return the product."""
        if self.calls == len(self.drawn):
            size = (self.batch, x.shape[-2], columns)
            self.drawn.append(torch.randn(size, generator=self.generator, dtype=torch.float64))
        normal = self.drawn[self.calls]
        self.calls += 1
        return (self.sign if name == "keys" else 1.0) * (torch.linalg.cholesky(x @ x.mT) @ normal)


FAR = 1e13
"""A temperature at which there are no scores."""

TOKENS = 3


def without_scores(block: Any) -> Any:
    """Return the block whose moments are known: the linear one."""
    return replace(block, **({"tau0": FAR} if hasattr(block, "tau0") else {"a": 0.0}))


def layer_moments(block: Any, v0: Any, width: int, samples: int, seed: int, batch: int = 20_000):
    """Return n E[V' - V''] and its error, and n Cov(V' - V'') likewise; V'' has no scores.

    Averaging over the signs of the keys removes the noise of order sqrt n from the drift. The noise
    of the scores is not correlated with that of V''.
    """
    generator = torch.Generator().manual_seed(seed)
    root = torch.linalg.cholesky(torch.tensor(v0))
    tokens = torch.zeros(1, TOKENS, width, dtype=torch.float64)
    tokens[0, :, :TOKENS] = root * width**0.5
    tokens = tokens.expand(batch, TOKENS, width)
    linear, i, j = without_scores(block), *np.tril_indices(TOKENS)
    skip = math.sqrt(1.0 - block.gamma**2)
    drifts, kicks = [], []
    for _ in range(samples // batch):
        drawn: list[Any] = []
        values = []
        for sign in (1.0, -1.0):
            both = []
            for kind in (block, linear):
                branch = kind.branch(
                    at_depth(kind, 0.0), tokens, Drawn(generator, batch, sign, drawn)
                )
                new_tokens = skip * tokens + kind.gamma * branch
                both.append((new_tokens @ new_tokens.mT / width)[:, i, j])
            values.append(both[0] - both[1])
            if sign > 0.0:
                kicks.append(values[0] * width**0.5)
        drifts.append(width * sum(values) / 2.0)
    drift, kick = torch.cat(drifts), torch.cat(kicks)
    kick = kick - kick.mean(0)
    noise = kick[:, :, None] * kick[:, None, :]
    count = len(drift)
    return [(x.mean(0).numpy(), (x.std(0) / count**0.5).numpy()) for x in (drift, noise)]


def scores_against_layers(block: Any, wrong: Any, samples: int) -> tuple[Any, Any]:
    """Return the largest |z| of drift and noise of the limit, and of that of a wrong block."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(TOKENS, 5))
    v0 = x @ x.T / 5.0 + 0.2 * np.eye(TOKENS)
    i, j = np.tril_indices(TOKENS)
    one, two = (layer_moments(block, v0, n, samples, n) for n in (64, 128))

    def expected(kind: Any) -> list[Any]:
        linear = without_scores(kind)
        return [
            (sa.drift(kind, v0) - sa.drift(linear, v0))[i, j],
            sa.diffusion(kind, v0) - sa.diffusion(linear, v0),
        ]

    scores = []
    for right in (expected(block), expected(wrong)):
        z = []
        for value, (a, sa_), (b, sb) in zip(right, one, two, strict=True):
            # Without the term of order 1/n.
            mean, error = 2.0 * b - a, np.sqrt(4.0 * sb**2 + sa_**2)
            if not value.any():
                # Without scores there is no noise; what is left is of order 1 / n^2.
                assert np.abs(mean).max() < 0.02
                continue
            # Under a causal mask the first token sees itself alone.
            free, apart = error > 1e-9, np.abs(value - mean)
            assert apart[~free].max(initial=0.0) < 1e-6
            z.append(float((apart[free] / error[free]).max()))
        scores.append(z)
    return scores[0], scores[1]
