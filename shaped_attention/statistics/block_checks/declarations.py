"""Checks of what a block declares: what it inherits, its ranges, whether it can be traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from shaped_attention.blocks.base import chain_reason, limit_reason
from shaped_attention.samplers.request import common_groups
from shaped_attention.samplers.steps import check_coefficients, traced_chain, traced_limit
from shaped_attention.statistics.block_checks.report import (
    FAIL,
    NOT_TESTED,
    PASS,
    Check,
)
from shaped_attention.statistics.block_checks.trial import Trial, numerical_parameters, with_value


def overriding(trial: Trial) -> Iterator[Check]:
    """What a class overrides and what it then does not inherit."""
    block = trial.block
    if not block.overridden:
        yield Check("overridden methods", PASS, "the block overrides no method of another block")
        return
    for name, reason in (("limit", limit_reason(block)), ("chain", chain_reason(block))):
        if f"{type(block).__name__} overrides" in reason:
            yield Check(f"overridden methods and {name}", FAIL, reason)
            return
    names = ", ".join(block.overridden)
    yield Check("overridden methods", PASS, f"it declares what rests on {names}")


def tracing(trial: Trial) -> Iterator[Check]:
    """Whether chain and limit can be traced into compiled programs."""
    block, tokens = trial.block, trial.tokens
    groups = common_groups([block])
    width = trial.width
    traces: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("chain", chain_reason(block), lambda: traced_chain([[block]], tokens, width, groups)),
        ("limit", limit_reason(block), lambda: traced_limit([[block]], tokens, 0.01)),
    )
    for name, reason, trace in traces:
        if reason:
            yield Check(f"tracing of the {name}", NOT_TESTED, f"there is none: {reason}")
            continue
        try:
            trace()
            yield Check(f"tracing of the {name}", PASS, "compiled code can run it")
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            yield Check(f"tracing of the {name}", FAIL, str(error))


def ranges(trial: Trial) -> Iterator[Check]:
    """Whether the block refuses what is not a number, and parameters without a limit."""
    accepted = []
    for name in numerical_parameters(trial.block):
        for value in (math.nan, math.inf):
            if with_value(trial.block, name, value) is not None:
                accepted.append(f"{name}={value!r}")
                break
        for value in (0.0, -1.0, 1.5):
            changed = with_value(trial.block, name, value)
            if changed is None or limit_reason(changed):
                continue
            try:
                check_coefficients([[changed]], trial.tokens, 1)
            except FloatingPointError:
                accepted.append(f"{name}={value!r}")
                break
    if not numerical_parameters(trial.block):
        yield Check("ranges of parameters", NOT_TESTED, "the block has no numerical parameter")
    elif accepted:
        yield Check(
            "ranges of parameters", FAIL,
            f"{', '.join(accepted)} are accepted, which have no limit: a field "
            "`name: float = sa.bounded(low, high)` refuses them",
        )  # fmt: skip
    else:
        yield Check(
            "ranges of parameters", PASS, "NaN, infinity and numbers without a limit are refused"
        )
