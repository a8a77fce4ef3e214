"""Derivatives of the probability of an explosion in the parameters of a layer.

The chain rule joins two parts: the coefficients alpha, mu, k and delta are differentiable in the
parameters by torch (`reduction.coefficients`); the probability is differentiated in the
coefficients and in u_0 by central differences of its Laplace inversion. These are taken with more
digits than they lose, so that they have a relative error of about 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.overrides import numbers_of
from shaped_attention.theory.explosion.reduction import Reduction, coefficients
from shaped_attention.theory.explosion.scalar_law import ScalarLaw, precise

_STEP = 1e-8
"""Relative step of the central differences."""

_DIGITS = 16
"""Further digits of the probabilities of which differences are taken."""


@dataclass(frozen=True)
class Gradient:
    """Derivatives of a probability.

    Parameters
    ----------
    parameters
        Derivatives by name of the parameter: a dictionary for a layer of one block, otherwise a
        list with one dictionary for each block, as the `parameters` of `pathwise`.
    u0
        Derivative in the initial value of the scalar u, which is w^T V_0 w. The derivative in V_0
        is this number times w w^T.
    """

    parameters: Any
    u0: float


def gradient(
    layer: Layer, reduction: Reduction, law: ScalarLaw, horizon: float | None, level: float
) -> Gradient:
    """Return the derivatives of P(u reaches the level by the horizon)."""
    still = law.u0 >= level or law.never(level) or horizon == 0.0
    outer = {
        name: 0.0 if still else _slope(law, name, horizon, level)
        for name in ("alpha", "mu", "k", "delta", "u0")
    }
    values = _each(numbers_of(layer), torch.Tensor.requires_grad_)
    inner = zip(("alpha", "mu", "k", "delta"), coefficients(layer, reduction, values), strict=True)
    total = torch.stack([outer[name] * value for name, value in inner]).sum()
    if total.requires_grad:
        total.backward()
    slopes = _each(values, lambda x: 0.0 if x.grad is None else float(x.grad))
    return Gradient(slopes, outer["u0"])


def _slope(law: ScalarLaw, name: str, horizon: float | None, level: float) -> float:
    mp = precise()
    value = getattr(law, name)
    if name in ("alpha", "delta") and law.delta == 0.0:
        return 0.0
    with mp.workdps(50):
        step = mp.mpf(_STEP) * (value if value != 0.0 else law.k)
        ends = [replace(law, **{name: mp.mpf(value) + sign * step}) for sign in (1, -1)]
        up, down = (
            end.precise_probability(horizon, level, _DIGITS)
            if horizon is not None
            else end.transform(level)(mp.zero)
            for end in ends
        )
        return float((up - down) / (2 * step))


def _each(values: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Return dictionaries and lists with the values of a function of the tensors in them."""
    if isinstance(values, dict):
        return {name: _each(value, function) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_each(value, function) for value in values]
    return function(values)
