"""Checks of what is derived: the clock's speed and noise, and derivatives of paths."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shaped_attention.blocks import superlinear
from shaped_attention.blocks.base import Block, chain_reason, limit_reason
from shaped_attention.blocks.limit import Limit
from shaped_attention.samplers.pathwise import pathwise
from shaped_attention.statistics.block_checks.report import (
    FAIL,
    NOT_TESTED,
    PASS,
    Check,
)
from shaped_attention.statistics.block_checks.trial import Trial, numerical_parameters, with_value

Array = NDArray[np.float64]


def clock(trial: Trial) -> Iterator[Check]:
    """What the clock uses against what follows from drift and noise."""
    limit, name = trial.limit, "superlinear terms against speed"
    if limit is None or limit.normalised:
        yield Check(name, NOT_TESTED, "there is no limit, or its paths cannot explode")
        return
    p, m = trial.parameters(), trial.tokens
    rng = np.random.default_rng(trial.seed)
    shape = (4, m, m)
    factor = torch.tensor(rng.normal(size=shape) / math.sqrt(m))
    declared = type(limit).speed is not Limit.speed
    grows = superlinear.is_superlinear(limit, p, m, m)
    speeds = [limit.speed(p, scale * factor) for scale in (10.0, 100.0)]
    derived = [_entries(superlinear.relative_speed(limit, p, s * factor)) for s in (10.0, 100.0)]
    if not grows:
        yield Check(name, PASS, "drift and noise grow at most linearly: paths cannot explode")
    elif not declared:
        yield Check(name, PASS, "drift or noise grow faster than V; the speed is derived from them")
    elif speeds[1] is None:
        # A bound by cancellation, as with a single token: the derived rate does not grow either.
        growth = derived[1] / np.maximum(derived[0], 1e-300)
        bounded = bool((growth < 10.0).all())
        yield Check(
            name, PASS if bounded else FAIL,
            "speed is None, and the terms of higher order cancel" if bounded else
            f"speed is None, but the relative rate of V grows by {growth.max():.3g} if F is ten "
            "times as large",
        )  # fmt: skip
    else:
        ratio = _entries(speeds[1]) / np.maximum(derived[1], 1e-300)
        good = bool((ratio > 0.1).all())
        yield Check(
            name, PASS if good else FAIL,
            f"the declared speed is {ratio.min():.3g} to {ratio.max():.3g} times the rate that "
            "follows from drift and noise",
            "a speed that is less than a tenth of this rate",
        )  # fmt: skip
    yield from _noise_moments(trial, limit, p, factor)


def _noise_moments(trial: Trial, limit: Limit, p: Any, factor: torch.Tensor) -> Iterator[Check]:
    direction = factor @ factor.mT
    for name, ours, derived in (
        ("noise_drift", limit.noise_drift(p, factor), superlinear.noise_drift(limit, p, factor)),
        (
            "noise_along", limit.noise_along(p, factor, direction),
            superlinear.noise_along(limit, p, factor, direction),
        ),
    ):  # fmt: skip
        if getattr(type(limit), name) is getattr(Limit, name):
            continue
        if ours is None or derived is None:
            yield Check(name, NOT_TESTED, "it is None, or there are too many increments")
            continue
        apart = float((ours - derived).abs().max() / derived.abs().max().clamp(min=1e-300))
        yield Check(
            name, PASS if apart < 1e-9 else FAIL,
            f"it differs from that of factor_noise by {apart:.2g}", "a relative error of 1e-9",
        )  # fmt: skip


def _entries(x: torch.Tensor) -> Array:
    return np.asarray(x.detach().numpy()).reshape(-1)


def derivatives(trial: Trial) -> Iterator[Check]:
    """Derivatives of paths against difference quotients with the same random numbers."""
    block, names = trial.block, numerical_parameters(trial.block)
    if not names:
        yield Check("derivatives", NOT_TESTED, "the block has no numerical parameter")
        return
    runs: list[tuple[str, dict[str, Any]]] = []
    if not chain_reason(block):
        runs.append(("chain", {"width": trial.width, "depth": 4}))
    if trial.limit is not None:
        runs.append(("limit", {"horizon": 0.02, "step": 0.005}))
    v0 = torch.tensor(trial.v0)
    for kind, size in runs:
        options = {**size, "samples": 64, "seed": trial.seed}
        wrong, largest = [], 0.0
        for name in names:
            value = float(getattr(block, name))
            if kind == "limit" and _without_limit(block, name, value):
                continue
            apart = _derivative_error(block, name, value, v0, options)
            largest = max(largest, apart)
            if not apart < 1e-4:
                wrong.append(f"{name} ({apart:.2g})")
        yield Check(
            f"derivatives of the {kind}", FAIL if wrong else PASS,
            f"wrong for {', '.join(wrong)}: a value read from self has none" if wrong else
            f"those of {', '.join(names)} agree with differences to {largest:.2g}",
            "a relative error of 1e-4",
        )  # fmt: skip


def _without_limit(block: Block, name: str, value: float) -> bool:
    """Return whether the block has a limit for this value of a parameter only."""
    changed = with_value(block, name, 1.001 * value + 1e-6)
    return changed is None or bool(limit_reason(changed))


def _derivative_error(
    block: Block, name: str, value: float, v0: torch.Tensor, options: dict[str, Any]
) -> float:
    """Return the relative difference of derivative and quotient; NaN if a run fails."""
    tensor = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    step = 1e-6 * max(abs(value), 1e-2)

    def total(changed: float) -> float:
        there = with_value(block, name, changed)
        if there is None:
            raise ValueError(f"{name}={changed!r} is refused")
        return float(pathwise(there, v0, **options).sum())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            v = pathwise(block, v0, parameters={name: tensor}, **options).sum()
            slope = None
            if v.requires_grad:
                (slope,) = torch.autograd.grad(v, tensor, allow_unused=True)
            quotient = (total(value + step) - total(value - step)) / (2.0 * step)
        except (ArithmeticError, LookupError, RuntimeError, ValueError):
            return math.nan
    ours = 0.0 if slope is None else float(slope)
    return abs(ours - quotient) / max(abs(quotient), 1e-3 * abs(float(v.detach())))
