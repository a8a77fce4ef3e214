"""Passage times of the scalar law by inversion of their Laplace transform.

Talbot's contour, as in `mpmath.invertlaplace`, inverts `ScalarLaw.transform`. The working precision
follows the size of the result, for which the Chernoff bound inf_q e^{qT} E e^{-q tau} is an
estimate: the relative error is below 1e-12 for probabilities from 1 down to 1e-100
(`tests/test_explosion_solvers.py`).
"""

from __future__ import annotations

import math
from typing import Any

from shaped_attention.theory.explosion.scalar_law import ScalarLaw, precise

SMALLEST = 1e-150
"""Probabilities whose Chernoff bound is smaller are returned as 0."""

_DIGITS = 16
"""Decimal digits of the working precision for a probability of order 1."""


def probability(law: ScalarLaw, horizon: float, level: float = math.inf) -> float:
    """Return P(tau <= horizon) for the time at which u reaches a level, or explodes."""
    if law.u0 >= level:
        return 1.0
    if law.constant or (level == math.inf and not law.explosive):
        return 0.0
    return float(precise_probability(law, horizon, level))


def density(law: ScalarLaw, time: float, level: float = math.inf) -> float:
    """Return the density of the passage time at a time; of mass P(tau < infinity)."""
    if time <= 0.0 or law.constant or (level == math.inf and not law.explosive):
        return 0.0
    return float(_invert(law, time, level, distribution=False)) * law.k


def precise_probability(law: ScalarLaw, horizon: float, level: float, digits: int = 0) -> Any:
    """Return P(tau <= horizon) as an mpmath number, with `digits` further digits in the work.

    The fields of the law may be mpmath numbers, which serves to differentiate.
    """
    if horizon <= 0.0:
        return precise().zero
    return _invert(law, horizon, level, distribution=True, digits=digits)


def _invert(law: ScalarLaw, time: float, level: float, distribution: bool, digits: int = 0) -> Any:
    mp = precise()
    size = _log10_bound(law, time, level)
    if size < math.log10(SMALLEST):
        return mp.zero
    with mp.workdps(_DIGITS + digits + int(-0.6 * min(size, 0.0))):
        transform = law.transform(level)
        kt = mp.mpf(law.k) * time
        return mp.invertlaplace(
            (lambda q: transform(q) / q) if distribution else transform, kt, method="talbot"
        )


def _log10_bound(law: ScalarLaw, time: float, level: float) -> float:
    """Return the logarithm of the least of the bounds e^{q T} E e^{-q tau} over powers q of 2."""
    mp = precise()
    with mp.workdps(10):
        transform, kt = law.transform(level), float(law.k) * time
        best, misses, j = 0.0, 0, -4
        while misses < 2 and j < 60:
            q = 2.0**j
            value = q * kt / math.log(10.0) + float(mp.log10(transform(q)))
            best, misses = (value, 0) if value < best else (best, misses + 1)
            j += 1
    return best
