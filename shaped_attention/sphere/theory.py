"""Curves that are known: equiangular tokens and the time at which they are close."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad, solve_ivp

from shaped_attention.checks import check_count, check_finite, real_array


def equiangular_field(
    cosine: ArrayLike, tokens: int, beta: float, normalised: bool = True
) -> NDArray[np.float64]:
    """g' of the common cosine g of N tokens.

    SA: 2 e^{beta g} (1 - g) ((N - 1) g + 1) / (e^beta + (N - 1) e^{beta g});
    USA: (2 / N) e^{beta g} (1 - g) ((N - 1) g + 1).
    """
    g = np.asarray(cosine, dtype=np.float64)
    common = (1.0 - g) * ((tokens - 1) * g + 1.0)
    if normalised:
        return 2.0 * common / (np.exp(beta * (1.0 - g)) + tokens - 1)
    return 2.0 * np.exp(beta * g) * common / tokens


def equiangular_cosine(
    times: ArrayLike, tokens: int, beta: float, start: float = 0.0, normalised: bool = True
) -> NDArray[np.float64]:
    """The common cosine at `times` (increasing, >= 0), from `start`; accurate to 1e-10.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    check_finite("beta", beta)
    check_finite("start", start)
    if not -1.0 / (tokens - 1) <= start <= 1.0:
        raise ValueError(f"start={start!r}: a cosine from -1/(N-1) to 1 is needed")
    t = real_array(times, "times")
    if t.ndim != 1 or not np.isfinite(t).all() or (t < 0).any() or (np.diff(t) < 0).any():
        raise ValueError("times: an increasing list of finite numbers >= 0 is needed")

    def field(_t: float, g: NDArray[np.float64]) -> NDArray[np.float64]:
        return equiangular_field(g, tokens, beta, normalised)

    end = float(t[-1]) if len(t) else 0.0
    solved = solve_ivp(
        field, (0.0, max(end, 1e-12)), [start], t_eval=t, method="DOP853", rtol=1e-12, atol=1e-13
    )
    return np.asarray(solved.y[0])


def meeting_time(
    delta: float, tokens: int, beta: float, start: float = 0.0, normalised: bool = True
) -> float:
    """The time at which equiangular tokens have the cosine 1 - delta, by quadrature to 1e-10.

    In high dimension uniform tokens are nearly orthogonal (start = 0), and the phase diagram of
    P(<x_1, x_2> >= 1 - delta) is a step at this curve, Gamma_{infinity, delta}.

    Raises
    ------
    ValueError
        If `delta` is not in (0, 1), or the start is not below 1 - delta.
    """
    if not (isinstance(delta, float) and 0.0 < delta < 1.0):
        raise ValueError(f"delta={delta!r}: a number strictly between 0 and 1 is needed")
    check_count("tokens", tokens, lowest=2)
    check_finite("beta", beta)
    if not -1.0 / (tokens - 1) < start < 1.0 - delta:
        raise ValueError(f"start={start!r}: a cosine above -1/(N-1) and below 1 - delta is needed")

    def slowness(u: float) -> float:
        # u = -log(1 - g): without it the integrand has a pole at the end.
        g = 1.0 - math.exp(-u)
        return (1.0 - g) / float(equiangular_field(g, tokens, beta, normalised))

    value, _ = quad(
        slowness, -math.log1p(-start), -math.log(delta), epsabs=1e-12, epsrel=1e-11, limit=500
    )
    return float(value)


def two_token_cosine(times: ArrayLike, beta: float, start: float) -> NDArray[np.float64]:
    """The cosine of two tokens under USA at beta = 0, where g' = 1 - g^2: tanh(t + artanh g_0).

    For other beta see `equiangular_cosine` with two tokens.

    Raises
    ------
    ValueError
        If beta is not 0, or the start is not strictly between -1 and 1.
    """
    if beta != 0.0:
        raise ValueError(f"beta={beta!r}: this closed form is for 0")
    if not -1.0 < start < 1.0:
        raise ValueError(f"start={start!r}: a cosine strictly between -1 and 1 is needed")
    return np.tanh(real_array(times, "times") + math.atanh(start))
