"""Derivatives of paths against difference quotients: whether parameters come from `p`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from shaped_attention.blocks.reasons import limit_reason
from shaped_attention.samplers.pathwise import pathwise
from shaped_attention.statistics.block_checks.report import ERRORS, Check, Trial, judged, untested


def derivatives(trial: Trial) -> Iterator[Check]:
    """Derivatives of paths against difference quotients with the same random numbers."""
    names = trial.names
    if not names:
        yield untested("derivatives", "the block has no numerical parameter")
        return
    chain, limit = {"width": trial.width, "depth": 4}, {"horizon": 0.02, "step": 0.005}
    sizes: dict[str, Any] = {"chain": chain, "limit": limit}
    for kind, size in sizes.items():
        title, options = f"derivatives of the {kind}", {**size, "seed": trial.seed}
        if trial.block.no_chain if kind == "chain" else trial.limit is None:
            continue
        if not _runs(trial, options):
            yield untested(title, f"the {kind} does not run")
            continue
        errors = {
            name: _derivative_error(trial, name, value, options | {"samples": 64})
            for name in names
            if (value := _inside(trial, name, kind)) is not None
        }
        if not errors:
            yield untested(title, "the parameters have only these values")
            continue
        wrong = [f"{name} ({error:.2g})" for name, error in errors.items() if not error < 1e-4]
        largest = max(errors.values())
        yield judged(
            title, not wrong,
            f"wrong for {', '.join(wrong)}: a value read from self has none" if wrong else
            f"those of {', '.join(errors)} agree with differences to {largest:.2g}",
            "a relative error of 1e-4",
        )  # fmt: skip


def _runs(trial: Trial, options: dict[str, Any]) -> bool:
    """Return whether a run with the block's own parameters succeeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            pathwise(trial.block, torch.tensor(trial.v0), samples=2, **options)
        except ERRORS:
            return False
    return True


def _inside(trial: Trial, name: str, kind: str) -> float | None:
    """Return the value of a parameter, or one near it that is not at an end of its range.

    There the derivative may be infinite, as that of sqrt(1 - gamma^2) is. None if the parameter can
    have only its value, or the block a limit only for this value.
    """

    def allowed(value: float) -> bool:
        block = trial.with_value(name, value)
        return block is not None and not (kind == "limit" and limit_reason(block))

    value = float(getattr(trial.block, name))
    apart = 1e-3 * max(abs(value), 1.0)
    places = (value, value - apart, value + apart)
    return next((x for x in places if allowed(x - _step(x)) and allowed(x + _step(x))), None)


def _step(value: float) -> float:
    """Return the step of a difference quotient."""
    return 1e-6 * max(abs(value), 1e-2)


def _derivative_error(trial: Trial, name: str, value: float, options: dict[str, Any]) -> float:
    """Return the relative difference of derivative and quotient; NaN if a run fails."""
    v0, step = torch.tensor(trial.v0), _step(value)
    tensor = torch.tensor(value, dtype=torch.float64, requires_grad=True)

    def total(changed: float) -> float:
        return float(pathwise(replace(trial.block, **{name: changed}), v0, **options).sum())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            block = replace(trial.block, **{name: value})
            v = pathwise(block, v0, parameters={name: tensor}, **options).sum()
            slope = None
            if v.requires_grad:
                (slope,) = torch.autograd.grad(v, tensor, allow_unused=True)
            quotient = (total(value + step) - total(value - step)) / (2.0 * step)
        except ERRORS:
            return math.nan
    derivative = 0.0 if slope is None else float(slope)
    return abs(derivative - quotient) / max(abs(quotient), 1e-3 * abs(float(v.detach())))
