"""Rigorous bounds on the probability of an explosion where no exact law is known.

Two tokens, or two groups, with full attention and a ReLU MLP alongside: the MLP adds -2 gamma^2
nu(rho) sqrt(V_00 V_11) to the drift of u = V_00 - 2 V_01 + V_11, which lies between 0 and -gamma^2
(c_+ - c_-)^2 u / 4. The variance depends only on u, so by comparison of drifts the scalar laws
with these two values of mu bound the probability, at every horizon and level.

Two tokens with a causal mask: with rates alpha, delta as for full attention,

    du = alpha V_11 u^2 dt + sqrt(2 k u^2 + delta V_11 u^3) dB,

up to a negative drift of a ReLU MLP. If a = alpha / delta <= 1/2, then log u is a local
supermartingale, which cannot tend to infinity: there is no explosion. u^{1 - 2a} is a
supermartingale too, so that P(u ever reaches R) <= (u_0 / R)^{1 - 2a}.

Any m >= 2 with full attention: for S = tr V the drift is at most beta S^3 with
beta = (m + 1) / m^2 times the sum of gamma^2 / tau_0^2, and the variance at least 2 k S^2 / m. So
erf(c S), c = sqrt(m beta / (2 k)), which is concave, is a supermartingale, and
P(S ever reaches R) <= erf(c S_0) / erf(c R). A ReLU MLP does not move the mean of the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from shaped_attention.blocks.activations import SHAPED_RELU
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block, Layer, blocks_of
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.parallel import Parallel
from shaped_attention.blocks.positions import allowed
from shaped_attention.theory.explosion.reduction import (
    TOLERANCE,
    one_live_token,
    scalar_law,
    two_groups,
)
from shaped_attention.theory.explosion.scalar_law import ScalarLaw
from shaped_attention.theory.moments import limits_at, moments_along

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class EverBound:
    """Bound on the probability that a scalar ever reaches a level, as a function of the level."""

    u0: float
    above: Callable[[float], float]

    def probability(self, horizon: float | None = None, level: float = math.inf) -> float:
        """Return the bound, at every horizon; by default, on an explosion."""
        return 1.0 if self.u0 >= level else self.above(level)


class Bounds(NamedTuple):
    """Lower and upper bound with the scalar and the reason; `low` is None for 0."""

    scalar: str
    reason: str
    low: ScalarLaw | None
    high: ScalarLaw | EverBound


def bounds_of(layer: Layer, v0: Matrix) -> Bounds | None:
    """Return the sharpest bounds that are known for a layer, or None."""
    inner = [block for outer in blocks_of(layer) for block in _flat(outer)]
    if not all(type(block) in (ShapedAttention, ShapedMLP) for block in inner):
        return None
    if any(type(x) is ShapedMLP and x.activation != SHAPED_RELU for x in inner):
        return None
    attention = [block for block in inner if isinstance(block, ShapedAttention)]
    for block in attention:
        varied = block.rope is not None or block.position_bias is not None or block.qk_norm
        if varied or block.query_bias > 0.0:
            return None
    m = len(v0)
    masks = [allowed(block.mask, m) for block in attention]
    if all(mask.all() for mask in masks):
        return _with_relu(layer, v0) or _of_the_trace(layer, v0)
    if m == 2 and all(np.array_equal(mask, np.tri(2)) for mask in masks):
        return _causal(layer, v0)
    return None


def _flat(block: Block) -> list[Block]:
    return list(block.blocks) if type(block) is Parallel else [block]


def _with_relu(layer: Layer, v0: Matrix) -> Bounds | None:
    reduction = two_groups(v0)
    if reduction is None:
        return None
    high = scalar_law(layer, replace(reduction, growth=False), v0)
    parts = limits_at(layer, 0.0)
    mu = float(sum(share * limit.decay(p) for limit, p, share in parts)) / 2.0
    low = ScalarLaw(high.alpha, mu, high.k, high.delta, high.u0)
    reason = "the ReLU MLP adds a drift to u between -mu u and 0; " + reduction.reason
    return Bounds(reduction.scalar, reason, low, high)


def _of_the_trace(layer: Layer, v0: Matrix) -> Bounds | None:
    m = len(v0)
    unit = np.zeros((m, m))
    unit[0, 0] = 1.0
    reduction = one_live_token(unit)
    if m < 2 or reduction is None:
        return None
    law = scalar_law(layer, reduction, unit)
    # One live token has the drift gamma^2 / tau_0^2 p q (p q + q - p) u^3, p = 1 / m, q = 1 - p.
    p, q = 1.0 / m, 1.0 - 1.0 / m
    beta = law.alpha / (p * q * (p * q + q - p)) * (m + 1) / m**2
    rate = math.sqrt(m * beta / (2.0 * law.k)) if law.k > 0.0 else 0.0
    reason = (
        "erf(c tr V) is a supermartingale, since the drift of tr V is at most cubic; the bound "
        "holds at every horizon"
    )
    trace = float(np.trace(v0))

    def ever(level: float) -> float:
        if rate == 0.0:
            return trace / level
        return float(special.erf(rate * trace) / special.erf(rate * level))

    return Bounds("tr V", reason, None, EverBound(trace, ever))


def _causal(layer: Layer, v0: Matrix) -> Bounds | None:
    """Read alpha, delta off random states, and check their form there."""
    everything = zip(blocks_of(layer), limits_at(layer, 0.0), strict=True)
    parts = [part for block, part in everything if not isinstance(block, ShapedMLP)]
    rng = np.random.default_rng(0)
    factors = torch.tensor(rng.normal(size=(6, 2, 2)))
    w = torch.tensor([[1.0, -1.0], [0.0, 1.0]], dtype=torch.float64)
    drift, _, free = (x[:, 0] for x in moments_along(parts, factors, w))
    u, second = (w @ factors).square().sum(-1).unbind(-1)
    alphas, deltas = drift / (second * u**2), free / (second * u**3)
    alpha, delta = float(alphas[0]), float(deltas[0])
    for values, value in ((alphas, alpha), (deltas, delta)):
        if not bool(((values - value).abs() <= TOLERANCE * abs(value)).all()):
            return None
    if alpha > 0.5 * delta * (1.0 + 1e-12):
        return None
    u0 = float(v0[0, 0] - 2.0 * v0[0, 1] + v0[1, 1])
    exponent = max(0.0, 1.0 - 2.0 * alpha / delta) if delta > 0.0 else 1.0
    reason = "log u is a local supermartingale, since gamma^2 >= H / 2: there is no explosion"

    def ever(level: float) -> float:
        return 0.0 if level == math.inf else (u0 / level) ** exponent

    return Bounds("V[0,0] - 2 V[0,1] + V[1,1]", reason, None, EverBound(u0, ever))
