"""Tokens with the same cosine between any two: the equations of their cosine and length.

After Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794); where the layers normalise
elsewhere (`normalisation`) after Karagodin, Ge, Polyanskiy and Rigollet (arXiv 2510.22026).
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
from shaped_attention.sphere.normalisation import Normalise, Places, places_of

LARGEST_BETA = 300.0
"""exp(2 beta) does not overflow up to here."""

_PRECISION = 1e-13
"""Error per step, relative and absolute, of equations for the cosine."""


@with_types
def equiangular_field(
    cosine: ArrayLike,
    tokens: int,
    beta: float,
    normalised: bool = True,
    *,
    normalise: Normalise = "after",
) -> NDArray[np.float64]:
    """Return the time derivative g' of the common cosine g of N tokens of length 1.

    SA: 2 e^{beta g} (1 - g) ((N - 1) g + 1) / (e^beta + (N - 1) e^{beta g});
    USA: (2 / N) e^{beta g} (1 - g) ((N - 1) g + 1).
    "sandwich" and "ngpt" divide by the length |A| of the attention. At g = 0, that is for
    orthogonal tokens, SA gives 2 / (e^beta + N - 1) divided by |A| =
    (e^{2 beta} + N - 1)^{1/2} / (e^beta + N - 1): they begin (e^beta + N - 1) /
    (e^{2 beta} + N - 1)^{1/2} times as fast, which is at most sqrt N, and about that for
    N >> e^{2 beta}.

    Raises
    ------
    ValueError
        If an argument is outside its range; `normalise` must not be None, nor "sandwich" or "ngpt"
        at g = -1/(N - 1) and beta = 0, where A = 0.
    """
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, LARGEST_BETA)
    common = real_array(cosine, "cosine")
    if not ((common >= -1.0 / (tokens - 1) - 1e-12) & (common <= 1.0)).all():
        raise argument_error("cosine", "in [-1/(N-1), 1]", cosine)
    branch = checked_places(normalise).branch
    _check_branch("cosine", common, tokens, beta, branch)
    gap, others = 1.0 - common, (tokens - 1) * common + 1.0
    each, size, _ = _weights(gap, others, tokens, beta, normalised, branch)
    return 2.0 * each * gap * others / size


def _check_branch(
    name: str, cosine: NDArray[np.float64] | float, tokens: int, beta: float, branch: bool
) -> None:
    if branch and beta == 0.0 and np.min(cosine) <= -1.0 / (tokens - 1):
        reason = "since an attention of 0 has no direction"
        raise argument_error(name, f"above -1/(N-1) at beta = 0, {reason}", cosine)


def _weights(
    gap: NDArray[np.float64] | float,
    others: NDArray[np.float64] | float,
    tokens: int,
    beta: float,
    normalised: bool,
    branch: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the weight of another token, |A| (or 1) where the branch is normalised, <u, A> / |A|.

    `gap` is 1 - g and `others` (N - 1) g + 1, so that they are exact near both ends.
    """
    left, others = np.asarray(gap, dtype=np.float64), np.asarray(others, dtype=np.float64)
    own = np.exp(beta * left)
    each = 1.0 / (own + tokens - 1) if normalised else np.exp(beta * (1.0 - left)) / tokens
    # A = more x_i + each sum_j x_j.
    more = each * (own - 1.0)
    along = more + each * others
    size = np.ones_like(left)
    if branch:
        size = np.sqrt(more**2 + (2.0 * more + tokens * each) * each * others)
    return each, size, along / size


@with_types
def equiangular_cosine(
    times: ArrayLike,
    tokens: int,
    beta: float,
    start: float = 0.0,
    normalised: bool = True,
    *,
    normalise: Normalise = "after",
) -> NDArray[np.float64]:
    """Return the common cosine g of N tokens at `times`, from `start`.

    With s = log(((N - 1) g + 1) / (1 - g)) and r the length of the tokens, 1 at first, the flow is

        ds/dt = 1 / (q r |A|),   dr/dt = <u, A> / |A|,
        SA: q = (e^{beta (1 - g)} + N - 1) / (2 N);   USA: q = e^{-beta g} / 2,

    without |A| unless the branch is normalised, and with r = 1 for "after" and "ngpt". Errors grow
    with e^beta, as do those of rounding t: up to 1e-9 at beta = 16 and up to 1e-3 at beta = 30.

    Parameters
    ----------
    times
        Increasing times >= 0.
    tokens, beta
        Number of tokens N >= 2, and inverse temperature, at most 300 in absolute value.
    start
        Initial cosine from -1 / (N - 1) to 1. Both ends are fixed points, except that "sandwich"
        and "ngpt" have no direction at -1 / (N - 1) if beta = 0, where A = 0.
    normalised
        True for SA, False for USA.
    normalise
        As for `sphere_flow`, but not None.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If the length reaches 0, as it does from -1 / (N - 1) for beta < 0 unless it is constant.
    """
    return _equiangular(times, tokens, beta, start, normalised, normalise)[0]


@with_types
def equiangular_length(
    times: ArrayLike,
    tokens: int,
    beta: float,
    start: float = 0.0,
    normalised: bool = True,
    *,
    normalise: Normalise = "before",
) -> NDArray[np.float64]:
    """Return the length r of N tokens at `times`.

    Arguments and errors are those of `equiangular_cosine`. As a function of the cosine, r is the
    same for "before" and "sandwich".
    """
    return _equiangular(times, tokens, beta, start, normalised, normalise)[1]


def _equiangular(
    times: ArrayLike, tokens: int, beta: float, start: float, normalised: bool, normalise: Normalise
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cosines and lengths at `times`."""
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, LARGEST_BETA)
    check_finite("start", start)
    if not -1.0 / (tokens - 1) <= start <= 1.0:
        raise argument_error("start", "a cosine in [-1/(N-1), 1]", start)
    t = real_array(times, "times")
    finite = np.isfinite(t) & (t >= 0.0)
    if t.ndim != 1 or len(t) == 0 or not finite.all() or (np.diff(t) < 0.0).any():
        raise argument_error("times", "increasing finite numbers >= 0, at least one", times)
    places = checked_places(normalise)

    _check_branch("start", start, tokens, beta, places.branch)

    def weights(
        gap: NDArray[np.float64] | float, others: NDArray[np.float64] | float
    ) -> tuple[NDArray[np.float64], ...]:
        return _weights(gap, others, tokens, beta, normalised, places.branch)

    if start in (-1.0 / (tokens - 1), 1.0):
        along = float(weights(1.0 - start, tokens if start == 1.0 else 0.0)[2])
        lengths = 1.0 + along * np.clip(t - places.until, 0.0, None)
        if lengths[-1] <= 0.0:
            end = places.until - 1.0 / along
            raise FloatingPointError(f"the length of the tokens reaches 0 at t = {end:g}")
        return np.full(len(t), start), lengths

    def ends(s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return 1 - g and (N - 1) g + 1."""
        with np.errstate(over="ignore"):
            return tokens / (np.exp(s) + tokens - 1), tokens / (1.0 + (tokens - 1) * np.exp(-s))

    def slopes(_: float, state: NDArray[np.float64], free: bool) -> list[float]:
        """Return those of s and r."""
        each, size, along = weights(*ends(state[0]))
        return [float(2.0 * tokens * each / (size * state[1])), float(free * along)]

    state = np.array([math.log(((tokens - 1) * start + 1.0) / (1.0 - start)), 1.0])
    values = np.repeat(state[:, None], len(t), axis=1)
    for first, last in ((0.0, places.until), (places.until, math.inf)):
        end = min(last, t[-1])
        if end > first:
            solved = solve_ivp(
                slopes, (first, end), state, "DOP853", dense_output=True,
                args=(first == places.until,), rtol=_PRECISION, atol=_PRECISION,
            )  # fmt: skip
            assert solved.sol is not None
            if not solved.success:
                raise FloatingPointError(
                    f"the cosine could not be computed up to t = {end:g}: {solved.message}"
                )
            inside = (t > first) & (t <= end)
            if inside.any():
                values[:, inside] = solved.sol(t[inside])
            state = solved.y[:, -1]
    return np.where(t == 0.0, start, 1.0 - ends(values[0])[0]), values[1]


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
        return 0.5 / (float(_weights(gap, others, tokens, beta, normalised)[0]) * others)

    value, _ = quad(
        slowness, -math.log1p(-start), -math.log(delta), epsabs=1e-12, epsrel=1e-11, limit=500
    )
    return float(value)


def checked_places(normalise: Normalise) -> Places:
    """Return what is normalised; raise ValueError for None too."""
    if normalise is None:
        raise argument_error(
            "normalise", "given, since lengths change the weights of attention", None
        )
    return places_of(normalise)
