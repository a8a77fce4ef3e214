"""Exact results: equiangular and two tokens, rates near one cluster, extreme energies.

After Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.special import hyp0f1, i0, ive

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    check_inside,
    check_width,
    real_array,
    with_types,
)
from shaped_attention.sphere.attention import check_beta
from shaped_attention.sphere.two_tokens import two_tokens

__all__ = ["equiangular_cosine", "final_rate", "meeting_time", "mode_growth", "two_tokens"]

_LARGEST_BETA = 300.0
"""exp(2 beta) does not overflow up to here."""

_ALL_ONE_LOG, _CELLS, _NEWTON = 40.0, 2000, 12
"""Length of the interval of s over which g reaches 1, its number of cells, and Newton steps."""


@with_types
def equiangular_field(
    cosine: ArrayLike, tokens: int, beta: float, normalised: bool = True
) -> NDArray[np.float64]:
    """Return the time derivative g' of the common cosine g of N tokens.

    SA: 2 e^{beta g} (1 - g) ((N - 1) g + 1) / (e^beta + (N - 1) e^{beta g});
    USA: (2 / N) e^{beta g} (1 - g) ((N - 1) g + 1).
    """
    g = real_array(cosine, "cosine")
    return (1.0 - g) * _closing_rate(1.0 - g, tokens, beta, normalised)


def _closing_rate(
    gap: ArrayLike, tokens: int, beta: float, normalised: bool
) -> NDArray[np.float64]:
    """Return g' / (1 - g) as a function of 1 - g; it is smooth and nonzero at g = 1."""
    left = np.asarray(gap, dtype=np.float64)
    others = (tokens - 1) * (1.0 - left) + 1.0
    if normalised:
        return 2.0 * others / (np.exp(beta * left) + tokens - 1)
    return 2.0 * np.exp(beta * (1.0 - left)) * others / tokens


@with_types
def equiangular_cosine(
    times: ArrayLike, tokens: int, beta: float, start: float = 0.0, normalised: bool = True
) -> NDArray[np.float64]:
    """Return the common cosine g of N tokens at `times`, from `start`, to 1e-10.

    With s = log(((N - 1) g + 1) / (1 - g)) the equation of `equiangular_field` is ds/dt = 1 / q,
    SA: q = (e^{beta (1 - g)} + N - 1) / (2 N);   USA: q = e^{-beta g} / 2;
    so t is the integral of q over s, which is smooth and grows linearly for large s. It is inverted
    numerically.

    Parameters
    ----------
    times
        Increasing times >= 0.
    tokens, beta
        Number of tokens N >= 2, and inverse temperature, at most 300 in absolute value.
    start
        Initial cosine from -1 / (N - 1) to 1; both ends are fixed points.
    normalised
        True for SA, False for USA.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, _LARGEST_BETA)
    check_finite("start", start)
    if not -1.0 / (tokens - 1) <= start <= 1.0:
        raise argument_error("start", "a cosine in [-1/(N-1), 1]", start)
    t = real_array(times, "times")
    finite = np.isfinite(t) & (t >= 0.0)
    if t.ndim != 1 or len(t) == 0 or not finite.all() or (np.diff(t) < 0.0).any():
        raise argument_error("times", "increasing finite numbers >= 0, at least one", times)
    others = (tokens - 1) * start + 1.0
    if others <= 0.0 or start == 1.0:
        return np.full(len(t), start)

    def cosine(s: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1.0 - tokens / (np.exp(s) + tokens - 1)

    def slowness(s: NDArray[np.float64]) -> NDArray[np.float64]:
        g = cosine(s)
        if normalised:
            return (np.exp(beta * (1.0 - g)) + tokens - 1) / (2.0 * tokens)
        return 0.5 * np.exp(-beta * g)

    nodes, weights = (np.asarray(part) for part in np.polynomial.legendre.leggauss(10))

    def time_over(first: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
        points = first[:, None] + 0.5 * width[:, None] * (nodes + 1.0)
        return 0.5 * width * (slowness(points) @ weights)

    begin = math.log(others / (1.0 - start))
    edges = np.linspace(begin, max(begin, math.log(tokens)) + _ALL_ONE_LOG, _CELLS + 1)
    width = edges[1] - edges[0]
    reached = np.concatenate([[0.0], np.cumsum(time_over(edges[:-1], np.full(_CELLS, width)))])
    cell = np.clip(np.searchsorted(reached, t, side="right") - 1, 0, _CELLS - 1)
    left = t - reached[cell]
    # Newton's method for the place in the cell: the time to it is increasing and nearly linear.
    moved = np.zeros(len(t))
    for _ in range(_NEWTON):
        missing = left - time_over(edges[cell], moved)
        moved = np.clip(moved + missing / slowness(edges[cell] + moved), 0.0, width)
    return np.where(t == 0.0, start, cosine(edges[cell] + moved))


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
    check_beta(beta, _LARGEST_BETA)
    if not -1.0 / (tokens - 1) < start < 1.0 - delta:
        raise argument_error("start", "a cosine above -1/(N-1) and below 1 - delta", start)

    def slowness(u: float) -> float:
        # u = -log(1 - g): without it the integrand has a pole at the end.
        return 1.0 / float(_closing_rate(math.exp(-u), tokens, beta, normalised))

    value, _ = quad(
        slowness, -math.log1p(-start), -math.log(delta), epsabs=1e-12, epsrel=1e-11, limit=500
    )
    return float(value)


@with_types
def final_rate(tokens: int, beta: float, normalised: bool = True, causal: bool = False) -> float:
    """Return the rate r of 1 - <x_i, x_j> ~ e^{-r t} once all tokens are close.

    It is 2 k with full attention and k with causal attention, k = 1 for SA and e^beta for USA,
    whatever the number of tokens. Near one cluster at c, x_i = c + y_i and to first order
    dy_i/dt = k (mean(y) - y_i), where the mean is over the tokens that i sees. With full attention
    differences decay as e^{-k t}. With causal attention y_1 stays and y_i decays at the rates
    k (1 - 1/j), 2 <= j <= i, of which that of the second token, k / 2, is the smallest. And
    1 - <x_i, x_j> = |y_i - y_j|^2 / 2 decays as the square.

    Raises
    ------
    ValueError
        If there are fewer than two tokens, or `beta` is not finite or above 300 in absolute value.
    """
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, _LARGEST_BETA)
    return (1.0 if causal else 2.0) * (1.0 if normalised else math.exp(beta))


@with_types
def mode_growth(mode: int, beta: float, normalised: bool = True) -> float:
    """Return the rate at which a small wave cos(k a) grows on the uniform density of the circle.

    For the mean field (1 + epsilon cos(k a)) / (2 pi) the weighted average of SA has the potential
    log(I_0(beta) + epsilon I_k(beta) cos(k a)) / beta, so to first order in epsilon the continuity
    equation gives d epsilon/dt = r epsilon with r = k^2 I_k(beta) / (beta I_0(beta)), and for USA
    r = k^2 I_k(beta) / beta (I_k the modified Bessel functions). For beta > 0 the largest is
    near k = sqrt(2 beta), the number of clusters that form first.

    Raises
    ------
    ValueError
        If `mode` is not an integer >= 1, or `beta` is zero or above 300 in absolute value.
    """
    check_count("mode", mode)
    check_beta(beta, _LARGEST_BETA)
    if beta == 0.0:
        raise argument_error("beta", "nonzero", beta)
    share = float(ive(mode, beta) / ive(0, beta))
    return mode**2 * share / beta * (1.0 if normalised else float(i0(beta)))


def dirac_energy(beta: float) -> float:
    """Return the energy e^beta / (2 beta) of one cluster: the largest of all laws, for beta >= 0.

    At beta = 0 it is 1 / 2, by the convention of `SphereAttention.energy`.
    """
    check_beta(beta)
    return 0.5 if beta == 0.0 else math.exp(beta) / (2.0 * beta)


def uniform_energy(beta: float, dimension: int) -> float:
    """Return the energy of the uniform law on S^{d-1}: the smallest of all laws, for beta >= 0.

    (1 / (2 beta)) Gamma(d / 2) (2 / beta)^{d/2 - 1} I_{d/2 - 1}(beta). N tokens have a
    larger energy, since each interacts with itself. At beta = 0 it is 0, by the convention of
    `SphereAttention.energy`. Accurate to 1e-9 for d up to 10^5.
    """
    check_beta(beta)
    check_width("dimension", dimension)
    if beta == 0.0:
        return 0.0
    # Gamma(b) z^{1 - b} I_{b - 1}(2 z) = 0F1(; b; z^2), which does not underflow for large b.
    return float(hyp0f1(0.5 * dimension, 0.25 * beta * beta)) / (2.0 * beta)
