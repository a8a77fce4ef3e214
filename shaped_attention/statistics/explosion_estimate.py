"""Probability of an explosion, estimated from paths that were stopped at a radius.

A path that reaches a radius may still come back, and may be there for linear reasons, so more paths
reach it than explode. What explodes is the speed of the clock, the relative rate of the superlinear
terms, which is quadratic in V. Where it is much larger than the linear rate k, the limit is
invariant under scaling (time by the inverse speed), and the logarithm L of the root of the speed
behaves like a Brownian motion with constant drift. With its scale function, the probability to
gain s in L from a given value on is 1 / f(s),

    f(s) = 1 + kappa (1 - exp(-theta s)) / theta,    kappa > 0,

which tends to pi = theta / (theta + kappa), the probability of an explosion, if theta > 0, and to 0
otherwise. For the scalar u of `shaped_attention.explosion_law` theta is 2 a - 1. The largest speeds
of the paths beyond 50 k, censored for paths that reached the radius, give pi by maximum likelihood.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import optimize, stats

from shaped_attention.blocks.base import Layer, pattern_of, specification_of
from shaped_attention.checks import argument_error, check_inside
from shaped_attention.results.provenance import (
    argument_of,
    recorded,
    recorded_argument,
    specification,
)
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.theory.moments import limits_at

_FAR, _FEWEST = 50.0, 20
"""Speed of the clock, in units of the linear rate, above which paths are used, and how many."""

_RADIUS = 1e12
"""Radius, in units of |V_0|, at which hardly any path that stops has a low speed."""


@recorded()
def explosion_probability(
    result: xr.Dataset, confidence: float = 0.95, *, layer: Layer | None = None
) -> xr.Dataset:
    """Estimate the probability that a path explodes, rather than only reaches the radius.

    Parameters
    ----------
    result
        Result of `integrate_sde` by the clock, with a radius of 10^12 |V_0| or more, which at least
        20 paths reached.
    confidence
        Coverage probability of the bounds, from the profile likelihood and the number of far paths.
    layer
        The layer of `result`, which must be given if it has a block of your own.

    Returns
    -------
    xarray.Dataset with `probability`, `lower`, `upper` and `reached`, the fraction of the paths
    that reached the radius.

    Raises
    ------
    ValueError
        If the result has no `largest_speed`, the radius is too small, too few paths reached it at a
        high speed, `confidence` is outside its range, or `layer` is missing or differs from that
        of the result.
    """
    if not isinstance(result, xr.Dataset) or "largest_speed" not in result:
        raise argument_error("result", "a result of integrate_sde with method='clock'", result)
    check_inside("confidence", confidence)
    stored, radius = specification(result), float(result.attrs["radius"])
    v0 = argument_of(result, "v0")
    least = _RADIUS * float(np.linalg.norm(v0, axis=(-2, -1)).max())
    if radius < 0.999 * least:
        large = f">= {least:.6g}, {_RADIUS:g} times |v0|"
        raise argument_error("the radius of result", large, radius)
    if layer is None:
        layer = recorded_argument(result, "layer")
    elif json.loads(json.dumps(specification_of(pattern_of(layer)))) != stored["layer"]:
        raise argument_error("layer", "the layer of result", layer)
    count = result.sizes["sample"]
    rate = sum(share * limit.linear_rate(p) for limit, p, share in limits_at(layer, 0.5))
    speed = result["largest_speed"].to_numpy() / (_FAR * float(rate))
    beyond = speed > 1.0
    gains = 0.5 * np.log(np.where(beyond, speed, 1.0))
    stopped = np.isfinite(result["stopping_time"].to_numpy())
    inside, ends = gains[beyond & ~stopped], gains[beyond & stopped]
    reached, far = len(ends), len(ends) + len(inside)
    if reached < _FEWEST:
        needed = f"at least {_FEWEST} paths that reached the radius at a high speed"
        raise ValueError(f"result must have {needed}; got {reached}")

    def loss(kappa: float, theta: float) -> float:
        """Return the negative log-likelihood."""
        log_f = np.log1p(kappa * _integral(theta, inside))
        inner = len(inside) * math.log(kappa) - theta * inside.sum() - 2.0 * log_f.sum()
        return float(np.log1p(kappa * _integral(theta, ends)).sum() - inner)

    def profile(pi: float) -> float:
        """Return the smallest loss for a probability pi in [0, 1)."""
        if pi > 0.0:
            return _least(lambda t: loss(math.exp(t) * (1.0 / pi - 1.0), math.exp(t)))
        return _least(lambda t: _least(lambda k: loss(math.exp(k), -math.exp(t))))

    # If no far path came back, pi is between the bounds of a fraction that is 1.
    best, low, high = 1.0, *map(float, fraction_bounds(reached, reached, confidence))
    if len(inside):
        fit: Any = optimize.minimize_scalar(
            profile, bounds=(1e-6, 1.0 - 1e-6), method="bounded", options={"xatol": 1e-8}
        )
        best = float(fit.x) if fit.fun < profile(0.0) else 0.0
        allowed = profile(best) + 0.5 * float(stats.chi2(1).ppf(confidence))
        low = _crossing(lambda pi: profile(pi) - allowed, best, 0.0)
        high = _crossing(lambda pi: profile(pi) - allowed, best, 1.0 - 1e-9)
    # The probability is pi times the share of far paths, and their errors are independent.
    share = far / count
    least_far, most_far = map(float, fraction_bounds(far, count, confidence))
    down = math.hypot((best - low) * share, (share - least_far) * best)
    up = math.hypot((high - best) * share, (most_far - share) * best)
    middle = best * share
    bounds = {"lower": max(0.0, middle - down), "upper": min(1.0, middle + up)}
    numbers = {"probability": middle, **bounds, "reached": stopped.mean()}
    return xr.Dataset(numbers, attrs={"samples": count})


def _integral(theta: float, s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - exp(-theta s)) / theta."""
    return s if abs(theta) < 1e-12 else -np.expm1(-theta * s) / theta


def _least(function: Callable[[float], float]) -> float:
    """Return the minimum of a function of a logarithm."""
    fit: Any = optimize.minimize_scalar(function, bounds=(-12.0, 5.0), method="bounded")
    return float(fit.fun)


def _crossing(excess: Callable[[float], float], inside: float, end: float) -> float:
    """Return where a function that is negative at `inside` changes its sign towards `end`."""
    if excess(end) <= 0.0:
        return end
    low, high = sorted((inside, end))
    return float(optimize.brentq(excess, low, high, xtol=1e-10))
