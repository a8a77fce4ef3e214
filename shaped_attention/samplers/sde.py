"""The limiting SDE, integrated by the clock or by torchsde.

Where paths can explode, steps shrink with the state: see `shaped_attention.samplers.clock_step`.
torchsde's Euler scheme moves a factor of the covariance; `shaped_attention.samplers.steps` has the
step.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Unpack

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.reasons import check_limit, limit_of
from shaped_attention.checks import argument_error, check_choice, check_positive
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.arguments import check_other_seed
from shaped_attention.samplers.clock_step import can_explode, first_order
from shaped_attention.samplers.loop import sample
from shaped_attention.samplers.specification import SamplerOptions, specify, with_options
from shaped_attention.samplers.steppers import stepper_of

METHODS = ("clock", "torchsde", "direct")
"""Integrators of the limit."""


@recorded(sampler="sde")
@with_options(SamplerOptions)
def integrate_sde(
    layer: Layer,
    v0: ArrayLike,
    *,
    horizon: float,
    step: float = 0.01,
    samples: int,
    seed: int = 0,
    method: str | None = None,
    **options: Unpack[SamplerOptions],
) -> xr.Dataset:
    """Sample the limit of the covariances, dV = b(V) dt + Sigma(V)^{1/2} dB.

    Parameters
    ----------
    layer, v0, samples, seed, options
        As in `shaped_attention.simulate_chain`, with times in multiples of the step. Solutions can
        explode in finite time: a path stops where |V| reaches the radius; the clock lowers the
        radius by 0.58 standard deviations of a step, to correct for crossings between steps. A path
        that reaches the radius need not explode.
    horizon
        Final time T > 0; a network of width n and depth L corresponds to T = L / n.
    step
        Length of a step, positive; the horizon must be a multiple of it. The clock takes shorter
        steps where superlinear terms change V quickly.
    method
        "clock" for adaptive steps, which become shorter as V grows, with a predictor and a
        corrector; "torchsde" for Euler steps of fixed length by torchsde, or "direct" for the same
        steps without it, bit-identical and faster. None, the default, means the clock where paths
        can explode and torchsde elsewhere.

    Returns
    -------
    xarray.Dataset as from `shaped_attention.simulate_chain`; the clock adds `steps_taken` and
    `largest_speed` (sample), the largest relative rate at which superlinear terms changed V.

    Raises
    ------
    ValueError
        If an argument is outside its range; the message names it.

    Warns
    -----
    UserWarning
        If one fixed step covers the whole horizon, or paths reach the radius with a fixed step.
    """
    if method is not None:
        check_choice("method", method, METHODS)
    check_other_seed(v0, "sde", seed)
    steps = count_steps(horizon, step)
    horizon, step = float(horizon), float(step)
    check_limit(layer)
    if steps == 1 and method in ("torchsde", "direct"):
        warnings.warn(
            f"step={step!r}: one Euler step covers the whole horizon, so the step determines the "
            "law at its end; smaller steps approach the limit",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    spec = specify(
        layer, v0, width=None, steps=steps, dt=horizon / steps, samples=samples, seed=seed,
        **options,
    )  # fmt: skip
    if method == "clock" and limit_of(spec.blocks[0]).normalised:
        requirement = "'torchsde' or 'direct' for normalised blocks, whose paths cannot explode"
        raise argument_error("method", requirement, method)
    if method is None:
        method = "clock" if can_explode(spec.blocks, spec.tokens) else "torchsde"
    parameters: dict[str, float | str] = {"horizon": horizon, "step": step, "method": method}
    if method == "clock":
        for block in first_order(spec.blocks, spec.tokens):
            warnings.warn(
                f"method='clock': the noise of {type(block).__name__} has no derivative in closed "
                "form, so that steps near an explosion are of first order",
                UserWarning,
                stacklevel=3,  # the caller of the recorded function
            )
    result, _ = sample(stepper_of(replace(spec, method=method)), parameters)
    if method == "clock":
        return result
    stopped = int(np.isfinite(result["stopping_time"]).sum())
    if stopped and not limit_of(spec.blocks[0]).normalised:
        advice = (
            "which is wrong near an explosion; use method='clock'"
            if can_explode(spec.blocks, spec.tokens)
            else "so that the time is known only to within a step; these paths cannot explode, and "
            "a larger radius would not stop them"
        )
        warnings.warn(
            f"method={method!r}: {stopped} of {samples} paths reached the radius with a fixed "
            f"step, {advice}",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    return result


def count_steps(horizon: float, step: float) -> int:
    """Return ``horizon / step`` as an integer.

    Raise ValueError if one is not positive, or the horizon is not a multiple of the step.
    """
    check_positive("horizon", horizon)
    check_positive("step", step)
    ratio = min(float(horizon) / float(step), 1e300)
    steps = round(ratio)
    if steps < 1 or abs(ratio - steps) > 1e-6:
        below, above = (horizon / max(1, math.floor(ratio) + k) for k in (0, 1))
        nearest = min(below, above, key=lambda x: round(abs(x - step) / step, 9))
        requirement = f"a divisor of horizon={horizon!r}, such as the nearest, {nearest:.12g}"
        raise argument_error("step", requirement, step)
    return steps
