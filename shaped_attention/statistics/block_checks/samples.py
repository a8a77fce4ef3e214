"""Checks by samples: networks, the chain, and one wide layer against drift and diffusion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import stats

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.reasons import limit_reason
from shaped_attention.checks import check_count
from shaped_attention.derived.spaces import DerivationError
from shaped_attention.numerics.covariance import vech
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
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
from shaped_attention.theory.drift_diffusion import diffusion, drift

Observables = dict[str, Array]

_LEVEL = 1e-3
"""Probability that a correct block fails a statistical check."""

_ERRORS = 5.0
"""Standard errors by which a mean of one wide layer may differ from its limit."""

_SAME = 1e-9
"""Relative difference of a sample in a stack from the same alone, which rounding does not reach."""

_SHARE = 0.05
"""Share of the observed deviation from the limit at a finite width that extrapolation may leave."""

_WIDE = 128
"""Columns of a group in the narrower of two wide layers."""

_ROOTS = 2**14
"""Number of roots that are made at once."""


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
        run(trial.block, trial.v0, samples=samples, **options)["V"].to_numpy()
        for run, samples in (
            (simulate_network, trial.samples), (simulate_chain, 10 * trial.samples)
        )
    )  # fmt: skip
    pairs = {f"layer {i}": (observables(network[i]), observables(chain[i])) for i in (1, 4)}
    yield replace(_smallest(pairs), name=name)


def _smallest(pairs: dict[str, tuple[Observables, Observables]]) -> Check:
    """Return the check of the smallest p-value of all observables of some pairs of samples."""
    values = [
        (float(stats.ks_2samp(_rounded(a[key]), _rounded(b[key])).pvalue), f"{key}, {word}")
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


def _rounded(values: Array) -> Array:
    """Return values without their rounding errors, which differ where a law has atoms."""
    return np.round(values, 9)


def token_means(trial: Trial) -> Iterator[Check]:
    """Whether the law of a layer depends on the means of the tokens, and the block says so."""
    block, width = trial.block, trial.width
    factor = cholesky(torch.tensor(trial.v0))
    tokens = torch.zeros(trial.samples, trial.tokens, width, dtype=torch.float64)
    tokens[..., : trial.tokens] = width**0.5 * factor
    constant = torch.full((width,), width**-0.5, dtype=torch.float64)
    axis = torch.zeros(width, dtype=torch.float64)
    axis[0] = 1.0
    # The reflection that exchanges the first axis with the direction of 1 gives the tokens means.
    normal = (axis - constant) / torch.linalg.vector_norm(axis - constant)
    turned = tokens - 2.0 * (tokens @ normal)[..., None] * normal
    generator = torch.Generator().manual_seed(trial.seed)

    def project(
        x: torch.Tensor, columns: int, name: str | None = None, head: int = 0
    ) -> torch.Tensor:
        check_count("columns", columns)
        shape = (*x.shape[:-2], x.shape[-1], columns)
        return x @ torch.randn(shape, dtype=x.dtype, generator=generator)

    sides = []
    for x in (tokens, turned):
        new = block.forward(trial.parameters, x, project)
        sides.append(observables((new @ new.mT / width).numpy()))
    smallest = _smallest({"one layer": (sides[0], sides[1])})
    name = "means of the tokens"
    if block.means:
        yield judged(name, True, "the state has them (means)")
    elif common_groups([block]) > 1:
        yield untested(name, "heads without an output projection see parts of the columns")
    elif smallest.outcome == FAIL:
        detail = (
            "the law depends on them, but `means` is False; or on other properties of the single "
            f"entries of the tokens, which have no exact chain: {smallest.detail}"
        )
        yield judged(name, False, detail)
    else:
        yield replace(
            smallest, name=name, detail=f"the law does not depend on them: {smallest.detail}"
        )


def single_samples(trial: Trial) -> Iterator[Check]:
    """Whether a sample of a stack has the tokens that it has alone, with the same weights."""
    generator = torch.Generator().manual_seed(trial.seed)
    shape = (3, trial.tokens, trial.width)
    stack = torch.randn(shape, dtype=torch.float64, generator=generator)
    weights: list[torch.Tensor] = []

    def project(
        x: torch.Tensor, columns: int, name: str | None = None, head: int = 0
    ) -> torch.Tensor:
        size = (*x.shape[:-2], x.shape[-1], columns)
        weights.append(torch.randn(size, dtype=x.dtype, generator=generator))
        return x @ weights[-1]

    together, worst = trial.block.forward(trial.parameters, stack, project), 0.0
    for k in range(len(stack)):
        again = iter(weights)

        def of_sample(
            x: torch.Tensor, columns: int, name: str | None = None, head: int = 0,
            k: int = k, again: Iterator[torch.Tensor] = again,
        ) -> torch.Tensor:  # fmt: skip
            w = next(again)
            return x @ (w[k : k + 1] if w.dim() > 2 and len(w) > 1 else w)

        alone = trial.block.forward(trial.parameters, stack[k : k + 1], of_sample)
        difference = (together[k : k + 1] - alone).abs().max() / together.abs().max()
        worst = max(worst, float(difference))
    good = worst < _SAME
    detail = (
        "each sample of a stack has the tokens that it has alone" if good
        else f"a sample depends on the others of its stack, or on numbers that `project` has not "
        f"drawn: relative difference {worst:.2g}"
    )  # fmt: skip
    yield judged("single samples", good, detail)


def wide_layer(trial: Trial) -> Iterator[Check]:
    """One wide layer, extrapolated from two widths, against drift and diffusion."""
    names, block = ("drift from one wide layer", "diffusion from one wide layer"), trial.block
    if trial.limit is None or trial.limit.normalised:
        reason = (
            f"there is no limit: {limit_reason(block)}" if trial.limit is None else
            "the limit is that of correlations after many layers"
        )  # fmt: skip
        yield from (untested(name, reason) for name in names)
        return
    worst = {name: (0.0, "", "") for name in names}
    for scale in (1.0, 2.0):
        v = scale * trial.v0
        known = vech(drift(block, v)), diffusion(block, v)
        measured = _extrapolated(trial, v)
        for name, theory, (value, deviation, left) in zip(names, known, measured, strict=True):
            allowed = _ERRORS * deviation + _SHARE * left + 1e-9 * np.abs(known[1]).max()
            excess = np.abs(value - theory) / allowed
            index = np.unravel_index(int(excess.argmax()), excess.shape)
            entries = ", ".join(_entry(int(i), len(v)) for i in index)
            where = (
                f"at {scale:g} v0 that of {entries} is {theory[index]:.4g}, and "
                f"{value[index]:.4g} +- {deviation[index]:.2g} from one layer"
            )
            if excess.max() >= worst[name][0]:
                size = f"an error of {allowed.max():.2g} (the largest entry is"
                worst[name] = float(excess.max()), where, f"{size} {np.abs(theory).max():.3g})"
    for name in names:
        most, where, size = worst[name]
        yield judged(name, most <= 1.0, where, size)


def _entry(number: int, tokens: int) -> str:
    """Return the name of an entry of V, from its number in `vech`."""
    row, column = (int(x[number]) for x in np.tril_indices(tokens))
    return f"V[{row}, {column}]"


def _extrapolated(trial: Trial, v: Array) -> list[tuple[Array, Array, Array]]:
    """Return drift and diffusion at width infinity: value, standard error, and what was added."""
    groups = common_groups([trial.block])
    both = [_moments_at(trial, v, groups * n) for n in (_WIDE, 2 * _WIDE)]
    return [
        (2.0 * wide - narrow, np.hypot(2.0 * wide_error, narrow_error), np.abs(wide - narrow))
        for (narrow, narrow_error), (wide, wide_error) in zip(*both, strict=True)
    ]


def _moments_at(trial: Trial, v: Array, width: int) -> list[tuple[Array, Array]]:
    """Return n E[V' - V] and n Cov[V'] of one layer with their standard errors."""
    block = trial.block
    run, count = simulate_chain, 1000 * trial.samples
    if block.no_chain:
        run, count = simulate_network, 10 * trial.samples
    new, means = [], []
    for k, size in enumerate(_blocks(count, trial.tokens)):
        seed = trial.seed + 1 + k
        result = run(block, v, width=width, depth=1, samples=size, seed=seed, progress=False)
        new.append(vech(result["V"].to_numpy()[-1] - v))
        few = max(_ROOTS, size // 5)
        means.append(new[-1] if block.no_chain else _conditional(trial, v, width, few, seed))
    change, mean = np.concatenate(new), np.concatenate(means)
    apart = change - change.mean(axis=0)
    spread = width * (apart.T @ apart) / len(change)
    squares = width**2 * ((apart**2).T @ apart**2) / len(change)
    errors = np.sqrt(np.maximum(squares - spread**2, 0.0) / len(change))
    drift_error = width * mean.std(axis=0) / math.sqrt(len(mean))
    return [(width * mean.mean(axis=0), drift_error), (spread, errors)]


def _conditional(trial: Trial, v: Array, width: int, count: int, seed: int) -> Array:
    """Return E[V' - V | R] = lambda^2 V + gamma^2 K - V, as a vector, for samples of the root.

    K = R R^T is the covariance of a column of the branch, or its mean over the groups of columns.
    Its mean has the drift, without the noise of the last weights.
    """
    block, p = trial.block, trial.parameters
    own = type(block).step is not Block.step or type(block).forward is not Block.forward
    if own or not _has_root(trial, width):
        result = simulate_chain(
            block, v, width=width, depth=1, samples=count, seed=seed + 2**32, progress=False
        )
        return vech(result["V"].to_numpy()[-1] - v)
    factor, keys = cholesky(torch.tensor(v)), Keys(seed, "derived")
    skip, gamma = float(block.skip_weight(p)), float(p.gamma)
    parts = []
    for first in range(0, count, _ROOTS):
        samples = torch.arange(first, min(first + _ROOTS, count))
        numbers = TorchNumbers(keys, samples, 0)
        roots = block.root(p, factor.expand(len(samples), -1, -1), numbers, width)
        grams = [root @ root.mT for root in (roots if isinstance(roots, list) else [roots])]
        k = (sum(grams[1:], grams[0]) / len(grams)).numpy()
        parts.append(vech(skip**2 * v + gamma**2 * k - v))
    return np.concatenate(parts)


def _has_root(trial: Trial, width: int) -> bool:
    """Return whether the branch ends in a product with weights."""
    factor = cholesky(torch.tensor(trial.v0))[None]
    numbers = TorchNumbers(Keys(0, "derived"), torch.arange(1), 0)
    try:
        trial.block.root(trial.parameters, factor, numbers, width)
    except DerivationError:
        return False
    return True


def _blocks(count: int, tokens: int) -> list[int]:
    """Return sizes of blocks of samples whose covariances take little memory."""
    size = max(1000, 2**22 // tokens**2)
    return [min(size, count - first) for first in range(0, count, size)]
