"""Two tokens under noise that is common to both: a diffusion of their cosine, by quadrature.

The cosine r of two tokens of `noisy_chain` as h -> 0 has, by `random_weights` with A = S_00 = S_11
and B = S_01, the drift b and the variance a per unit of time

    b = 2 s q (1 - r^2) + (sigma^2 / d) ((d - 2) (B - r A) - r (A - r B)),
    a = (2 sigma^2 / d) (1 - r^2) (A - r B),

with q = w_01 = w_10, and s = 1, -1 for repulsion or 0 if centred. In z = artanh r

    scale density s'(z) = exp(-int_0^z g),    speed density m'(z) = d / (sigma^2 C s'),
    g = (d - 2) (B - r A) / (A - r B) + r + 2 s d q / (sigma^2 C),    C = (A - r B) / (1 - r^2).

At its ends g tends exponentially fast in z to g(1) and g(-1), so r = 1 attracts iff g(1) > 0 and
r = -1, where paths that reach it stay, iff g(-1) < 0.

Value matrices: with p = w_00 = w_11, C = p^2 + q^2, and (B - r A) / (A - r B) = 2 p q / C =
1 / cosh(beta (1 - r)), as p / q = exp(beta (1 - r)). Centred, g(1) = d - 1 and
g(-1) = (d - 2) / cosh(2 beta) - 1: the antipode attracts iff d - 2 < cosh(2 beta), for SA and USA
alike (proofs: `symbolic.claims.random_values`).

MLP: A = kappa(1) = E phi^2 and B = kappa(r), so that with K = kappa'(1) = E phi'^2 and centred,
g(1) = (d - 2) (A - K) / (A + K) + 1: equal tokens attract iff (d - 1) A > (d - 3) K. If phi is odd,
so is g. Otherwise paths leave r = -1, and reach it in two dimensions only (proofs:
`symbolic.claims.random_mlp`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray
from scipy.special import spherical_jn

from shaped_attention.checks import (
    argument_error,
    check_inside,
    check_positive,
    check_range,
    real_array,
)
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention, check_beta
from shaped_attention.sphere.random_weights import RELU, RandomMLP

_LARGEST_BETA, _STEEPEST = 300.0, 1e4
"""Largest |beta|, so that exp(2 beta) is finite, and largest |g|: cells have the width 2 / |g|."""

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
    noise: RandomMLP | None = None,
    delta: float = 1e-3,
) -> xr.Dataset:
    """Compute which of the cosines 1 and -1 attracts two tokens under noise, and how often.

    Parameters
    ----------
    attention
        Attention without a mask; beta is at most 300 in absolute value.
    dimension, sigma, centred, noise
        Dimension d >= 2, strength sigma > 0 of the noise, whether the value matrices have mean 0,
        and the noise, as for `noisy_chain`, whose limit of small steps this is; the hidden width of
        an MLP does not matter.
    cosine
        Increasing initial cosines, strictly between -1 and 1.
    delta
        Distance from 1 and -1 at which `exit_time` stops, strictly between 0 and 1.

    Returns
    -------
    xarray.Dataset
        with the coordinate `cosine` and

        - `attracts` (end): whether paths converge to the cosine `end`, -1 or 1, with a positive
          probability;
        - `antipode` (cosine): the probability of converging to -1, to 1e-9; if neither end
          attracts, the cosine never converges, and it is 0;
        - `scale_density` and `speed_density` (cosine): s'(r) and m'(r) = 2 / (a s'), with s' = 1 at
          r = 0. For d in the hundreds they overflow to infinity or underflow to 0. If neither end
          attracts, the stationary density of the cosine is proportional to m';
        - `exit_time` (cosine): the mean time until the cosine is at most -1 + delta or at least
          1 - delta; 0 from there on.

    Raises
    ------
    ValueError
        If an argument is outside its range, the attention is causal, the covariance of the
        activation is not known, or |g| exceeds 1e4.
    """
    start = _checked(attention, dimension, sigma, cosine)
    check_inside("delta", delta)
    z, stop = np.arctanh(start), math.atanh(1.0 - delta)
    slope, log_clock = _coefficients(attention, dimension, sigma, centred, noise)
    steepest = max(float(np.abs(slope(np.linspace(-_END, _END, 1001))).max()), 40.0)
    if steepest > _STEEPEST:
        raise argument_error("dimension", "smaller, or sigma larger, at this beta", dimension)
    grid = np.linspace(-_END, _END, 2 * math.ceil(_END * steepest / 2.0) + 1)
    cells = _Cells(np.unique(np.concatenate([grid, z, [-stop, stop]])))
    log_scale = -cells.integrals(slope(cells.nodes))
    log_scale -= log_scale[np.abs(cells.edges).argmin()]
    log_density = log_scale[:-1, None] - cells.partial(slope(cells.nodes))
    place = np.searchsorted(cells.edges, z)

    ends = slope(np.array([-_END, _END]))
    attracts = np.array([ends[0] < 0.0 and (noise is None or noise.odd), ends[1] > 0.0])
    antipode = np.full(len(z), float(attracts[0]))
    if attracts.all():
        # Beyond the grid s' is exponential.
        tails = log_scale[[0, -1]] - np.log(np.abs(ends))
        inner = cells.log_integrals(log_density)
        left = np.logaddexp.accumulate(np.concatenate([tails[:1], inner]))[place]
        right = np.logaddexp.accumulate(np.concatenate([tails[1:], inner[::-1]]))[::-1][place]
        antipode = np.exp(right - np.logaddexp(left, right))

    first, last = np.searchsorted(cells.edges, [-stop, stop])
    times = np.zeros(len(cells.edges))
    times[first : last + 1] = _exit_times(
        _Cells(cells.edges[first : last + 1]), log_density[first:last], log_clock
    )
    with np.errstate(over="ignore"):
        # Densities in r are those in z times dz/dr = 1 / (1 - r^2).
        scale = np.exp(log_scale[place]) / (1.0 - start**2)
        speed = np.exp(log_clock(z) - log_scale[place]) / (1.0 - start**2)
    return xr.Dataset(
        {
            "attracts": ("end", attracts),
            "antipode": ("cosine", antipode),
            "scale_density": ("cosine", scale),
            "speed_density": ("cosine", speed),
            "exit_time": ("cosine", times[place]),
        },
        {"cosine": start, "end": [-1.0, 1.0]},
    )


def _checked(attention: SphereAttention, dimension: int, sigma: float, cosine: ArrayLike) -> Array:
    """Return the cosines as an array."""
    if attention.causal:
        raise argument_error(
            "attention", "without causal=True, with which the second token leaves -x", attention
        )
    check_beta(attention.beta, _LARGEST_BETA)
    check_range("dimension", dimension, 2, _STEEPEST)
    check_positive("sigma", sigma)
    start = real_array(cosine, "cosine")
    if start.ndim != 1 or start.size == 0 or not (np.abs(start) < 1.0).all():
        raise argument_error("cosine", "a list of numbers in (-1, 1), at least one", cosine)
    if (np.diff(start) <= 0.0).any():
        raise argument_error("cosine", "increasing", cosine)
    return start


def _coefficients(
    attention: SphereAttention,
    dimension: int,
    sigma: float,
    centred: bool,
    noise: RandomMLP | None,
) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return g and the logarithm of d / (sigma^2 C) as functions of z."""
    beta, sign = attention.beta, -1.0 if attention.repulsion else 1.0
    push = 0.0 if centred else 2.0 * sign * dimension / sigma**2

    def parts(z: Array) -> tuple[Array, Array, Array]:
        """Return (B - r A) / (A - r B), C and q."""
        gap = 2.0 / (1.0 + np.exp(2.0 * z))
        if attention.normalised:
            less = 1.0 / (1.0 + np.exp(np.abs(beta) * gap))
            squares, q = less**2 + (1.0 - less) ** 2, less if beta >= 0.0 else 1.0 - less
        else:
            p, q = 0.5 * math.exp(beta), 0.5 * np.exp(beta * (1.0 - gap))
            squares = p * p + q * q
        if noise is None:
            return 1.0 / np.cosh(beta * gap), squares, q
        towards, across = _differences(noise, z)
        return towards / across, across * np.cosh(z) ** 2, q

    def slope(z: Array) -> Array:
        towards, clock, q = parts(z)
        return (dimension - 2) * towards + np.tanh(z) + push * q / clock

    def log_clock(z: Array) -> Array:
        return math.log(dimension / sigma**2) - np.log(parts(z)[1])

    return slope, log_clock


def _differences(noise: RandomMLP, z: Array) -> tuple[Array, Array]:
    """Return kappa(r) - r kappa(1) and kappa(1) - r kappa(r) without cancellation at r = +-1."""
    if noise.activation == RELU:
        # With the angle t, 2 pi kappa = sin t + (pi - t) cos t, and sin t - t cos t = t^2 j_1(t).
        angle = 2.0 * np.arctan(np.exp(-z))
        towards = angle**2 * spherical_jn(1, angle)
        across = math.pi / np.cosh(z) ** 2 - np.tanh(z) * towards
        return towards / (2.0 * math.pi), across / (2.0 * math.pi)
    size = np.abs(np.tanh(z))
    # The logarithm of |r|, finite at 0.
    log = np.log1p(-np.minimum(2.0 / (1.0 + np.exp(2.0 * np.abs(z))), 1.0 - 1e-15))
    towards, across = np.zeros_like(z), np.zeros_like(z)
    for n, square in enumerate(noise.squares):
        if square:
            # r^n - r and 1 - r^(n + 1); for even n and r < 0 nothing cancels.
            powers = np.where(z < 0.0, -1.0, 1.0) * size * np.expm1((n - 1) * log)
            rest = -np.expm1((n + 1) * log)
            if n % 2 == 0:
                powers = np.where(z < 0.0, size**n + size, powers)
                rest = np.where(z < 0.0, 1.0 + size ** (n + 1), rest)
            towards += square * powers
            across += square * rest
    return towards, across


class _Cells:
    """Integrals of functions that are given at Gauss-Legendre nodes of cells."""

    def __init__(self, edges: Array) -> None:
        x, self._weights = (np.asarray(part) for part in legendre.leggauss(10))
        # Integrals from -1 to each node of the polynomial with given values at the nodes.
        powers = legendre.legint(np.linalg.inv(legendre.legvander(x, 9)), lbnd=-1.0)
        self._to_node = legendre.legvander(x, 10) @ powers
        self.edges = edges
        self._half = 0.5 * np.diff(edges)[:, None]
        self.nodes = edges[:-1, None] + self._half * (x + 1.0)

    def integrals(self, values: Array) -> Array:
        """Return the integrals from the first edge to each, of values (cells, nodes)."""
        return np.concatenate([[0.0], np.cumsum((self._half * values) @ self._weights)])

    def partial(self, values: Array) -> Array:
        """Return the integrals from the left of a cell to its nodes."""
        return (self._half * values) @ self._to_node.T

    def log_integrals(self, logarithms: Array) -> Array:
        """Return the logarithms of the integrals of exp over each cell."""
        top = logarithms.max(1, keepdims=True)
        whole = (self._half * np.exp(logarithms - top)) @ self._weights
        return top[:, 0] + np.log(whole)

    def log_from_both_ends(self, logarithms: Array) -> tuple[Array, Array, Array, Array]:
        """Return log integrals of exp from the first edge to edges and nodes, and to the last."""
        top = logarithms.max(1, keepdims=True)
        values = np.exp(logarithms - top)
        inner = self.log_integrals(logarithms)
        left = np.logaddexp.accumulate(np.concatenate([[-np.inf], inner]))
        right = np.logaddexp.accumulate(np.concatenate([[-np.inf], inner[::-1]]))[::-1]
        from_left = self._half * values @ self._to_node.T
        from_right = self._half * values @ (self._weights - self._to_node).T
        left_nodes = np.logaddexp(left[:-1, None], top + np.log(from_left))
        right_nodes = np.logaddexp(right[1:, None], top + np.log(from_right))
        return left, left_nodes, right, right_nodes


def _exit_times(cells: _Cells, log_density: Array, log_clock: Callable[[Array], Array]) -> Array:
    """Return the mean time, from each edge, until the first or the last edge is reached.

    It is the integral of Green's function by the speed measure: with s from the first edge on and
    S its whole length, (1 - s/S) int_left s m' + (s/S) int_right (S - s) m', terms that are all
    positive. Their logarithms do not overflow.
    """
    left, left_nodes, right, right_nodes = cells.log_from_both_ends(log_density)
    log_speed = log_clock(cells.nodes) - log_density
    below = np.logaddexp.accumulate(
        np.concatenate([[-np.inf], cells.log_integrals(left_nodes + log_speed)])
    )
    above = np.logaddexp.accumulate(
        np.concatenate([[-np.inf], cells.log_integrals(right_nodes + log_speed)[::-1]])
    )[::-1]
    return np.exp(right - left[-1] + below) + np.exp(left - left[-1] + above)
