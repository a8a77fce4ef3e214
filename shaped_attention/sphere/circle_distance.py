"""The 2-Wasserstein distance on the circle for the arc length.

With quantile functions F^-1, G^-1 that increase by 2 pi with each turn,

    W2^2 = min over alpha of int_0^1 (F^-1(q + alpha) - G^-1(q))^2 dq,

and the integral is convex in alpha (Delon, Salomon and Sobolevski, SIAM J. Appl. Math. 70, 2010).
For N points F^-1 has steps at i/N, and the derivative in alpha is the sum over them of
(x_i - x_{i-1}) (x_i + x_{i-1} - 2 G^-1(i/N - alpha)), which never decreases. Its zero is found by
bisection in [-1, 1]: outside this interval one function is above the other everywhere.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import real_array
from shaped_attention.sphere.mean_field import cell_averages

_TURN = 2.0 * math.pi
_HALVINGS = 50


def circle_wasserstein2(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """Return W2 on the circle between N and M equally weighted points, exact to rounding.

    Parameters
    ----------
    first, second
        Angles (..., N) and (..., M); leading dimensions are broadcast.

    Returns
    -------
    The distances (...), at most pi.

    Raises
    ------
    ValueError
        If there are no points, or angles are NaN or infinite.
    """
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
    ends = [
        np.broadcast_to(np.arange(other + 1) * every, (len(x), other + 1)),
        (steps - high) % parts,
    ]
    at = np.sort(np.concatenate(ends, axis=1), axis=1)
    starts, widths = at[:, :-1], np.diff(at, axis=1) / parts
    apart = _lifted(x, (starts + high) // each) - _lifted(y, starts // every)
    return np.sqrt((widths * apart**2).sum(-1)).reshape(shape)


def circle_distance_to_density(angles: ArrayLike, density: ArrayLike) -> NDArray[np.float64]:
    """Return W2 on the circle between N equally weighted points and a density.

    The square of W2 is accurate to 1e-12.

    Parameters
    ----------
    angles
        Points (..., N).
    density
        Averages (cells,) over equal cells of [-pi, pi), such as those of `mean_field`. The mass
        must be 1 to 1e-6 and is normalised. The density is taken to be constant in each cell.

    Raises
    ------
    ValueError
        If there are no points, angles are NaN or infinite, or the density is invalid.
    """
    # The angles are in [0, 2 pi), those of the density in [-pi, pi): shift by half a turn.
    x = _sorted_angles(real_array(angles, "angles") + math.pi, "angles")
    mass = cell_averages(cell_averages(density, 0), 0, rescale=True)
    shape, count = x.shape[:-1], x.shape[-1]
    x = x.reshape(-1, count)
    width = _TURN / len(mass)
    mass = mass * width
    below = np.concatenate([[0.0], np.cumsum(mass)])
    below /= below[-1]
    edges = width * np.arange(len(mass) + 1)

    def quantile(q: NDArray[np.float64]) -> NDArray[np.float64]:
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
    ends = [np.broadcast_to(below, (len(x), len(below))), (steps - alpha) % 1.0]
    at = np.sort(np.concatenate(ends, axis=1), axis=1)
    widths, middle = np.diff(at, axis=1), 0.5 * (at[:, :-1] + at[:, 1:])
    cell = np.clip(np.searchsorted(below, middle, side="right") - 1, 0, len(mass) - 1)
    # G^-1 is linear on a piece: add the square at its middle and the variance within it.
    share = np.divide(widths, mass[cell], out=np.zeros_like(widths), where=mass[cell] > 0.0)
    place = np.floor((middle + alpha) * count).astype(np.int64)
    apart = _lifted(x, place) - quantile(middle)
    total = widths * (apart**2 + (width * share) ** 2 / 12.0)
    return np.sqrt(total.sum(-1)).reshape(shape)


def _lifted(x: Float[np.ndarray, "B N"], place: Int[np.ndarray, "B K"]) -> Float[np.ndarray, "B K"]:
    """Return the sorted angles at integer indices; each N further adds a turn."""
    turns, within = np.divmod(place, x.shape[-1])
    return np.take_along_axis(x, within, axis=1) + _TURN * turns


def _sorted_angles(angles: ArrayLike, name: str) -> NDArray[np.float64]:
    array = real_array(angles, name)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"{name} has shape {array.shape}; (..., N) with at least one is needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite entries; finite angles are needed")
    return np.sort(array % _TURN, axis=-1)
