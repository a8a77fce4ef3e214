"""One step of the limit with a length of its own on each path, which shrinks where paths explode.

The clock asks how fast the superlinear terms change V, relative to V (`Limit.speed`), and takes
steps of about h / (1 + speed). log |V| then has bounded drift and noise, and an explosion takes
infinitely many steps. The lengths depend on the present alone, so time is exact.

With R a factor of V after the growth and decay of the step (`steps.flowed`), F_lin the linear noise
at R, G(R) dZ that of the blocks, and b the factor drift, a step of length dt is

    N  = (G(R) dZ + G(R + G(R) dZ) dZ - sum_i DG[G_i] dt) / 2,
    F' = R + F_lin + N + (b(R) + b(R + F_lin + N + b(R) dt)) dt / 2.

The second order of the noise, whose mean is the sum, is what the probability to reach a radius
needs: without it that of two tokens is wrong by 2 % at the default step (gamma = 0.6, tau_0 = 0.5).

A path crosses a barrier between steps more often than at their ends. Lowering the logarithm of the
radius by 0.5826 standard deviations of a step of log |V| corrects this to first order (Broadie,
Glasserman and Kou, Mathematical Finance 7, 1997; 0.5826 is -zeta(1/2) / sqrt(2 pi)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shaped_attention.blocks.base import Block, Limit
from shaped_attention.blocks.parameters import traced
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.primitives import M, Numbers, column_sums, row_squares, sqrt
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.samplers.steps import NumbersAt, Parts, explained, flowed, traced_numbers

SHIFT = 0.5826
"""Distance by which a barrier is moved, in standard deviations of a step."""

_PACE = 0.5
"""Weight of the speed in the length of a step.

At the default step the probability to reach a radius is then right within 1 % (measured); smaller
weights save no more time.
"""

NEAR = 0.25
"""Traces of V, in units of the radius, from which on the shift is computed."""

_TINY = 1e-300


def clock_speed(pattern: Sequence[Sequence[Block]], parameters: Any, factor: M) -> M:
    """Return the rate (1, 1) by which steps are shorter."""
    parts = Parts(pattern, parameters)
    speed = 0.0 * column_sums(row_squares(factor))
    for _, limit, p in parts.limits:
        part = limit.speed(p, factor)
        speed = speed if part is None else speed + (_PACE * parts.share) * part
    return speed


def norm_spread(pattern: Sequence[Sequence[Block]], parameters: Any, factor: M) -> M:
    """Return the variance rate (1, 1) of log |V|."""
    parts = Parts(pattern, parameters)
    v = factor @ factor.mT
    square = column_sums(row_squares(v))
    along = (2.0 * parts.rate) * column_sums(row_squares(v @ v))
    for _, limit, p in parts.limits:
        part = limit.noise_along(p, factor, v)
        along = along if part is None else along + parts.share * part
    return along / (square * square + _TINY)


def clock_step(
    pattern: Sequence[Sequence[Block]],
    parameters: Any,
    factor: M,
    step: M,
    numbers_at: NumbersAt,
) -> M:
    """Return the factor after a step of length `step` (1, 1); the numbers are standard normals."""
    parts = Parts(pattern, parameters)
    root = flowed([(limit, p) for _, limit, p in parts.limits], factor, parts.share * step)
    size = sqrt(step)
    moved = root + parts.linear_noise(root, numbers_at) * size
    for place, limit, p in parts.limits:
        numbers = _Reused(numbers_at(place))
        noise = _own_noise(limit, p, root, numbers, parts.share, size)
        if noise is None:
            continue
        mean = limit.noise_drift(p, root)
        if mean is not None:
            again = _own_noise(limit, p, root + noise, numbers, parts.share, size)
            assert again is not None
            noise = 0.5 * (noise + again) - (0.5 * parts.share) * (mean * step)
        moved = moved + noise
    drift = parts.drift(root)
    return moved + (0.5 * (drift + parts.drift(moved + drift * step))) * step


def _own_noise(
    limit: Limit, p: Any, factor: M, numbers: Numbers, share: float, size: M
) -> M | None:
    """Return the noise of a block in a step, the root of whose length is `size`."""
    noise = limit.factor_noise(p, factor, numbers)
    return None if noise is None else math.sqrt(share) * (noise * size)


class _Reused(Numbers):
    """Numbers of a block that may be drawn again in the same step, and are then the same."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._normals: dict[tuple[str, int], Any] = {}
        self._inside: dict[int, _Reused] = {}

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        if index not in self._inside:
            self._inside[index] = _Reused(self._numbers.inside(index))
        return self._inside[index]

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return standard normals."""
        key = (name, head)
        if key not in self._normals:
            self._normals[key] = self._numbers.normal(name, rows, columns, head)
        return self._normals[key]


def can_explode(pattern: Sequence[Sequence[Block]], tokens: int) -> bool:
    """Return whether a block of the layer has superlinear terms for that number of tokens."""
    graph = Graph()
    factor = graph.node("input", (), (tokens, tokens))
    return tokens > 1 and any(
        block.limit.speed(traced(block), factor) is not None
        for blocks in pattern
        for block in blocks
    )


def traced_clock(pattern: Sequence[Sequence[Block]], tokens: int) -> list[Program]:
    """Trace `clock_speed`, `clock_step` and `norm_spread`; the inputs are factor and length."""
    parameters = [[traced(block) for block in blocks] for blocks in pattern]

    def speed(factor: Matrix, step: Matrix) -> Matrix:
        return clock_speed(pattern, parameters, factor)

    def moved(factor: Matrix, step: Matrix) -> Matrix:
        numbers_at = traced_numbers(factor.graph, 1.0)
        return clock_step(pattern, parameters, factor, step, numbers_at)

    def spread(factor: Matrix, step: Matrix) -> Matrix:
        return norm_spread(pattern, parameters, factor)

    programs = []
    for function in (speed, moved, spread):
        graph = Graph()
        inputs = [graph.node("input", (), shape) for shape in ((tokens, tokens), (1, 1))]
        with explained([block for blocks in pattern for block in blocks]):
            programs.append(assemble(graph, inputs, [function(*inputs)]))
    return programs
