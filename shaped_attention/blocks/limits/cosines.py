"""The mean cosine of rows of a fixed number d of Gaussian columns: QK-norm over fixed keys.

Rows of d columns with correlation x have the cosine rho_d(x) in the mean, which tends to x with d:

    rho_d(x) = x Gamma((d+1)/2)^2 / (Gamma(d/2) Gamma(d/2+1)) 2F1(1/2, 1/2; d/2+1; x^2).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from scipy.special import gammaln

SMALLEST_NORMED = 4
"""Fewest columns of queries and keys for which the series of rho_d converges fast enough."""

_TERMS = 40
"""Terms of the series of rho_d; the error is 3e-5 at d = 4 and 6e-8 at d = 8."""


@lru_cache(maxsize=64)
def cosine_series(size: int) -> tuple[float, ...]:
    """Return coefficients c_j >= 0 with rho_d(x) = sum_j c_j x^(2j + 1) and sum c_j = 1.

    The last coefficient holds the rest, so that rho_d(1) = 1 and rho_d(R) is positive semidefinite.
    """
    half = size / 2.0
    logarithm = 2.0 * gammaln(half + 0.5) - gammaln(half) - gammaln(half + 1.0)
    coefficients = [math.exp(logarithm)]
    for j in range(_TERMS - 2):
        coefficients.append(coefficients[-1] * (j + 0.5) ** 2 / ((half + 1.0 + j) * (j + 1.0)))
    return (*coefficients, max(0.0, 1.0 - sum(coefficients)))


def mean_cosines(correlations: Any, size: int) -> Any:
    """Return rho_d of correlations, entry by entry."""
    series, square = cosine_series(size), correlations * correlations
    total = series[-1] * square
    for coefficient in series[-2:0:-1]:
        total = (total + coefficient) * square
    return (total + series[0]) * correlations
