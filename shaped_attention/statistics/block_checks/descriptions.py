"""Checks of what a block declares, and of what the package derives from it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from shaped_attention.blocks.limit import Limit, is_superlinear, relative_speed
from shaped_attention.blocks.reasons import limit_reason
from shaped_attention.samplers.pathwise import pathwise
from shaped_attention.samplers.specification import common_groups
from shaped_attention.samplers.steps import check_coefficients, traced_chain, traced_limit
from shaped_attention.statistics.block_checks.report import Array, Check, Trial, judged, untested

ERRORS = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors of a block's descriptions, which fail a check."""


def tracing(trial: Trial) -> Iterator[Check]:
    """Whether chain and limit can be traced into compiled programs."""
    block, tokens = trial.block, trial.tokens
    for face, reason in (("chain", block.no_chain), ("limit", limit_reason(block))):
        name = f"tracing of the {face}"
        if reason:
            yield untested(name, f"there is none: {reason}")
            continue
        try:
            if face == "chain":
                traced_chain([[block]], tokens, trial.width, common_groups([block]))
            else:
                traced_limit([[block]], tokens, 0.01)
            yield judged(name, True, "compiled code can run it")
        except ERRORS as error:
            yield judged(name, False, str(error))


def ranges(trial: Trial) -> Iterator[Check]:
    """Whether the block refuses what is not a number, and parameters without a limit."""
    title, accepted = "ranges of parameters", []
    for name in trial.names:
        for value in (math.nan, math.inf):
            if trial.with_value(name, value) is not None:
                accepted.append(f"{name}={value!r}")
                break
        for value in (0.0, -1.0, 1.5):
            changed = trial.with_value(name, value)
            if changed is None or limit_reason(changed):
                continue
            try:
                check_coefficients([[changed]], trial.tokens, 1)
            except FloatingPointError:
                accepted.append(f"{name}={value!r}")
                break
    if not trial.names:
        yield untested(title, "the block has no numerical parameter")
        return
    detail = (
        f"the block accepts {', '.join(accepted)}, for which it has no numbers: a field "
        "`name: float = sa.bounded(low, high)` refuses values out of range" if accepted
        else "NaN, infinity and numbers without a limit are refused"
    )  # fmt: skip
    yield judged(title, not accepted, detail)


def clock(trial: Trial) -> Iterator[Check]:
    """What the clock uses against what follows from drift and noise."""
    limit, name = trial.limit, "superlinear terms against speed"
    if limit is None or limit.normalised:
        yield untested(name, "there is no limit, or its paths cannot explode")
        return
    p, m = trial.parameters, trial.tokens
    normals = np.random.default_rng(trial.seed).normal(size=(4, m, m))
    factor = torch.tensor(normals / math.sqrt(m))
    speed = limit.speed(p, 100.0 * factor)
    slow, fast = (_entries(relative_speed(limit, p, s * factor)) for s in (10.0, 100.0))
    if not is_superlinear(limit, p, m, m):
        yield judged(name, True, "drift and noise grow at most linearly: paths cannot explode")
    elif type(limit).speed is Limit.speed:
        text = "drift or noise grows faster than V; the speed is derived from them"
        yield judged(name, True, text)
    elif speed is None:
        # A bound by cancellation, as with a single token: the derived rate does not grow either.
        growth = fast / np.maximum(slow, 1e-300)
        bounded = bool((growth < 10.0).all())
        yield judged(
            name, bounded,
            "speed is None, and the terms of higher order cancel" if bounded else
            f"speed is None, but the relative rate of V grows by a factor of {growth.max():.3g} "
            "if F is ten times as large",
        )  # fmt: skip
    else:
        declared = _entries(speed)
        ratio = np.where(declared == fast, 1.0, declared / np.maximum(fast, 1e-300))
        yield judged(
            name, bool((ratio > 0.1).all()),
            f"the declared speed is {ratio.min():.3g} to {ratio.max():.3g} times the rate that "
            "follows from drift and noise",
            "a speed that is less than a tenth of this rate",
        )  # fmt: skip
    for name, further in (("noise_drift", ()), ("noise_along", (factor @ factor.mT,))):
        if getattr(type(limit), name) is getattr(Limit, name):
            continue
        declared = getattr(limit, name)(p, factor, *further)
        expected = getattr(Limit, name)(limit, p, factor, *further)
        if declared is None or expected is None:
            yield untested(name, "it is None, or there are too many increments")
            continue
        apart = float((declared - expected).abs().max() / expected.abs().max().clamp(min=1e-300))
        text = f"it differs from that of factor_noise by {apart:.2g}"
        yield judged(name, apart < 1e-9, text, "a relative error of 1e-9")


def _entries(x: torch.Tensor) -> Array:
    return np.asarray(x.detach().numpy()).reshape(-1)


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
