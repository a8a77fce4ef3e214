"""Check of drift and diffusion by one wide layer."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block, chain_reason, limit_reason
from shaped_attention.numerics.covariance import vech
from shaped_attention.numerics.factor import semidefinite_cholesky
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.request import common_groups
from shaped_attention.statistics.block_checks.report import (
    FAIL,
    NOT_TESTED,
    PASS,
    Check,
)
from shaped_attention.statistics.block_checks.trial import Trial
from shaped_attention.theory.drift_diffusion import diffusion, drift

Array = NDArray[np.float64]

_ERRORS = 5.0
"""Standard errors by which a mean of one wide layer may differ from its limit."""

_SHARE = 0.05
"""Share of the observed deviation from the limit at a finite width that extrapolation may leave."""

_WIDE = 128
"""Columns of a group in the narrower of two wide layers."""

_ROOTS = 2**14
"""Number of roots that are made at once."""


def wide_layer(trial: Trial) -> Iterator[Check]:
    """One wide layer, extrapolated from two widths, against drift and diffusion."""
    names, block = ("drift from one wide layer", "diffusion from one wide layer"), trial.block
    if trial.limit is None:
        for name in names:
            yield Check(name, NOT_TESTED, f"there is no limit: {limit_reason(block)}")
        return
    if trial.limit.normalised:
        for name in names:
            yield Check(name, NOT_TESTED, "the limit is that of correlations after many layers")
        return
    worst = {name: (0.0, "", "") for name in names}
    for scale in (1.0, 2.0):
        v = scale * trial.v0
        try:
            known = vech(drift(block, v)), diffusion(block, v)
            measured = _extrapolated(trial, v)
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            yield Check(" and ".join(names), FAIL, f"a run fails: {error}")
            return
        for name, theory, (value, deviation, left) in zip(names, known, measured, strict=True):
            allowed = _ERRORS * deviation + _SHARE * left + 1e-9 * np.abs(known[1]).max()
            excess = np.abs(value - theory) / allowed
            index = np.unravel_index(int(excess.argmax()), excess.shape)
            where = (
                f"at {scale:g} v0 entry {tuple(int(i) for i in index)} is {theory[index]:.4g}, and "
                f"{value[index]:.4g} +- {deviation[index]:.2g} from one layer"
            )
            if excess.max() >= worst[name][0]:
                size = f"an error of {allowed.max():.2g} (the largest entry is"
                worst[name] = float(excess.max()), where, f"{size} {np.abs(theory).max():.3g})"
    for name in names:
        most, where, size = worst[name]
        yield Check(name, PASS if most <= 1.0 else FAIL, where, size)


def _extrapolated(trial: Trial, v: Array) -> list[tuple[Array, Array, Array]]:
    """Return drift and diffusion at width infinity: value, standard error, and what was added."""
    found = [_moments_at(trial, v, common_groups([trial.block]) * n) for n in (_WIDE, 2 * _WIDE)]
    result = []
    for (narrow, narrow_error), (wide, wide_error) in zip(*found, strict=True):
        value = 2.0 * wide - narrow
        result.append((value, np.hypot(2.0 * wide_error, narrow_error), np.abs(wide - narrow)))
    return result


def _moments_at(trial: Trial, v: Array, width: int) -> list[tuple[Array, Array]]:
    """Return n E[V' - V] and n Cov[V'] of one layer with their standard errors."""
    block = trial.block
    run, count = simulate_chain, 1000 * trial.samples
    if chain_reason(block):
        run, count = simulate_network, 10 * trial.samples
    new, means = [], []
    for k, size in enumerate(_blocks(count, trial.tokens)):
        seed = trial.seed + 1 + k
        result = run(block, v, width=width, depth=1, samples=size, seed=seed, progress=False)
        new.append(vech(result["V"].to_numpy()[-1] - v))
        few = max(_ROOTS, size // 5)
        means.append(new[-1] if chain_reason(block) else _conditional(trial, v, width, few, seed))
    change, mean = np.concatenate(new), np.concatenate(means)
    apart = change - change.mean(axis=0)
    spread = width * (apart.T @ apart) / len(change)
    squares = width**2 * ((apart**2).T @ apart**2) / len(change)
    errors = np.sqrt(np.maximum(squares - spread**2, 0.0) / len(change))
    drift_error = width * mean.std(axis=0) / math.sqrt(len(mean))
    return [(width * mean.mean(axis=0), drift_error), (spread, errors)]


def _conditional(trial: Trial, v: Array, width: int, count: int, seed: int) -> Array:
    """Return E[V' - V | R] = lambda^2 V + gamma^2 K - V, half-vectorised, for samples of the root.

    K = R R^T is the covariance of a column of the branch, or its mean over the groups of columns.
    Its mean has the drift, without the noise of the last weights.
    """
    block, p = trial.block, trial.parameters()
    if type(block).step is not Block.step or type(block).forward is not Block.forward:
        result = simulate_chain(
            block, v, width=width, depth=1, samples=count, seed=seed + 2**32, progress=False
        )
        return vech(result["V"].to_numpy()[-1] - v)
    factor, keys = semidefinite_cholesky(torch.tensor(v)), Keys(seed, "derived")
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


def _blocks(count: int, tokens: int) -> list[int]:
    """Return sizes of blocks of samples whose covariances take little memory."""
    size = max(1000, 2**22 // tokens**2)
    return [min(size, count - first) for first in range(0, count, size)]
