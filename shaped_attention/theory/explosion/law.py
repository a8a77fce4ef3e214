"""Probability of an explosion of the limit: exact where a scalar of V has a law of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from shaped_attention.blocks.base import Layer, blocks_of
from shaped_attention.blocks.parameters import scheduled
from shaped_attention.blocks.reasons import check_limit, limit_of
from shaped_attention.checks import (
    argument_error,
    check_fraction,
    check_nonnegative,
    check_positive,
    real_array,
    with_types,
)
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.theory.explosion.bounds import bounds_of
from shaped_attention.theory.explosion.reduction import (
    reduction_of,
    scalar_law,
    without_attention,
)
from shaped_attention.theory.explosion.scalar_law import ScalarLaw

SMALLEST_P = 1e-15
"""Smallest probability with a quantile; below, the solver has few digits."""

UNINFORMATIVE = 0.5
"""Bounds that are further apart say little."""


@dataclass(frozen=True, repr=False)
class ExplosionLaw:
    """Law of the time at which the limit of a layer explodes, or bounds on it.

    Parameters
    ----------
    kind
        "exact" or "bounds".
    scalar
        The scalar u of V on which the law rests; levels are levels of u.
    reason
        Why the law or the bounds hold.
    u0
        Initial value of u.
    coefficients
        The `ScalarLaw` of u, with alpha, mu, k and delta, or the two bounds that replace it (None
        for the trivial bound 0).
    """

    kind: Literal["exact", "bounds"]
    scalar: str
    reason: str
    u0: float
    coefficients: Any
    _layer: Layer

    def __repr__(self) -> str:
        """Return kind, scalar, the probability of an explosion, and the reason."""
        probability = self.probability()
        if isinstance(probability, float):
            shown = f"= {probability:.6g}"
        else:
            shown = f"is between {probability[0]:.6g} and {probability[1]:.6g}"
            shown += "" if self.informative() else " (uninformative)"
        return (
            f"ExplosionLaw({self.kind}: u = {self.scalar} starts at {self.u0:.6g}; "
            f"P(explosion) {shown}; {self.reason})"
        )

    def probability(
        self, horizon: float | None = None, level: float | None = None
    ) -> float | tuple[float, float]:
        """Return the probability that u reaches a level by a horizon, or a pair of bounds on it.

        Parameters
        ----------
        horizon
            Time t = l / n; None for no limit.
        level
            Level of u; None for infinity, that is, for an explosion.

        Raises
        ------
        ValueError
            If the horizon is negative, or the level is not positive.
        """
        top = _level(level)
        if horizon is not None:
            check_nonnegative("horizon", horizon)
        if self.kind == "exact":
            return self._exact("probability").probability(horizon, top)
        low, high = (
            0.0 if bound is None else bound.probability(horizon, top) for bound in self.coefficients
        )
        return low, max(low, high)

    def informative(self, horizon: float | None = None, level: float | None = None) -> bool:
        """Return whether the probability is known to within 0.5."""
        known = self.probability(horizon, level)
        return isinstance(known, float) or known[1] - known[0] <= UNINFORMATIVE

    def curve(self, times: ArrayLike, level: float | None = None) -> NDArray[np.float64]:
        """Return the probability at each of many times.

        Raises
        ------
        ValueError
            If there are only bounds, or an argument is outside its range.
        """
        law, t, top = self._exact("curve"), real_array(times, "times"), _level(level)
        if not (np.isfinite(t).all() and (t >= 0.0).all()):
            raise argument_error("times", "finite and >= 0", times)
        return np.array([law.probability(x, top) for x in t.flat]).reshape(t.shape)

    def quantile(self, p: float, level: float | None = None) -> float:
        """Return the time by which the probability is p; infinite if it never is.

        Raises
        ------
        ValueError
            If there are only bounds, or an argument is outside its range; p must be 0, or from
            1e-15 to 1.
        """
        law, top = self._exact("quantile"), _level(level)
        check_fraction("p", p)
        if p == 0.0 or law.u0 >= top:
            return 0.0
        if p < SMALLEST_P:
            raise argument_error("p", f"0 or in [{SMALLEST_P:g}, 1]", p)
        if p >= law.ever(top):
            return math.inf
        goal = math.log(p)

        def excess(log_time: float) -> float:
            return math.log(max(law.probability(math.exp(log_time), top), 1e-20)) - goal

        low = high = -math.log(law.k)
        while excess(high) < 0.0:
            low, high = high, high + 1.0
        while excess(low) >= 0.0:
            low, high = low - 1.0, low
        return math.exp(optimize.brentq(excess, low, high, xtol=1e-12, rtol=1e-12))

    def _exact(self, wanted: str) -> ScalarLaw:
        if self.kind != "exact":
            raise ValueError(
                f"layer={self._layer!r}: only bounds are known for this layer and v0; the {wanted} "
                "needs an exact law"
            )
        return self.coefficients


@with_types
def explosion_law(layer: Layer, v0: ArrayLike) -> ExplosionLaw:
    """Return the law of the explosion time of the limit, or rigorous bounds on it.

    The law is exact for a single token or several equal ones, for two tokens or two equally large
    groups of equal tokens with full attention, for a single nonzero token with any mask, and
    without attention; heads, W_O, linear MLPs and a `Pattern` are included. There are bounds for
    full attention of any number of tokens, with or without ReLU MLPs, and for two tokens with a
    causal mask if gamma^2 >= H / 2.

    Parameters
    ----------
    layer
        As in the samplers, without schedules.
    v0
        Initial covariance (m, m).

    Raises
    ------
    ValueError
        If the layer has no limit, or neither a law nor bounds are known; the message gives the
        reason.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, equicorrelated
    >>> law = explosion_law(ShapedAttention(gamma=0.6, tau0=0.5), equicorrelated(2, 0.2))
    >>> round(law.probability(), 10), round(law.probability(horizon=0.75), 10)
    (0.1558318981, 0.0307438349)
    """
    check_limit(layer)
    start = check_covariance(v0, "v0")
    blocks = blocks_of(layer)
    if limit_of(blocks[0]).normalised:
        raise ValueError(
            f"layer contains {blocks[0]!r}: its limit is a matrix of correlations, which cannot "
            "explode"
        )
    for block in blocks:
        block.check(len(start), None)
        limit_of(block).check(len(start))
        if scheduled(block):
            raise ValueError(
                f"layer contains {block!r}: a law is known only for parameters that do not change "
                "with depth"
            )
    error = "no exact law is known for these tokens and this layer"
    for reduction in (reduction_of(start), without_attention(layer, start)):
        if reduction is None:
            continue
        try:
            law = scalar_law(layer, reduction, start)
        except ValueError as refusal:
            error = str(refusal)
            continue
        return ExplosionLaw("exact", reduction.scalar, reduction.reason, law.u0, law, layer)
    bounds = bounds_of(layer, start)
    if bounds is None:
        raise ValueError(f"{error}; {_KNOWN}")
    both = (bounds.low, bounds.high)
    return ExplosionLaw("bounds", bounds.scalar, bounds.reason, bounds.high.u0, both, layer)


_KNOWN = (
    "a law or bounds are known for one nonzero token, two equally large groups of equal tokens, "
    "full attention without biases, rotations or QK-norm, and two tokens with a causal mask and "
    "gamma^2 >= H / 2; explosion_probability estimates the probability from paths of integrate_sde"
)


def _level(level: float | None) -> float:
    if level is None or level == math.inf:
        return math.inf
    check_positive("level", level)
    return float(level)
