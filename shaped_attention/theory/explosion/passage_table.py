"""Table of passage probabilities of u, by finite differences in log u.

With the scale density s' = u^{1 + 2r} (2k + delta u^2)^{-a-r} in y = log u and the variance v = 2k
+ delta u^2, the generator is (v s' / 2) d/dy ((1 / s') d/dy). Differences of step h turn it into a
birth-death process with the rates v_i s'_i / (2 h^2 s'_{i +- 1/2}), as in the scheme of Chang and
Cooper (J. Comput. Phys. 6, 1970). They are positive at any h, the errors are even in h, and the
level absorbs. The exponential of the rates is a sum and a product of nonnegative matrices
(uniformisation, then repeated squaring), so that probabilities have a small relative error down to
1e-300.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, sparse

from shaped_attention.theory.explosion.scalar_law import ScalarLaw

_REACH = 36.0
"""Probabilities of reaching the bottom of the grid below exp(-36) are neglected."""

_TERMS = 24
"""Terms of the exponential of a step in which half a transition is expected."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PassageTable:
    """Table of h(t, u) = P(reach the level within t | u), with interpolation.

    The `action` -t log h (times, nodes), with nodes in log u and times from 0 on, is interpolated
    by cubic splines in t^(1/4) and log u. It tends to (X(u) - X(R))^2 / (4 k) as t -> 0, and is
    flat in log u below the nodes: `slope` is then that of the lowest one.
    """

    times: Array
    nodes: Array
    action: Array

    @cached_property
    def _spline(self) -> interpolate.RectBivariateSpline:
        return interpolate.RectBivariateSpline(self.times**0.25, self.nodes, self.action, s=0.0)

    def slope(self, t: Array, u: Array, order: int = 1) -> Array:
        """Return d log h / d log u at (t, u), elementwise; of order 0, log h itself."""
        t = np.clip(t, self.times[1], self.times[-1])
        y = np.clip(np.log(u), self.nodes[0], self.nodes[-1])
        return -self._spline.ev(t**0.25, y, dy=order) / t


def passage_table(
    law: ScalarLaw, horizon: float, level: float, *, cells: int = 600, times: int = 32
) -> PassageTable:
    """Compute h(t, u) for times up to a horizon and values u below a finite level.

    u_0 only decides how far down its `cells` in log u reach. The `times` are equal steps of the
    horizon, and the first of them halved again and again.
    """
    nodes, _ = _grid(law, horizon, level, cells)
    matrix, earlier = _Chain(law, nodes).propagator(horizon / times)
    columns = [matrix[:, -1]]
    for _ in range(times - 1):
        columns.append(matrix @ columns[-1])
    t = [step for step, _ in earlier] + [horizon * (i + 1) / times for i in range(times)]
    h = np.array([column for _, column in earlier] + columns)
    coordinates = np.array([law.coordinate(u) for u in np.exp(nodes)])
    shortest = (coordinates - coordinates[-1]) ** 2 / (4.0 * law.k)
    with np.errstate(divide="ignore"):
        action = -np.array(t)[:, None] * np.log(h)
    action = np.where(h > 1e-290, action, shortest)
    return PassageTable(np.array([0.0, *t]), nodes, np.vstack([shortest, action]))


def _grid(law: ScalarLaw, horizon: float, level: float, cells: int) -> tuple[Array, int]:
    """Return nodes log u, of which the last is the level, and the index of u_0."""
    below = 2.0 * math.sqrt(_REACH * law.k * horizon)
    gap = math.log(level / law.u0)
    above = max(1, round(cells * gap / (gap + below)))
    steps = np.arange(-cells, 1, dtype=np.float64)
    return math.log(level) + steps * (gap / above), cells - above


class _Chain:
    """Birth-death process on nodes log u, of which the last absorbs and the first reflects."""

    def __init__(self, law: ScalarLaw, nodes: Array) -> None:
        h = nodes[1] - nodes[0]
        variance, scale = _coefficients(law, nodes)
        middle = _coefficients(law, nodes[:-1] + 0.5 * h)[1]
        half = 0.5 * variance / h**2
        self.up = half[:-1] * np.exp(scale[:-1] - middle)
        self.down = half[1:-1] * np.exp(scale[1:-1] - middle[:-1])

    def propagator(self, time: float) -> tuple[Array, list[tuple[float, Array]]]:
        """Return transition probabilities, and those of absorption by the halved times."""
        total = self.up.copy()
        total[1:] += self.down
        fastest = float(total.max())
        squarings = max(0, math.ceil(math.log2(2.0 * fastest * time)))
        step = time / 2**squarings
        stay = np.append(fastest - total, fastest)
        down = np.append(self.down, 0.0)
        jumps = sparse.diags_array([down, stay, self.up], offsets=[-1, 0, 1]).tocsr() * step
        term = np.eye(len(stay)) * math.exp(-fastest * step)
        matrix = term.copy()
        for j in range(1, _TERMS):
            term = jumps @ term / j
            matrix += term
        earlier = []
        for _ in range(squarings):
            earlier.append((step, matrix[:, -1].copy()))
            matrix = matrix @ matrix
            _restore_sums(matrix)
            step *= 2.0
        return matrix, earlier


def _restore_sums(matrix: Array) -> None:
    """Set the probabilities to stay from those to leave, so that rounding does not grow with time.

    Otherwise the smallest steps, of which there are up to 10^10, would each lose a rounding error.
    """
    stay = matrix.diagonal().copy()
    np.fill_diagonal(matrix, 0.0)
    leave = matrix.sum(axis=1)
    np.fill_diagonal(matrix, np.where(leave < 0.5, 1.0 - leave, stay))


def _coefficients(law: ScalarLaw, nodes: Array) -> tuple[Array, Array]:
    """Return the variance of log u and the logarithm of the scale density."""
    variance = 2.0 * law.k + law.delta * np.exp(2.0 * nodes)
    power = (law.a if law.delta > 0.0 else 0.0) + law.r
    return variance, (1.0 + 2.0 * law.r) * nodes - power * np.log(variance)
