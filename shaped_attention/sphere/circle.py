"""Tokens on the circle: angles, and the 2-Wasserstein distance for the arc length.

For d = 2 a token is x = (cos a, sin a), and the flow of `SphereAttention` is

    da_i/dt = -(1 / Z_i) sum_j exp(beta cos(a_i - a_j)) sin(a_i - a_j).

At beta = 0 it is Kuramoto's model of identical oscillators (Geshkovski et al., arXiv 2312.10794,
section 7). With quantile functions F^-1, G^-1 that increase by 2 pi with each turn,

    W2^2 = min over alpha of int_0^1 (F^-1(q + alpha) - G^-1(q))^2 dq,

and the integral is convex in alpha (Delon, Salomon and Sobolevski, SIAM J. Appl. Math. 70, 2010).
For N points F^-1 has steps at i/N, and the derivative in alpha is the sum over them of
(x_i - x_{i-1}) (x_i + x_{i-1} - 2 G^-1(i/N - alpha)), which never decreases. Its zero is found by
bisection in [-1, 1]: outside this interval one function is above the other everywhere.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.checks import argument_error, real_array
from shaped_attention.sphere.array_arguments import also_of_arrays
from shaped_attention.sphere.mean_field import cell_averages

Array = NDArray[np.float64]
T = TypeVar("T", np.float64, np.int64)

_TURN = 2.0 * math.pi
_HALVINGS = 50


@also_of_arrays("tokens")
def angles_of(tokens: Float[Tensor, "*B N 2"]) -> Float[Tensor, "*B N"]:
    """Return the angles in (-pi, pi] of tokens (..., N, 2) on the unit circle.

    Accepts a tensor or an array and returns the same kind.

    Raises
    ------
    ValueError
        If the tokens do not have two coordinates.
    """
    if tokens.ndim < 2 or tokens.shape[-1] != 2:
        raise argument_error("tokens", "of shape (..., N, 2)", tuple(tokens.shape))
    return torch.atan2(tokens[..., 1], tokens[..., 0])


@also_of_arrays("angles")
def tokens_of(angles: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N 2"]:
    """Return the tokens (cos a, sin a) (..., N, 2) of angles (..., N).

    Accepts a tensor or an array and returns the same kind.
    """
    return torch.stack([torch.cos(angles), torch.sin(angles)], dim=-1)


def circle_wasserstein2(
    first: ArrayLike, second: ArrayLike | None = None, *, density: ArrayLike | None = None
) -> Array:
    """Return W2 on the circle between N equally weighted points and M others, or a density.

    The distance between points is exact to rounding; the squared distance from a density is
    accurate to 1e-12.

    Parameters
    ----------
    first, second
        Angles (..., N) and (..., M); leading dimensions are broadcast.
    density
        Instead of `second`: averages (cells,) over equal cells of [-pi, pi), such as those of
        `mean_field`. Their mass must be 1 to within 1e-6 and is normalised. The density is taken to
        be constant in each cell.

    Returns
    -------
    The distances (...), at most pi.

    Raises
    ------
    ValueError
        If there are no points, angles are NaN or infinite, the density is invalid, or not exactly
        one of `second` and `density` is given.
    """
    if second is None and density is not None:
        return _from_density(first, density)
    if second is None or density is not None:
        raise ValueError("exactly one of second and density must be given")
    x, y = _sorted_angles(first, "first"), _sorted_angles(second, "second")
    shape = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    count, other = x.shape[-1], y.shape[-1]
    x = np.broadcast_to(x, (*shape, count)).reshape(-1, count)
    y = np.broadcast_to(y, (*shape, other)).reshape(-1, other)
    # All steps are at integer multiples of 1 / parts, and so is the best alpha.
    parts = math.lcm(count, other)
    each, every = parts // count, parts // other
    before = np.concatenate([x[:, -1:] - _TURN, x[:, :-1]], axis=1)
    steps = np.arange(count) * each
    low = np.full((len(x), 1), -parts)
    high = np.full((len(x), 1), parts)
    while (low < high).any():
        middle = (low + high) // 2
        # G^-1 half a part before the step gives the derivative just after alpha = middle.
        opposite = _lifted(y, (steps - middle - 1) // every)
        slope = ((x - before) * (x + before - 2.0 * opposite)).sum(-1, keepdims=True)
        high = np.where(slope >= 0.0, middle, high)
        low = np.where(slope >= 0.0, low, np.minimum(middle + 1, high))
    at = _merged(np.arange(other + 1) * every, (steps - high) % parts)
    starts, widths = at[:, :-1], np.diff(at, axis=1) / parts
    apart = _lifted(x, (starts + high) // each) - _lifted(y, starts // every)
    return np.sqrt((widths * apart**2).sum(-1)).reshape(shape)


def _from_density(angles: ArrayLike, density: ArrayLike) -> Array:
    # The angles are in [0, 2 pi), those of the density in [-pi, pi): shift by half a turn.
    x = _sorted_angles(real_array(angles, "first") + math.pi, "first")
    mass = cell_averages(cell_averages(density, 0), 0, rescale=True)
    shape, count = x.shape[:-1], x.shape[-1]
    x = x.reshape(-1, count)
    width = _TURN / len(mass)
    mass = mass * width
    below = np.concatenate([[0.0], np.cumsum(mass)])
    below /= below[-1]
    edges = width * np.arange(len(mass) + 1)

    def quantile(q: Array) -> Array:
        turns = np.floor(q)
        return np.interp(q - turns, below, edges) + _TURN * turns

    before = np.concatenate([x[:, -1:] - _TURN, x[:, :-1]], axis=1)
    steps = np.arange(count) / count
    low, high = np.full((len(x), 1), -1.0), np.full((len(x), 1), 1.0)
    for _ in range(_HALVINGS):
        alpha = 0.5 * (low + high)
        apart = x + before - 2.0 * quantile(steps - alpha)
        rising = ((x - before) * apart).sum(-1, keepdims=True) >= 0.0
        low, high = np.where(rising, low, alpha), np.where(rising, alpha, high)
    alpha = 0.5 * (low + high)
    at = _merged(below, (steps - alpha) % 1.0)
    widths, middle = np.diff(at, axis=1), 0.5 * (at[:, :-1] + at[:, 1:])
    cell = np.clip(np.searchsorted(below, middle, side="right") - 1, 0, len(mass) - 1)
    # G^-1 is linear on a piece: add the square at its middle and the variance within it.
    share = np.divide(widths, mass[cell], out=np.zeros_like(widths), where=mass[cell] > 0.0)
    place = np.floor((middle + alpha) * count).astype(np.int64)
    apart = _lifted(x, place) - quantile(middle)
    total = widths * (apart**2 + (width * share) ** 2 / 12.0)
    return np.sqrt(total.sum(-1)).reshape(shape)


def _merged(fixed: NDArray[T], steps: NDArray[T]) -> NDArray[T]:
    """Return the ends (B, K) of the pieces on which both quantile functions are smooth."""
    return np.sort(np.concatenate([np.broadcast_to(fixed, (len(steps), len(fixed))), steps], 1), 1)


def _lifted(x: Float[np.ndarray, "B N"], place: Int[np.ndarray, "B K"]) -> Float[np.ndarray, "B K"]:
    """Return the sorted angles at integer indices; each N further adds a turn."""
    turns, within = np.divmod(place, x.shape[-1])
    return np.take_along_axis(x, within, axis=1) + _TURN * turns


def _sorted_angles(angles: ArrayLike, name: str) -> Array:
    array = real_array(angles, name)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise argument_error(name, "of shape (..., N) with at least one angle", array.shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; it has NaN or infinite entries")
    return np.sort(array % _TURN, axis=-1)
