"""Exact laws of the models, in one table: what every sampler must reproduce.

k is the linear rate of a layer, gamma^2 (2 - gamma^2) for attention without an output projection.

| what | law | where |
| --- | --- | --- |
| one token, limit, also with ReLU MLPs | N(-k T, 2 k T) of log V | `log_determinant` |
| one token, width n | V' / V ~ noncentral chi-square | `token_factor` |
| log det V as tau_0 -> infinity, limit | N(-k m (m + 1) T / 2, 2 m k T) | `log_determinant` |
| the same, gamma = 1, width n | product of chi-squares | `log_determinant_moments` |
| A V A^T as tau_0 -> infinity, any width | started from A V_0 A^T | (a symmetry) |
| explosion, passage of u, two tokens and others | `ScalarLaw` | `explosion_law` |
| u without explosion, a <= 1/2 | E u^-2 | `inverse_square` |
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special, stats

from shaped_attention.theory.explosion.scalar_law import ScalarLaw


def log_determinant(k: float, tokens: int, horizon: float) -> Any:
    """Return the normal law of log det V_T - log det V_0 in the limit, as tau_0 -> infinity."""
    mean = -k * tokens * (tokens + 1) * horizon / 2.0
    return stats.norm(mean, math.sqrt(2.0 * tokens * k * horizon))


def token_factor(gamma: float, width: int) -> Any:
    """Return the law of V_{l+1} / V_l for one token and attention, |lambda e + gamma g|^2 / n."""
    shift = width * (1.0 - gamma**2) / gamma**2
    return stats.ncx2(width, shift, scale=gamma**2 / width)


def log_determinant_moments(width: int, depth: int, tokens: int) -> tuple[float, float]:
    """Return mean and standard deviation of log det V_L - log det V_0 at width n.

    They hold for gamma = 1 as tau_0 -> infinity. Without the skip connection V' = F W F^T / n
    with W Wishart, so that log det gains
    sum_i log(chi^2_{n-i} / n) in each layer, whatever V is.
    """
    freedom = width - np.arange(tokens)
    mean = depth * float((special.digamma(freedom / 2.0) + math.log(2.0 / width)).sum())
    return mean, math.sqrt(depth * float(special.polygamma(1, freedom / 2.0).sum()))


def inverse_square(law: ScalarLaw, horizon: float) -> float:
    """Return E u_T^-2 for a <= 1/2, where Q = sinh^2 X is a Pearson diffusion.

    It moves at the rate B = 6 k + 2 mu: E u_T^-2 = u_0^-2 e^{BT} + delta (3 - 2a) (e^{BT} - 1) / B.
    """
    rate = 6.0 * law.k + 2.0 * law.mu
    growth = math.expm1(rate * horizon) / rate
    return law.u0**-2 * (1.0 + rate * growth) + (3.0 * law.delta - 2.0 * law.alpha) * growth
