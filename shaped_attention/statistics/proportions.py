"""Confidence intervals of probabilities, from counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, betaincinv

Floats = NDArray[np.float64]


def fraction_bounds(
    successes: ArrayLike, count: ArrayLike, confidence: float
) -> tuple[Floats, Floats]:
    """Compute the Clopper-Pearson interval (lower, upper) of a probability (Biometrika 26, 1934).

    The coverage is at least `confidence`, for every probability and however small `count` is.
    `successes` and `count` are integers, 0 <= successes <= count, and broadcast. Without trials the
    bounds are 0 and 1.
    """
    k, n = np.broadcast_arrays(np.asarray(successes, float), np.asarray(count, float))
    tail = (1.0 - confidence) / 2.0
    lower = np.where(k > 0.0, betaincinv(np.maximum(k, 1.0), n - k + 1.0, tail), 0.0)
    upper = np.where(k < n, betainccinv(k + 1.0, np.maximum(n - k, 1.0), tail), 1.0)
    return lower, upper
