"""Passage probabilities of u by finite differences in log u: an oracle of the exact law.

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

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shaped_attention.theory.explosion.scalar_law import ScalarLaw

_REACH = 36.0
"""Probabilities of reaching the bottom of the grid below exp(-36) are neglected."""

_TERMS = 24
"""Terms of the exponential of a step in which half a transition is expected."""

Array = NDArray[np.float64]


def grid_of(law: ScalarLaw, horizon: float, level: float, cells: int) -> tuple[Array, int]:
    """Return nodes log u, of which the last is the level, and the index of u_0."""
    below = 2.0 * math.sqrt(_REACH * law.k * horizon)
    gap = math.log(level / law.u0)
    above = max(1, round(cells * gap / (gap + below)))
    steps = np.arange(-cells, 1, dtype=np.float64)
    return math.log(level) + steps * (gap / above), cells - above


class Chain:
    """Birth-death process on nodes log u, of which the last absorbs and the first reflects."""

    def __init__(self, law: ScalarLaw, nodes: Array) -> None:
        h = nodes[1] - nodes[0]
        variance, scale = _coefficients(law, nodes)
        middle = _coefficients(law, nodes[:-1] + 0.5 * h)[1]
        half = 0.5 * variance / h**2
        self.up = half[:-1] * np.exp(scale[:-1] - middle)
        self.down = half[1:-1] * np.exp(scale[1:-1] - middle[:-1])

    def propagator(self, time: float) -> Array:
        """Return the transition probabilities."""
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
        for _ in range(squarings):
            matrix = matrix @ matrix
            _restore_sums(matrix)
        return matrix


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
