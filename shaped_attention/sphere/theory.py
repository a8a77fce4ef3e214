"""Exact results: equiangular and two tokens, rates near one cluster, extreme energies.

After Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794).
"""

from __future__ import annotations

import math

from scipy.special import i0, ive

from shaped_attention.checks import (
    argument_error,
    check_count,
    with_types,
)
from shaped_attention.sphere.attention import check_beta
from shaped_attention.sphere.equiangular import (
    LARGEST_BETA,
    equiangular_cosine,
    equiangular_field,
    meeting_time,
)
from shaped_attention.sphere.two_tokens import two_tokens

__all__ = [
    "equiangular_cosine",
    "equiangular_field",
    "final_rate",
    "meeting_time",
    "mode_growth",
    "two_tokens",
]


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
        If there are fewer than two tokens, or `beta` is not finite or above 300 in absolute value.
    """
    check_count("tokens", tokens, lowest=2)
    check_beta(beta, LARGEST_BETA)
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
    check_beta(beta, LARGEST_BETA)
    if beta == 0.0:
        raise argument_error("beta", "nonzero", beta)
    share = float(ive(mode, beta) / ive(0, beta))
    return mode**2 * share / beta * (1.0 if normalised else float(i0(beta)))
