"""One layer with real numbers at widths 64 and 128, against drift and noise of a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.theory.moments import linear_diffusion, moments

TOKENS = 3
X = np.random.default_rng(5).normal(size=(TOKENS, 5))
V0 = torch.tensor(X @ X.T / 5.0 + 0.2 * np.eye(TOKENS))
I, J = np.tril_indices(TOKENS)
PAIRS = len(I)
WHOLE = np.tril_indices(2 * PAIRS)
ENTRIES = PAIRS + len(WHOLE[0])
BARE = {"tau0": 1e13, "a": 0.0, "c_plus": 0.0, "c_minus": 0.0}
"""Parameters of blocks without scores and bends, which are linear: mean and noise are known."""


class Drawn:
    """project(x, columns): exact in law given x, from a root of x x^T.

    Matrices of keys may change sign; Gram matrices of numbers named "lengths" are kept.
    """

    def __init__(self, generator: Any, batch: int, sign: float, drawn: list[Any]) -> None:
        self.generator, self.batch, self.sign = generator, batch, sign
        self.drawn, self.calls, self.grams = drawn, 0, list[Any]()

    def __call__(self, x: Any, columns: int, name: str | None = None, head: int = 0) -> Any:
        """Return the product; single precision draws five times as fast."""
        if self.calls == len(self.drawn):
            size = (self.batch, x.shape[-2], columns)
            self.drawn.append(torch.randn(size, generator=self.generator).double())
        normal = self.drawn[self.calls]
        self.calls += 1
        if name == "lengths":
            self.grams.append((normal @ normal.mT / columns - torch.eye(TOKENS))[:, I, J])
        sign = self.sign if (name or "").startswith("keys") else 1.0
        return sign * (torch.linalg.cholesky(x @ x.mT) @ normal)


def with_parameters(block: sa.Block, change: dict[str, Any]) -> sa.Block:
    """Return a block with other values of those parameters that it has."""
    return replace(block, **{name: x for name, x in change.items() if hasattr(block, name)})


def layer_moments(block: sa.Block, width: int, samples: int, batch: int = 1000) -> Any:
    """Return n E[V' - V''] and n Cov of V'' - V and V' - V'' together, and their errors.

    V'' is that of the bare block, of mean V. The drift is averaged over the signs of the keys, and
    a regression frees it of V'' and of lengths, whose means are known.
    """
    generator, parts = torch.Generator().manual_seed(getattr(block, "seed", 1)), []
    tokens = torch.zeros(batch, TOKENS, width, dtype=torch.float64)
    tokens[:, :, :TOKENS] = torch.linalg.cholesky(V0) * width**0.5
    for _ in range(samples // batch):
        drawn, both = list[Any](), list[Any]()
        for sign in (1.0, -1.0):
            for kind in (with_parameters(block, BARE), block):
                project = Drawn(generator, batch, sign, drawn)
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


def of_limit(block: sa.Block) -> Any:
    """Return what the same tend to: V'' has the linear noise, V' - V'' the rest."""
    v, p, limit = V0[None], at_depth(block, 0.0), block.limit
    assert not isinstance(limit, str)
    drift, noise = moments([(limit, p, 1.0)], v, diffusion=True)
    linear = limit.linear_rate(at_depth(with_parameters(block, BARE), 0.0)) * linear_diffusion(v)
    whole = torch.block_diag(*(x[0][I, J][:, I, J] for x in (linear, noise - linear)))
    return np.concatenate([drift[0][I, J], whole[WHOLE]])


def deviations(limit: Any, mean: Any, error: Any) -> Any:
    """Return deviations in standard errors; what is left of order 1/n^2 is 0.1 % of the noise."""
    apart, rest = np.abs(limit - mean), 1e-3 * np.abs(limit[PAIRS:]).max()
    apart[PAIRS:] = np.maximum(apart[PAIRS:] - rest, 0.0)
    return apart / np.maximum(error, 1e-9)


def compare(
    blocks: Sequence[sa.Block], samples: int, examples: int, change: float, noticed: float
) -> None:
    """Compare limits with layers; of some of the examples, corrected for the number of all.

    Parameters that are wrong by the change (c_minus by four times as much) must be noticed in a
    share of the blocks.
    """
    bound, wrong, seen = stats.norm.isf(5e-4 / (ENTRIES * examples)), list[str](), 0
    for block in blocks:
        (one, error), (two, other) = (layer_moments(block, n, samples) for n in (64, 128))
        # Without the term of order 1/n.
        mean, error = 2.0 * two - one, np.hypot(error, 2.0 * other)
        z = deviations(of_limit(block), mean, error)
        if z.max() > bound:
            drift, noise = z[:PAIRS].max(), z[PAIRS:].max()
            words = getattr(block, "words", "")
            wrong.append(f"{block} {words}: {drift:.1f} errors in the drift, {noise:.1f} in noise")
        changes = {"tau0": 1.0 - change, "a": 1.0 + change, "c_minus": 1.0 + 4.0 * change}
        values = {k: c * getattr(block, k, 0.0) for k, c in changes.items()}
        control = of_limit(with_parameters(block, values))
        seen += deviations(control, mean, error).max() > bound
    assert not wrong, "\n".join(wrong)
    assert seen >= noticed * len(blocks)
