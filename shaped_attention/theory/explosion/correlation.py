"""Law of the correlation of two tokens, without kernel smoothing.

With w = (1, -1) / sqrt 2, e = (1, 1) / sqrt 2 and h = V_ww = u / 2, V is given by u,
d = det V / h and beta = V_we / h. For two tokens with full attention, drift alpha u^2 V and
diffusion k Sigma_lin + 4 delta Att of `shaped_attention.theory.drift_diffusion`,

    d log d = [(alpha - delta / 4) u^2 - 2 k] dt + sqrt(2k) dW_1,
    d beta = sqrt((2 d / u) (k + delta u^2 / 4)) dW_2,

where W_1, W_2 and the noise of u are independent. Given the paths of u and d, beta_T is therefore
normal. The correlation rho = V_12 / sqrt(V_11 V_22) is increasing in beta^2: with
y = d + h beta^2 - h = 2 V_12,

    4 V_11 V_22 = y^2 + 4 h d,    rho = y / sqrt(y^2 + 4 h d),

which is increasing in y. So {rho <= x} = {beta^2 <= s(x)}, h s(x) = x sqrt(4 h d / (1 - x^2)) - d +
h, and P(rho <= x | u, d) is a difference of two normal distribution functions. Its derivative in x
is not used: it behaves like s^{-1/2} at s = 0, and its mean over paths has no variance.

u is simulated in the clock in which log u has the constant noise sqrt(2k), dt = g dtheta with
g = 1 / (1 + delta u^2 / (2k)), by Heun's scheme; steps that cross the level inside are weighted by
the probability of a Brownian bridge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import special

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import argument_error, check_count, check_positive, is_number
from shaped_attention.numerics.covariance import check_covariance, vech
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.provenance import recorded
from shaped_attention.theory.drift_diffusion import diffusion, drift
from shaped_attention.theory.explosion.law import explosion_law
from shaped_attention.theory.explosion.scalar_law import ScalarLaw

Array = NDArray[np.float64]

_HIGHEST = 1e4
"""Default level, in units of u_0."""


@recorded()
def correlation_law(
    layer: Layer,
    v0: ArrayLike,
    *,
    horizon: float,
    level: float | None = None,
    cells: int = 200,
    samples: int = 4096,
    step: float = 0.02,
    seed: int = 0,
) -> xr.Dataset:
    """Compute density and distribution function of the correlation of two tokens at a horizon.

    Given a path of u = V_11 - 2 V_12 + V_22 and det V, the distribution function is known exactly.
    The density therefore needs no bandwidth: it is the mean of the known function over the paths,
    averaged over each cell.

    Parameters
    ----------
    layer, v0
        As in the samplers; two tokens with full attention, for which the law of u is exact.
    horizon
        Time t = l / n.
    level
        Level of u at which paths stop; None for 10^4 u_0.
    cells
        Number of cells of the correlation between -1 and 1.
    samples
        Number of paths.
    step
        Step of log u, measured by the variance of its noise.
    seed
        Seed of the random numbers.

    Returns
    -------
    xarray.Dataset with `density` (rho), its mean over the cell centred at rho, and `distribution`
    (edge), both restricted to the event that u stays below the level; their standard errors
    `density_error` and `distribution_error`; the exact probability `stopped` of the complement, and
    its estimate `stopped_estimate` from these paths.

    Raises
    ------
    ValueError
        If the law of u is not exact for two tokens, V_0 is singular, or an argument is outside its
        range.
    """
    start = check_covariance(v0, "v0")
    check_positive("horizon", horizon)
    check_positive("step", step)
    check_count("cells", cells)
    check_count("samples", samples, lowest=2)
    check_count("seed", seed, lowest=0)
    law = _law(layer, start)
    top = _HIGHEST * law.u0 if level is None else level
    if not (is_number(top) and law.u0 < top < math.inf):
        raise argument_error("level", f"finite and above u_0 = {law.u0:.6g}", level)
    paths = _paths(law, start, float(horizon), float(top), samples, step, seed)
    edges = np.linspace(-1.0, 1.0, cells + 1)
    below = [paths.below(x) for x in edges]
    inside = [(right - left) * (cells / 2.0) for left, right in pairwise(below)]
    density, distribution = (
        np.array([(x.mean(), x.std(ddof=1) / math.sqrt(samples)) for x in values]).T
        for values in (inside, below)
    )
    return xr.Dataset(
        {
            "density": ("rho", density[0]),
            "density_error": ("rho", density[1]),
            "distribution": ("edge", distribution[0]),
            "distribution_error": ("edge", distribution[1]),
            "stopped": law.probability(float(horizon), float(top)),
            "stopped_estimate": 1.0 - paths.weight.mean(),
        },
        coords={"rho": 0.5 * (edges[1:] + edges[:-1]), "edge": edges},
    )


def _law(layer: Layer, v0: Array) -> ScalarLaw:
    """Return the law of u, or raise ValueError unless the rest of V has the law of the module."""
    if v0.shape != (2, 2):
        raise argument_error("v0", "of shape (2, 2), for two tokens", v0.shape)
    if np.linalg.eigvalsh(v0)[0] <= 1e-12 * v0.max():
        raise ValueError(
            "v0 must not be singular: one of the two tokens is a multiple of the other"
        )
    known = explosion_law(layer, v0)
    states = np.array([[[1.0, 0.2], [0.2, 1.0]], [[2.0, -0.5], [-0.5, 0.7]]])
    exact = known.kind == "exact" and known.scalar == "V[0,0] - 2 V[0,1] + V[1,1]"
    if not (exact and all(_follows(layer, known.coefficients, v) for v in states)):
        raise argument_error("layer", "full attention, with or without linear blocks", layer)
    return known.coefficients


def _follows(layer: Layer, law: ScalarLaw, v: Array) -> bool:
    """Return whether drift and diffusion at V are those of the module."""
    u = v[0, 0] - 2.0 * v[0, 1] + v[1, 1]
    w = np.array([1.0, -1.0])
    r = np.outer(v @ w, v @ w) * u / 16.0
    sigma = np.zeros((2, 2, 2, 2))
    for x, y, factor in ((v, v, law.k), (v, r, 4.0 * law.delta), (r, v, 4.0 * law.delta)):
        sigma += factor * (np.einsum("ac,bd->abcd", x, y) + np.einsum("ad,bc->abcd", x, y))
    flat = vech(vech(sigma).transpose(2, 0, 1)).T
    return bool(
        np.allclose(drift(layer, v), law.alpha * u**2 * v, rtol=1e-9, atol=1e-12 * law.k)
        and np.allclose(diffusion(layer, v), flat, rtol=1e-9, atol=1e-12 * law.k)
    )


@dataclass(frozen=True)
class _Paths:
    """Final values of u, d, the variance of beta, and the weight of paths below the level."""

    u: Array
    d: Array
    variance: Array
    weight: Array
    beta: float

    def below(self, x: float) -> Array:
        """Return P(rho <= x, u stays below the level | u, d) of each path."""
        if abs(x) >= 1.0:
            return self.weight * (x > 0.0)
        h = self.u / 2.0
        s = (x * np.sqrt(4.0 * h * self.d / (1.0 - x * x)) - self.d + h) / h
        edge, deviation = np.sqrt(np.maximum(s, 0.0)), np.sqrt(self.variance)
        ends = [(side * edge - self.beta) / deviation for side in (1.0, -1.0)]
        return self.weight * (special.ndtr(ends[0]) - special.ndtr(ends[1]))


def _paths(
    law: ScalarLaw, v0: Array, horizon: float, level: float, samples: int, step: float, seed: int
) -> _Paths:
    """Simulate u in its clock, with log d and the variance of beta along it."""
    rng = np.random.default_rng(derived_seed(seed, {"study": "correlation_law"}))
    h0 = law.u0 / 2.0
    beta = (v0[0, 0] - v0[1, 1]) / 2.0 / h0
    y, top = np.full(samples, math.log(law.u0)), math.log(level)
    log_d = np.full(samples, math.log(np.linalg.det(v0) / h0))
    t, variance, weight = np.zeros(samples), np.zeros(samples), np.ones(samples)
    ratio, noise = law.delta / (2.0 * law.k), 2.0 * law.k

    def pace(y: Array) -> Array:
        return 1.0 / (1.0 + ratio * np.exp(2.0 * y))

    def push(y: Array) -> Array:
        square = np.exp(2.0 * y)
        return ((law.alpha - 0.5 * law.delta) * square - law.mu - law.k) / (1.0 + ratio * square)

    def kick(y: Array, log_d: Array) -> Array:
        return 2.0 * np.exp(log_d - y) * (law.k + 0.25 * law.delta * np.exp(2.0 * y))

    while True:
        live = np.flatnonzero((t < horizon * (1.0 - 1e-9)) & (weight > 0.0))
        first, second = rng.standard_normal((2, samples))
        if not len(live):
            break
        old, d = y[live], log_d[live]
        g = pace(old)
        clock = np.minimum(step / noise, (horizon - t[live]) / g)
        moved = np.sqrt(noise * clock) * first[live]
        guess = np.minimum(old + push(old) * clock + moved, top + 10.0)
        new = old + 0.5 * (push(old) + push(guess)) * clock + moved
        crossed = np.exp(np.minimum(-2.0 * (top - old) * (top - new) / (noise * clock), 0.0))
        weight[live] *= np.where(new >= top, 0.0, 1.0 - crossed)
        new = np.minimum(new, top)
        passed = np.minimum(0.5 * (g + pace(new)) * clock, horizon - t[live])
        squares = 0.5 * (np.exp(2.0 * old) * g + np.exp(2.0 * new) * pace(new)) * clock
        following = (
            d + (law.alpha - 0.25 * law.delta) * squares - noise * passed
            + np.sqrt(noise * passed) * second[live]
        )  # fmt: skip
        rates = kick(old, d) * g + kick(new, following) * pace(new)
        variance[live] += 0.5 * rates * clock
        y[live], log_d[live] = new, following
        t[live] += passed
    return _Paths(np.exp(y), np.exp(log_d), np.maximum(variance, 1e-300), weight, beta)
