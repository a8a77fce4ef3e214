"""Confidence intervals of probabilities, from counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def fraction_bounds(successes: ArrayLike, count: ArrayLike, level: float) -> tuple[Floats, Floats]:
    """Compute the Clopper-Pearson interval of a probability (Biometrika 26, 1934).

    The coverage is at least `level`, for every probability and however small `count` is.

    Parameters
    ----------
    successes, count
        Integers, 0 <= successes <= count; they broadcast. Without trials the bounds are 0 and 1.
    level
        Confidence level, between 0 and 1.

    Returns
    -------
    lower, upper
    """
    # Half of the time that the state of a sweep takes would go to this import.
    from scipy.stats import beta

    k, n = np.broadcast_arrays(np.asarray(successes, float), np.asarray(count, float))
    tail = (1.0 - level) / 2.0
    lower = np.where(k > 0.0, beta.ppf(tail, np.maximum(k, 1.0), n - k + 1.0), 0.0)
    upper = np.where(k < n, beta.isf(tail, k + 1.0, np.maximum(n - k, 1.0)), 1.0)
    return lower, upper
