"""Probability of an explosion, estimated from paths that were stopped at a radius.

A path that reaches a radius R may still come back, so more paths reach R than explode. Far out the
linear terms are negligible and the limit is invariant under scaling (time by the inverse square):
log |V| then behaves like a Brownian motion with constant drift. With its scale function, the
probability to reach L, given that L_1 was reached, is 1 / f(log L / L_1),

    f(s) = 1 + kappa (1 - exp(-theta s)) / theta,    kappa > 0,

which tends to pi = theta / (theta + kappa), the probability of an explosion, if theta > 0, and to 0
otherwise. For the scalar u of `shaped_attention.explosion_law` theta is 2 a - 1. The largest traces
of the paths beyond L_1, with those at R censored, give pi by maximum likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import optimize, stats

from shaped_attention.checks import check_inside
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.proportions import fraction_bounds

FAR = 100.0
"""Ratio of the radius to the trace from which on paths are used."""

FEWEST = 20
"""Smallest number of paths that have reached the radius."""


@recorded()
def explosion_probability(result: xr.Dataset, level: float = 0.95) -> xr.Dataset:
    """Estimate the probability that a path explodes, not only reaches the radius.

    Parameters
    ----------
    result
        Result of `integrate_sde` by the clock, with a radius of at least 1,000 times the initial
        trace and at least 20 paths that reached it.
    level
        Confidence level of the bounds, from the profile likelihood and the number of far paths.

    Returns
    -------
    xarray.Dataset with `probability`, `lower`, `upper` and `reached`, the fraction of the paths
    that reached the radius.

    Raises
    ------
    ValueError
        If the result has no `largest_trace`, too few paths reached the radius, the radius is too
        small, or `level` is outside its range.
    """
    if not isinstance(result, xr.Dataset) or "largest_trace" not in result:
        raise ValueError("result has no largest_trace; one of integrate_sde by the clock is needed")
    check_inside("level", level)
    stopped = np.isfinite(result["stopping_time"].to_numpy())
    count, reached = len(stopped), int(stopped.sum())
    if reached < FEWEST:
        raise ValueError(
            f"result has {reached} paths that reached the radius; {FEWEST} or more are needed"
        )
    radius = float(result.attrs["radius"])
    smallest = float(result["largest_trace"].min())
    if radius < 10.0 * FAR * smallest:
        raise ValueError(
            f"result has radius={radius:.6g}; {10.0 * FAR * smallest:.6g} or more, {10 * FAR:g} "
            "times the initial trace, is needed"
        )
    largest = result["largest_trace"].to_numpy()[~stopped]
    # Paths that end beyond the radius in trace alone are as far out as paths get.
    inside = np.log(largest[(largest >= radius / FAR)] / (radius / FAR))
    width = math.log(FAR)
    inside = np.minimum(inside, width)
    far = reached + len(inside)

    def loss(kappa: float, theta: float) -> float:
        """Return the negative log-likelihood."""
        values = np.append(inside, width)
        log_f = np.log1p(kappa * _integral(theta, values))
        inner = len(inside) * math.log(kappa) - theta * inside.sum() - 2.0 * log_f[:-1].sum()
        return float(reached * log_f[-1] - inner)

    def profile(pi: float) -> float:
        """Return the smallest loss for a probability pi in [0, 1)."""
        if pi > 0.0:
            return _least(lambda t: loss(math.exp(t) * (1.0 / pi - 1.0), math.exp(t)))
        return _least(lambda t: _least(lambda k: loss(math.exp(k), -math.exp(t))))

    best, low, high = 1.0, *_few(reached, level)
    if len(inside):
        fit: Any = optimize.minimize_scalar(
            profile, bounds=(1e-6, 1.0 - 1e-6), method="bounded", options={"xatol": 1e-8}
        )
        best = float(fit.x) if fit.fun < profile(0.0) else 0.0
        allowed = profile(best) + 0.5 * float(stats.chi2(1).ppf(level))
        low = _crossing(lambda pi: profile(pi) - allowed, best, 0.0)
        high = _crossing(lambda pi: profile(pi) - allowed, best, 1.0 - 1e-9)
    share = far / count
    bounds = fraction_bounds(np.array([far]), count, level)
    lower, upper = _joined(best, low, high, share, *(float(x[0]) for x in bounds))
    numbers = {
        "probability": best * share, "lower": lower, "upper": upper,
        "reached": reached / count,
    }  # fmt: skip
    return xr.Dataset(numbers, attrs={"samples": count, "radius": radius})


def _integral(theta: float, s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - exp(-theta s)) / theta."""
    return s if abs(theta) < 1e-12 else -np.expm1(-theta * s) / theta


def _least(function: Callable[[float], float]) -> float:
    """Return the minimum of a function of a logarithm."""
    found: Any = optimize.minimize_scalar(function, bounds=(-12.0, 5.0), method="bounded")
    return float(found.fun)


def _few(reached: int, level: float) -> tuple[float, float]:
    """Return bounds on pi if no far path came back."""
    lower, upper = fraction_bounds(np.array([reached]), reached, level)
    return float(lower[0]), float(upper[0])


def _crossing(excess: Any, inside: float, end: float) -> float:
    """Return where a function that is negative at `inside` changes its sign towards `end`."""
    if excess(end) <= 0.0:
        return end
    low, high = sorted((inside, end))
    return float(optimize.brentq(excess, low, high, xtol=1e-10))


def _joined(
    pi: float, low: float, high: float, share: float, least: float, most: float
) -> tuple[float, float]:
    """Return bounds on pi times the share of far paths, whose errors are independent."""
    down = math.hypot((pi - low) * share, (share - least) * pi)
    up = math.hypot((high - pi) * share, (most - share) * pi)
    return max(0.0, pi * share - down), min(1.0, pi * share + up)
