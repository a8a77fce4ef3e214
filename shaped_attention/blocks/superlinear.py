"""What the clock needs of a limit, derived from its drift and noise for any block.

Whether it has superlinear terms, so that paths can explode, how fast these change V, and the
moments of its noise. A block may describe them in closed form instead, which is faster.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.parameters import Parameters
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.growth import order
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    column_sums,
    constant,
    row_squares,
    row_sums,
    sqrt,
)
from shaped_attention.numerics.traced_numbers import TracedNumbers

_LINEAR = 1.0 + 1e-9
"""Largest order of growth in F that is not superlinear."""

_PROBES = 4
"""Number of sign patterns from which the size of the noise is estimated."""

_NOISE = 6.0
"""Weight of the variance of the noise: it needs shorter steps than a drift of that rate."""

_MOST_INCREMENTS = 64
"""Number of increments of a step up to which sums over all of them are formed."""

_TINY = 1e-300


class ClockTerms:
    """Speed and moments of the noise of a limit, derived from its drift and noise by default."""

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return the relative rate (1, 1) at which superlinear terms change V, or None.

        Steps of the clock are shorter by 1 + this rate. None is for coefficients that grow at most
        linearly with V: such a block does not make paths explode. By default the rate is that of
        all terms of the block, if some grow faster (`relative_speed`).
        """
        if not is_superlinear(self, p, *factor.shape[-2:]):
            return None
        return relative_speed(self, p, factor)

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return sum_i DG[G_i], G_i the factor noise of the i-th unit increment, or None.

        It is twice the difference of the drifts of Stratonovich and Ito, and the mean of the second
        order of the noise in a step, which the clock takes into account. None omits that order. By
        default it is computed for up to 64 increments.
        """
        units, limit = unit_increments(self, p, factor, _MOST_INCREMENTS), cast("Any", self)
        total: Any = None
        for unit in units or ():
            along = limit.factor_noise(p, factor, unit)
            part = limit.factor_noise(p, Dual(factor, (along,)), unit).tangents[0]
            total = part if total is None else total + part
        return total

    def noise_along(self, p: Parameters, factor: M, direction: M) -> M | None:
        """Return the variance rate 4 sum_i <D F, G_i>^2 of <D, dV>, or None.

        D (m, m) is a symmetric direction. The clock uses the rate where paths approach the radius.
        By default it is computed for up to 64 increments.
        """
        units, limit = unit_increments(self, p, factor, _MOST_INCREMENTS), cast("Any", self)
        if units is None:
            return None
        turned = direction @ factor
        total: Any = None
        for unit in units:
            kick = column_sums(row_sums(turned * limit.factor_noise(p, factor, unit)))
            total = kick * kick if total is None else total + kick * kick
        return 4.0 * total


def is_superlinear(limit: Any, p: Parameters, tokens: int, columns: int) -> bool:
    """Return whether drift or noise of V grow faster than V, for a factor (tokens, columns)."""
    graph = Graph()
    factor = graph.node("input", (), (tokens, columns))
    v = graph.node("input", (), (tokens, tokens))
    inputs = {id(factor.node): 1.0, id(v.node): 2.0}
    traced = p.as_scalars() if hasattr(p, "as_scalars") else p
    numbers = TracedNumbers(graph, (), 1.0)
    terms = (limit.factor_drift(traced, factor), limit.factor_noise(traced, factor, numbers))
    growth = limit.growth(traced, v)
    return any(x is not None and order(x, inputs) > _LINEAR for x in terms) or (
        growth is not None and order(growth, inputs) > 2.0 * _LINEAR
    )


def relative_speed(limit: Any, p: Parameters, factor: M) -> M:
    """Return ``2 |b_F| / |F| + |growth| / |V| + 6 E|G|^2 / |F|^2``, with G the noise of F.

    Norms are Frobenius norms. E|G|^2 is the mean over a few fixed patterns of signs in place of the
    increments, which has the right mean over all patterns.
    """
    square = column_sums(row_squares(factor)) + _TINY
    speed = 0.0 * square
    drift = limit.factor_drift(p, factor)
    if drift is not None:
        speed = speed + 2.0 * sqrt(column_sums(row_squares(drift)) / square)
    v = factor @ factor.mT
    growth = limit.growth(p, v)
    if growth is not None:
        size = column_sums(row_squares(v)) + _TINY
        speed = speed + sqrt(column_sums(row_squares(growth)) / size)
    for probe in range(_PROBES):
        noise = limit.factor_noise(p, factor, _Signs(factor, probe))
        if noise is None:
            break
        speed = speed + (_NOISE / _PROBES) * (column_sums(row_squares(noise)) / square)
    return speed


def unit_increments(
    limit: Any, p: Parameters, factor: M, most: int | None = None, like: Any = None
) -> list[Numbers] | None:
    """Return the unit increments of the noise; None without noise, or if they are too many.

    They have the type and the batch of `like`, by default of the factor.
    """
    like = factor if like is None else like
    count = _Fixed(like, None)
    if limit.factor_noise(p, factor, count) is None or (most and count.taken > most):
        return None
    return [_Fixed(like, unit) for unit in np.eye(count.taken)]


class _Fixed(Numbers):
    """Given increments in the order in which they are drawn, or zeros that are counted."""

    def __init__(self, like: Any, increments: NDArray[np.float64] | None) -> None:
        self._like, self._increments, self.taken = like, increments, 0

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return the next increments."""
        start, self.taken = self.taken, self.taken + rows * columns
        if self._increments is None:
            return constant(np.zeros((rows, columns)), like=self._like)
        here = self._increments[start : self.taken].reshape(rows, columns)
        if self.taken >= len(self._increments):
            self.taken = 0
        return constant(here, like=self._like)


class _Signs(Numbers):
    """Fixed signs in place of increments."""

    def __init__(self, like: Any, probe: int) -> None:
        self._like, self._generator = like, np.random.default_rng(probe)

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return signs."""
        return constant(self._generator.choice([-1.0, 1.0], (rows, columns)), like=self._like)
