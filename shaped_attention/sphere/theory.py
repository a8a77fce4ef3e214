"""Exact results: equiangular and two tokens, rates near one cluster, growth of waves.

After Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad, solve_ivp
from scipy.special import i0, ive

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    check_inside,
    real_array,
    with_types,
)
from shaped_attention.sphere.attention import check_beta
from shaped_attention.sphere.integrate import checked_times
from shaped_attention.sphere.two_tokens import two_tokens

__all__ = [
    "equiangular_cosine",
    "equiangular_field",
    "final_rate",
    "meeting_time",
    "mode_growth",
    "two_tokens",
]

_PRECISION = 1e-13
"""Error per step, relative and absolute, of the equation for the cosine."""


def _check(tokens: int, beta: float) -> None:
    check_count("tokens", tokens, lowest=2)
    check_beta(beta)


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
    _check(tokens, beta)
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
    _check(tokens, beta)
    check_finite("start", start)
    if not -1.0 / (tokens - 1) <= start <= 1.0:
        raise argument_error("start", "a cosine in [-1/(N-1), 1]", start)
    t = checked_times(times)
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
    _check(tokens, beta)
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


@with_types
def final_rate(tokens: int, beta: float, normalised: bool = True, causal: bool = False) -> float:
    """Return r in 1 - <x_i, x_j> ~ e^{-r t} once all tokens are close.

    r is 2 k with full attention and k with causal attention, whatever the number of tokens, where
    k = e^beta for USA and 1 for SA.

    Near one cluster at c, x_i = c + y_i, and to first order dy_i/dt = k (mean(y) - y_i), where the
    mean is over the tokens that i sees. With full attention differences decay as e^{-k t}. With
    causal attention y_0 stays and y_i decays at the rates k j / (j + 1), 1 <= j <= i, of which that
    of the second token, k / 2, is the smallest. Since 1 - <x_i, x_j> = |y_i - y_j|^2 / 2, it decays
    as the square of such a difference.

    Raises
    ------
    ValueError
        If there are fewer than two tokens, or `beta` is outside its range.
    """
    _check(tokens, beta)
    return (1.0 if causal else 2.0) * (1.0 if normalised else math.exp(beta))


@with_types
def mode_growth(mode: int, beta: float, normalised: bool = True) -> float:
    """Return the rate at which a small wave cos(k a) grows on the uniform density of the circle.

    For the mean field (1 + epsilon cos(k a)) / (2 pi) the weighted average of SA has the potential
    log(I_0(beta) + epsilon I_k(beta) cos(k a)) / beta, so to first order in epsilon the continuity
    equation gives d epsilon/dt = r epsilon with r = k^2 I_k(beta) / (beta I_0(beta)), and for USA r
    = k^2 I_k(beta) / beta (I_k the modified Bessel functions). For beta > 0 the rate is largest
    near k = sqrt(2 beta), the number of clusters that form first.

    Raises
    ------
    ValueError
        If `mode` is not an integer >= 1, or `beta` is zero or above 300 in absolute value.
    """
    check_count("mode", mode)
    check_beta(beta)
    if beta == 0.0:
        raise argument_error("beta", "nonzero", beta)
    share = float(ive(mode, beta) / ive(0, beta))
    return mode**2 * share / beta * (1.0 if normalised else float(i0(beta)))
