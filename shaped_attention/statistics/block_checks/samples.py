"""Checks by samples: networks against the chain, means of the tokens, and single samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from scipy import stats

from shaped_attention.checks import check_count
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.specification import common_groups
from shaped_attention.statistics.block_checks.report import (
    FAIL,
    Array,
    Check,
    Trial,
    judged,
    untested,
)

Observables = dict[str, Array]

_LEVEL = 1e-3
"""Probability that a correct block fails a statistical check."""

_SAME = 1e-9
"""Relative difference of a sample in a stack from the same alone, which rounding does not reach."""


def networks(trial: Trial) -> Iterator[Check]:
    """Networks against the chain, after one layer and after four, by Kolmogorov and Smirnov."""
    name = "branch against chain"
    if reason := trial.block.no_chain:
        yield untested(name, f"there is no chain: {reason}")
        return
    options: dict[str, Any] = {
        "width": trial.width, "depth": 4, "seed": trial.seed, "save_every": 1, "progress": False,
    }  # fmt: skip
    network, chain = (
        run(trial.block, trial.v0, samples=count * trial.samples, **options)["V"].to_numpy()
        for run, count in ((simulate_network, 1), (simulate_chain, 10))
    )
    pairs = {f"layer {i}": (observables(network[i]), observables(chain[i])) for i in (1, 4)}
    yield replace(_smallest(pairs), name=name)


def _smallest(pairs: dict[str, tuple[Observables, Observables]]) -> Check:
    """Return the check of the smallest p-value of all observables of some pairs of samples."""
    values = [
        # Rounding errors differ where a law has atoms.
        (float(stats.ks_2samp(a[key].round(9), b[key].round(9)).pvalue), f"{key}, {word}")
        for word, (a, b) in pairs.items()
        for key in a
    ]
    p, where = min(values)
    n, m = (len(next(iter(x.values()))) for x in next(iter(pairs.values())))
    apart = math.sqrt(0.5 * math.log(2.0 * len(values) / _LEVEL) / (n * m / (n + m)))
    corrected = min(1.0, p * len(values))
    return judged(
        "", corrected > _LEVEL,
        f"smallest p-value times the number of tests ({len(values)}): {corrected:.2g} ({where})",
        f"a distance of {apart:.2g} between distribution functions, in half of all cases",
    )  # fmt: skip


def token_means(trial: Trial) -> Iterator[Check]:
    """Whether the law of a layer depends on the means of the tokens, and the block says so."""
    block, width = trial.block, trial.width
    factor = cholesky(torch.tensor(trial.v0))
    tokens = torch.zeros(trial.samples, trial.tokens, width, dtype=torch.float64)
    tokens[..., : trial.tokens] = width**0.5 * factor
    # The reflection that exchanges the first axis with the direction of 1 gives the tokens means.
    normal = torch.full((width,), -(width**-0.5), dtype=torch.float64)
    normal[0] += 1.0
    normal /= torch.linalg.vector_norm(normal)
    turned = tokens - 2.0 * (tokens @ normal)[..., None] * normal
    weights = _Weights(trial.seed)
    news = [block.forward(trial.parameters, x, weights.draw) for x in (tokens, turned)]
    first, second = (observables((new @ new.mT / width).numpy()) for new in news)
    smallest = _smallest({"one layer": (first, second)})
    name = "means of the tokens"
    if block.means:
        yield judged(name, True, "the state has them (means)")
    elif common_groups([block]) > 1:
        yield untested(name, "heads without an output projection see parts of the columns")
    else:
        found = (
            "the law depends on them, but `means` is False; or on other properties of the single "
            "entries of the tokens, which have no exact chain" if smallest.outcome == FAIL
            else "the law does not depend on them"
        )  # fmt: skip
        yield replace(smallest, name=name, detail=f"{found}: {smallest.detail}")


def single_samples(trial: Trial) -> Iterator[Check]:
    """Whether a sample of a stack has the tokens that it has alone, with the same weights."""
    weights = _Weights(trial.seed)
    stack = weights.normal(3, trial.tokens, trial.width)
    together, worst = trial.block.forward(trial.parameters, stack, weights.draw), 0.0
    drawn = weights.drawn
    for k in range(len(stack)):
        weights.drawn = [w[k : k + 1] if w.dim() > 2 and len(w) > 1 else w for w in drawn]
        alone = trial.block.forward(trial.parameters, stack[k : k + 1], weights.again)
        difference = (together[k : k + 1] - alone).abs().max() / together.abs().max()
        worst = max(worst, float(difference))
    good = worst < _SAME
    detail = (
        "each sample of a stack has the tokens that it has alone" if good
        else f"a sample depends on the others of its stack, or on numbers that `project` has not "
        f"drawn: relative difference {worst:.2g}"
    )  # fmt: skip
    yield judged("single samples", good, detail)


class _Weights:
    """Projections with weights of a seed, and with those drawn before, in their order."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.drawn: list[torch.Tensor] = []

    def normal(self, *shape: int) -> torch.Tensor:
        """Return standard normals."""
        return torch.randn(shape, dtype=torch.float64, generator=self._generator)

    def draw(
        self, x: torch.Tensor, columns: int, name: str | None = None, head: int = 0
    ) -> torch.Tensor:
        """Multiply by new weights."""
        check_count("columns", columns)
        self.drawn.append(self.normal(*x.shape[:-2], x.shape[-1], columns))
        return x @ self.drawn[-1]

    def again(self, x: torch.Tensor, *_: Any, **_named: Any) -> torch.Tensor:
        """Multiply by the next of the weights that were drawn."""
        return x @ self.drawn.pop(0)
