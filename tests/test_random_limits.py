"""Limits of branches made at random: those of one layer with real numbers, or a reason for none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from shaped_attention.blocks.parameters import at_depth
from shaped_attention.theory.moments import linear_diffusion, moments
from tests.one_layer import Drawn
from tests.random_limits import TOKENS, RandomLimit

X = np.random.default_rng(5).normal(size=(TOKENS, 5))
V0 = torch.tensor(X @ X.T / 5.0 + 0.2 * np.eye(TOKENS))
I, J = np.tril_indices(TOKENS)
PAIRS = len(I)
WHOLE = np.tril_indices(2 * PAIRS)
ENTRIES = PAIRS + len(WHOLE[0])


class Weights(Drawn):
    """Draws in single precision, five times as fast; keeps the Gram matrices named "lengths"."""

    def __call__(self, x: Any, columns: int, name: str | None = None, head: int = 0) -> Any:
        """Return the product."""
        if self.calls == len(self.drawn):
            size = (self.batch, TOKENS, columns)
            self.drawn.append(torch.randn(size, generator=self.generator).double())
        if name == "lengths":
            normal = self.drawn[self.calls]
            self.grams.append((normal @ normal.mT / columns - torch.eye(TOKENS))[:, I, J])
        return super().__call__(x, columns, name, head)


def one_layer(block: RandomLimit, width: int, samples: int, batch: int = 1000) -> Any:
    """Return n E[V' - V''] and n Cov of V'' - V and V' - V'' together, and their errors.

    V'' is that of the bare block, of mean V. The drift is averaged over the signs of the keys, and
    a regression frees it of V'' and of lengths, whose means are known.
    """
    generator, parts = torch.Generator().manual_seed(block.seed), []
    tokens = torch.zeros(batch, TOKENS, width, dtype=torch.float64)
    tokens[:, :, :TOKENS] = torch.linalg.cholesky(V0) * width**0.5
    for _ in range(samples // batch):
        drawn, both = list[Any](), list[Any]()
        for sign in (1.0, -1.0):
            for kind in (block.bare, block):
                project = Weights(generator, batch, sign, drawn)
                project.grams = []
                x = kind.forward(at_depth(kind, 0.0), tokens, project)
                both.append(((x @ x.mT / width - V0) * width**0.5)[:, I, J])
        up, down = (torch.cat([u, v - u], 1) for u, v in (both[:2], both[2:]))
        parts.append((up, down, torch.cat([both[0], both[2], *project.grams], 1)))
    up, down, known = (torch.cat(x) for x in zip(*parts, strict=True))
    drift = (up + down)[:, PAIRS:] / 2.0 * width**0.5
    slopes = torch.linalg.lstsq(known - known.mean(0), drift - drift.mean(0)).solution
    a, b = WHOLE
    noise = [x[:, a] * x[:, b] / 2.0 for x in (up - up.mean(0), down - down.mean(0))]
    values = torch.cat([drift - known @ slopes, noise[0] + noise[1]], 1)
    return values.mean(0).numpy(), (values.std(0) / len(values) ** 0.5).numpy()


def of_limit(block: RandomLimit) -> Any:
    """Return what the same tend to: V'' has the linear noise, V' - V'' the rest."""
    v, p, limit = V0[None], at_depth(block, 0.0), block.limit
    drift, noise = moments([(limit, p, 1.0)], v, diffusion=True)
    linear = limit.linear_rate(p) * linear_diffusion(v)
    whole = torch.block_diag(*(x[0][I, J][:, I, J] for x in (linear, noise - linear)))
    return np.concatenate([drift[0][I, J], whole[WHOLE]])


def deviations(limit: Any, mean: Any, error: Any) -> Any:
    """Return deviations in standard errors; what is left of order 1/n^2 is 0.1 % of the noise."""
    apart, rest = np.abs(limit - mean), 1e-3 * np.abs(limit[PAIRS:]).max()
    apart[PAIRS:] = np.maximum(apart[PAIRS:] - rest, 0.0)
    return apart / np.maximum(error, 1e-9)


def compare(seeds: Sequence[int], samples: int, examples: int, change: float) -> None:
    """Compare the limits of some of the examples with layers of widths 64 and 128.

    A third must have a limit. In four of five, wrong parameters must be noticed.
    """
    bound = stats.norm.isf(5e-4 / (ENTRIES * examples))
    wrong, noticed, found = list[str](), 0, 0
    for block in map(RandomLimit.of, seeds):
        if isinstance(block.limit, str):
            assert "Error:" not in block.limit, f"{block} ({block.words}): {block.limit}"
            continue
        (one, error), (two, other) = (one_layer(block, n, samples) for n in (64, 128))
        # Without the term of order 1/n.
        mean, error = 2.0 * two - one, np.hypot(error, 2.0 * other)
        limit, found = of_limit(block), found + 1
        z = deviations(limit, mean, error)
        if z.max() > bound:
            sight = bound * error[:PAIRS].max() / np.abs(limit[:PAIRS]).max()
            wrong.append(
                f"{block} ({block.words}): {z[:PAIRS].max():.1f} errors in the drift, of which "
                f"{sight:.0%} would be seen; {z[PAIRS:].max():.1f} in the noise"
            )
        control = replace(block, tau0=block.tau0 * (1.0 - change), a=block.a * (1.0 + change))
        noticed += deviations(of_limit(control), mean, error).max() > bound
    assert not wrong, "\n".join(wrong)
    assert 3 * found > len(seeds)
    assert noticed >= 0.8 * found


def test_limits_of_random_branches() -> None:
    """3,000 samples; parameters that are wrong by 25 % are noticed."""
    compare(range(20), 3000, 20, 0.25)


@pytest.mark.validation
@pytest.mark.parametrize("first", range(0, 300, 30))
def test_limits_of_many_random_branches(first: int) -> None:
    """6,000 samples; parameters that are wrong by 20 % are noticed."""
    compare(range(first, first + 30), 6000, 300, 0.2)
