"""Tokens with the same cosine between any two: the equation of this cosine, and its solution.

After Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad, solve_ivp

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    check_inside,
    real_array,
    with_types,
)
from shaped_attention.sphere.attention import check_beta

LARGEST_BETA = 300.0
"""exp(2 beta) does not overflow up to here."""

_PRECISION = 1e-13
"""Error per step, relative and absolute, of the equation for the cosine."""


@with_types
def equiangular_field(
    cosine: ArrayLike, tokens: int, beta: float, normalised: bool = True
) -> NDArray[np.float64]:
    """Return the time derivative g' of the common cosine g of N tokens of length 1.

    SA: 2 e^{beta g} (1 - g) ((N - 1) g + 1) / (e^beta + (N - 1) e^{beta g});
    USA: (2 / N) e^{beta g} (1 - g) ((N - 1) g + 1).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, LARGEST_BETA)
    common = real_array(cosine, "cosine")
    if not ((common >= -1.0 / (tokens - 1) - 1e-12) & (common <= 1.0)).all():
        raise argument_error("cosine", "in [-1/(N-1), 1]", cosine)
    gap, others = 1.0 - common, (tokens - 1) * common + 1.0
    return 2.0 * _weight(gap, tokens, beta, normalised) * gap * others


def _weight(
    gap: NDArray[np.float64] | float, tokens: int, beta: float, normalised: bool
) -> NDArray[np.float64]:
    """Return the weight of another token; `gap` is 1 - g, so that it is exact near g = 1."""
    left = np.asarray(gap, dtype=np.float64)
    if normalised:
        return 1.0 / (np.exp(beta * left) + tokens - 1)
    return np.exp(beta * (1.0 - left)) / tokens


@with_types
def equiangular_cosine(
    times: ArrayLike, tokens: int, beta: float, start: float = 0.0, normalised: bool = True
) -> NDArray[np.float64]:
    """Return the common cosine g of N tokens at `times`, from `start`.

    With s = log(((N - 1) g + 1) / (1 - g)) the flow is

        ds/dt = 1 / q,   SA: q = (e^{beta (1 - g)} + N - 1) / (2 N);   USA: q = e^{-beta g} / 2.

    Errors grow with e^beta: up to 1e-9 at beta = 16 and up to 1e-3 at beta = 30.

    Parameters
    ----------
    times
        Increasing times >= 0.
    tokens, beta
        Number of tokens N >= 2, and inverse temperature, at most 300 in absolute value.
    start
        Initial cosine from -1 / (N - 1) to 1. Both ends are fixed points.
    normalised
        True for SA, False for USA.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, LARGEST_BETA)
    check_finite("start", start)
    if not -1.0 / (tokens - 1) <= start <= 1.0:
        raise argument_error("start", "a cosine in [-1/(N-1), 1]", start)
    t = real_array(times, "times")
    finite = np.isfinite(t) & (t >= 0.0)
    if t.ndim != 1 or len(t) == 0 or not finite.all() or (np.diff(t) < 0.0).any():
        raise argument_error("times", "increasing finite numbers >= 0, at least one", times)
    if start in (-1.0 / (tokens - 1), 1.0) or t[-1] == 0.0:
        return np.full(len(t), start)

    def gap(s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 1 - g."""
        with np.errstate(over="ignore"):
            return tokens / (np.exp(s) + tokens - 1)

    solved = solve_ivp(
        lambda _, s: 2.0 * tokens * _weight(gap(s), tokens, beta, normalised), (0.0, t[-1]),
        [math.log(((tokens - 1) * start + 1.0) / (1.0 - start))], "DOP853", dense_output=True,
        rtol=_PRECISION, atol=_PRECISION,
    )  # fmt: skip
    if not solved.success:
        raise FloatingPointError(
            f"the cosine could not be computed up to t = {t[-1]:g}: {solved.message}"
        )
    assert solved.sol is not None
    return np.where(t == 0.0, start, 1.0 - gap(solved.sol(t)[0]))


@with_types
def meeting_time(
    delta: float, tokens: int, beta: float, start: float = 0.0, normalised: bool = True
) -> float:
    """Return the time at which equiangular tokens reach the cosine 1 - delta, to 1e-10.

    In high dimension uniform tokens are nearly orthogonal (start = 0), and in the phase diagram
    P(<x_1, x_2> >= 1 - delta) jumps from 0 to 1 at this curve, Gamma_{infinity, delta}.

    Raises
    ------
    ValueError
        If `delta` is not in (0, 1), `beta` is above 300 in absolute value, or `start` is not below
        1 - delta.
    """
    check_inside("delta", delta)
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, LARGEST_BETA)
    if not -1.0 / (tokens - 1) < start < 1.0 - delta:
        raise argument_error("start", "a cosine above -1/(N-1) and below 1 - delta", start)

    def slowness(u: float) -> float:
        # u = -log(1 - g): without it the integrand has a pole at the end.
        gap = math.exp(-u)
        others = (tokens - 1) * (1.0 - gap) + 1.0
        return 0.5 / (float(_weight(gap, tokens, beta, normalised)) * others)

    value, _ = quad(
        slowness, -math.log1p(-start), -math.log(delta), epsabs=1e-12, epsrel=1e-11, limit=500
    )
    return float(value)
