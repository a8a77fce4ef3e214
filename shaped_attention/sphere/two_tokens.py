"""Two tokens under noise that is common to both: a diffusion of their cosine, by quadrature.

The cosine r of two tokens of `noisy_chain` as h -> 0 has, by `random_values` with A = S_00 = S_11
and B = S_01, the drift b and the variance a per unit of time

    b = 2 s q (1 - r^2) + (sigma^2 / d) ((d - 2) (B - r A) - r (A - r B)),
    a = (2 sigma^2 / d) (1 - r^2) (A - r B),

with q = w_01 = w_10, and s = 1, -1 for repulsion or 0 if centred. In z = artanh r its scale density
is s'(z) = exp(-int_0^z g), where, with p = w_00 = w_11, C = (A - r B) / (1 - r^2) = p^2 + q^2 and
p / q = exp(beta (1 - r)),

    g = (d - 2) (B - r A) / (A - r B) + r + 2 s d q / (sigma^2 C),
    (B - r A) / (A - r B) = 2 p q / C = 1 / cosh(beta (1 - r)).

At its ends g tends exponentially fast in z to g(1) and g(-1), so r = 1 attracts iff g(1) > 0 and
r = -1, where paths that reach it stay, iff g(-1) < 0. Centred, g(1) = d - 1 and
g(-1) = (d - 2) / cosh(2 beta) - 1: the antipode attracts iff d - 2 < cosh(2 beta), for SA and USA
alike (proofs: `symbolic.claims.random_values`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import argument_error, check_positive, check_range, real_array
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention

_STEEPEST = 1e4
"""Largest |g|: cells have the width 2 / |g|."""

_END = 20.0
"""Beyond z = +-20, g is constant to rounding."""

Array = NDArray[np.float64]


@recorded()
def two_tokens(
    attention: SphereAttention,
    dimension: int,
    sigma: float,
    cosine: ArrayLike,
    *,
    centred: bool = False,
) -> xr.Dataset:
    """Compute which of the cosines 1 and -1 attracts two tokens under noise, and how often.

    Parameters
    ----------
    attention
        Attention without a mask.
    dimension, sigma, centred
        Dimension d >= 2, strength sigma > 0 of the noise, and whether the value matrices have mean
        0, as for `noisy_chain`, whose limit of small steps this is.
    cosine
        Increasing initial cosines, strictly between -1 and 1.

    Returns
    -------
    xarray.Dataset
        with the coordinate `cosine` and

        - `attracts` (end): whether paths converge to the cosine `end`, -1 or 1, with a positive
          probability;
        - `antipode` (cosine): the probability of converging to -1, to 1e-9; if neither end
          attracts, the cosine never converges, and it is 0.

    Raises
    ------
    ValueError
        If an argument is outside its range, the attention is causal, or |g| exceeds 1e4.
    """
    start = _checked(attention, dimension, sigma, cosine)
    z = np.arctanh(start)
    slope = _slope(attention, dimension, sigma, centred)
    steepest = max(float(np.abs(slope(np.linspace(-_END, _END, 1001))).max()), 40.0)
    if steepest > _STEEPEST:
        raise argument_error("dimension", "smaller, or sigma larger, at this beta", dimension)
    ends = slope(np.array([-_END, _END]))
    attracts = np.array([ends[0] < 0.0, ends[1] > 0.0])
    antipode = np.full(len(z), float(attracts[0]))
    if attracts.all():
        grid = np.linspace(-_END, _END, 2 * math.ceil(_END * steepest / 2.0) + 1)
        edges = np.unique(np.concatenate([grid, z]))
        antipode = _right_share(edges, slope, ends)[np.searchsorted(edges, z)]
    return xr.Dataset(
        {"attracts": ("end", attracts), "antipode": ("cosine", antipode)},
        {"cosine": start, "end": [-1.0, 1.0]},
    )


def _right_share(edges: Array, slope: Callable[[Array], Array], ends: Array) -> Array:
    """Return the share of the integral of the scale density that lies to the right of each edge."""
    x, weights = (np.asarray(part) for part in legendre.leggauss(10))
    # Integrals from -1 to each node of the polynomial with given values at the nodes.
    powers = legendre.legint(np.linalg.inv(legendre.legvander(x, 9)), lbnd=-1.0)
    to_node = legendre.legvander(x, 10) @ powers
    half = 0.5 * np.diff(edges)[:, None]
    values = half * slope(edges[:-1, None] + half * (x + 1.0))
    log_scale = -np.concatenate([[0.0], np.cumsum(values @ weights)])
    log_density = log_scale[:-1, None] - values @ to_node.T
    top = log_density.max(1, keepdims=True)
    inner = top[:, 0] + np.log((half * np.exp(log_density - top)) @ weights)
    # Beyond the edges the density is exponential.
    tails = log_scale[[0, -1]] - np.log(np.abs(ends))
    left = np.logaddexp.accumulate(np.concatenate([tails[:1], inner]))
    right = np.logaddexp.accumulate(np.concatenate([tails[1:], inner[::-1]]))[::-1]
    share: Array = np.exp(right - np.logaddexp(left, right))
    return share


def _checked(attention: SphereAttention, dimension: int, sigma: float, cosine: ArrayLike) -> Array:
    """Return the cosines as an array."""
    if attention.causal:
        raise argument_error(
            "attention", "without causal=True, with which the second token leaves -x", attention
        )
    check_range("dimension", dimension, 2, _STEEPEST)
    check_positive("sigma", sigma)
    start = real_array(cosine, "cosine")
    inside = start.ndim == 1 and start.size > 0 and bool((np.abs(start) < 1.0).all())
    if not inside or (np.diff(start) <= 0.0).any():
        raise argument_error("cosine", "a list of increasing numbers in (-1, 1)", cosine)
    return start


def _slope(
    attention: SphereAttention, dimension: int, sigma: float, centred: bool
) -> Callable[[Array], Array]:
    """Return g as a function of z."""
    beta, sign = attention.beta, -1.0 if attention.repulsion else 1.0
    push = 0.0 if centred else 2.0 * sign * dimension / sigma**2

    def slope(z: Array) -> Array:
        gap = 2.0 / (1.0 + np.exp(2.0 * z))
        if attention.normalised:
            less = 1.0 / (1.0 + np.exp(np.abs(beta) * gap))
            squares, q = less**2 + (1.0 - less) ** 2, less if beta >= 0.0 else 1.0 - less
        else:
            p, q = 0.5 * math.exp(beta), 0.5 * np.exp(beta * (1.0 - gap))
            squares = p * p + q * q
        towards = (dimension - 2) / np.cosh(beta * gap)
        result: Array = towards + np.tanh(z) + push * q / squares
        return result

    return slope
