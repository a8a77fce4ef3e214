"""Checks by networks with real weights: against the chain, and for the means of the tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from shaped_attention.blocks.base import chain_reason
from shaped_attention.numerics.factor import semidefinite_cholesky
from shaped_attention.numerics.observables import observables
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

Array = NDArray[np.float64]

_LEVEL = 1e-3
"""Probability that a correct block fails a statistical check."""


def networks(trial: Trial) -> Iterator[Check]:
    """Networks against the chain, after one layer and after four, by Kolmogorov and Smirnov."""
    name, block = "branch against root", trial.block
    if reason := chain_reason(block):
        yield Check(name, NOT_TESTED, f"there is no chain: {reason}")
        return
    options: dict[str, Any] = {"width": trial.width, "depth": 4, "save_every": 1, "progress": False}
    try:
        network = simulate_network(
            block, trial.v0, samples=trial.samples, seed=trial.seed, **options
        )
        chain = simulate_chain(
            block, trial.v0, samples=10 * trial.samples, seed=trial.seed, **options
        )
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        yield Check(name, FAIL, f"a run fails: {error}")
        return
    found = _smallest([(_at(network, i), _at(chain, i)) for i in (1, 4)], ("layer 1", "layer 4"))
    yield replace(found, name=name)


def _at(result: xr.Dataset, i: int) -> dict[str, Array]:
    return observables(result["V"].to_numpy()[i])


def _smallest(
    pairs: list[tuple[dict[str, Array], dict[str, Array]]], words: tuple[str, ...]
) -> Check:
    """Return the check of the smallest p-value of all observables of some pairs of samples."""
    found = [
        (float(stats.ks_2samp(_rounded(a[key]), _rounded(b[key])).pvalue), f"{key}, {word}")
        for (a, b), word in zip(pairs, words, strict=True)
        for key in a
    ]
    p, where = min(found)
    sizes = [len(next(iter(x.values()))) for x in pairs[0]]
    effective = sizes[0] * sizes[1] / (sizes[0] + sizes[1])
    apart = math.sqrt(0.5 * math.log(2.0 * len(found) / _LEVEL) / effective)
    corrected = min(1.0, p * len(found))
    return Check(
        "", PASS if corrected > _LEVEL else FAIL,
        f"smallest p-value times the number of {len(found)} tests: {corrected:.2g} ({where})",
        f"a distance of {apart:.2g} between distribution functions, in half of all cases",
    )  # fmt: skip


def _rounded(values: Array) -> Array:
    """Return values without their rounding errors, which differ where a law has atoms."""
    return np.round(values, 9)


def token_means(trial: Trial) -> Iterator[Check]:
    """Whether the law of a layer depends on the means of the tokens, and the block says so."""
    block, width = trial.block, trial.width
    factor = semidefinite_cholesky(torch.tensor(trial.v0))
    tokens = torch.zeros(trial.samples, trial.tokens, width, dtype=torch.float64)
    tokens[..., : trial.tokens] = width**0.5 * factor
    constant = torch.full((width,), width**-0.5, dtype=torch.float64)
    axis = torch.zeros(width, dtype=torch.float64)
    axis[0] = 1.0
    # The reflection that exchanges the first axis with the direction of 1 gives the tokens means.
    normal = (axis - constant) / torch.linalg.vector_norm(axis - constant)
    turned = tokens - 2.0 * (tokens @ normal)[..., None] * normal
    generator = torch.Generator().manual_seed(trial.seed)

    def project(x: torch.Tensor, columns: int) -> torch.Tensor:
        shape = (*x.shape[:-2], x.shape[-1], columns)
        return x @ torch.randn(shape, dtype=x.dtype, generator=generator)

    sides = []
    for x in (tokens, turned):
        new = block.forward(trial.parameters(), x, project)
        sides.append(observables((new @ new.mT / width).numpy()))
    found = _smallest([(sides[0], sides[1])], ("one layer",))
    name = "means of the tokens"
    if block.means:
        yield Check(name, PASS, "the state has them (means)")
    elif common_groups([block]) > 1:
        yield Check(name, NOT_TESTED, "heads without an output projection see parts of the columns")
    elif found.outcome == FAIL:
        detail = f"the law depends on them, but `means` is False: {found.detail}"
        yield Check(name, FAIL, detail)
    else:
        yield replace(found, name=name, detail=f"the law does not depend on them: {found.detail}")
