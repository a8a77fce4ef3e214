"""Derivatives of the probability of an explosion in the parameters of a layer.

The chain rule joins two parts: the coefficients alpha, mu, k and delta are differentiable in the
parameters by torch (`reduction.coefficients`); the probability is differentiated in the
coefficients and in u_0 by central differences of its Laplace inversion. These are taken with more
digits than they lose, so that they have a relative error of about 1e-10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.overrides import numbers_of
from shaped_attention.theory.explosion import laplace
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
    values = numbers_of(layer)
    leaves = [x.requires_grad_() for x in _leaves(values)]
    outer = _slopes(law, horizon, level)
    found = coefficients(layer, reduction, values if isinstance(values, dict) else list(values))
    weights = [outer[name] for name in ("alpha", "mu", "k", "delta")]
    total = (torch.stack(found) * torch.tensor(weights, dtype=torch.float64)).sum()
    parts = torch.autograd.grad(total, leaves, allow_unused=True) if leaves else ()
    slopes = {
        id(x): 0.0 if part is None else float(part) for x, part in zip(leaves, parts, strict=True)
    }
    return Gradient(_mapped(values, slopes), outer["u0"])


def _slopes(law: ScalarLaw, horizon: float | None, level: float) -> dict[str, float]:
    """Return the derivatives in the coefficients and in u_0."""
    names = ("alpha", "mu", "k", "delta", "u0")
    still = law.constant or law.u0 >= level or (level == float("inf") and not law.explosive)
    if still or horizon == 0.0:
        return dict.fromkeys(names, 0.0)
    return {name: _slope(law, name, horizon, level) for name in names}


def _slope(law: ScalarLaw, name: str, horizon: float | None, level: float) -> float:
    mp = precise()
    value = getattr(law, name)
    if name in ("alpha", "delta") and law.delta == 0.0:
        return 0.0
    with mp.workdps(50):
        step = mp.mpf(_STEP) * (value if value != 0.0 else law.k)
        ends = [replace(law, **{name: mp.mpf(value) + sign * step}) for sign in (1, -1)]
        up, down = (
            laplace.precise_probability(end, horizon, level, _DIGITS)
            if horizon is not None
            else end.transform(level)(mp.zero)
            for end in ends
        )
        return float((up - down) / (2 * step))


def _leaves(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    inner = values.values() if isinstance(values, dict) else values
    return [leaf for each in inner for leaf in _leaves(each)]


def _mapped(values: Any, slopes: dict[int, float]) -> Any:
    if isinstance(values, torch.Tensor):
        return slopes[id(values)]
    if isinstance(values, dict):
        return {name: _mapped(value, slopes) for name, value in values.items()}
    return [_mapped(value, slopes) for value in values]
