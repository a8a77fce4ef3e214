"""One step of the limit with a length of its own on each path, which shrinks where paths explode.

The clock asks how fast the superlinear terms change V, relative to V (`Limit.speed`), and takes
steps of about h / (1 + speed). log |V| then has bounded drift and noise, and an explosion takes
infinitely many steps. The lengths depend only on the present, so time is exact.

Growth and decay (`steps.flowed`) act for half a step before and after the rest (Strang). With
R the factor between them, b the factor drift and G(R) dZ the noise at R, linear and of the blocks,
the rest of a step of length dt is

    D  = G(R) dZ + b(R) dt,
    R' = R + N,  N = G dZ + DG[D] dZ / 2 - (dt / 2) sum_i DG_i[G_i] + D^2 G[G dZ, G dZ] dZ / 12,
    F' = R' + (b(R) + b(R' + b(R) dt)) dt / 2.

The mean of N is zero, and one scalar noise has the right moments to order dt^2 (weak order 2:
Kloeden and Platen, *Numerical Solution of Stochastic Differential Equations*, chapter 14). For
several the symmetric part of the iterated integrals is right, as for commuting noise. Probabilities
to reach a radius need this: with Euler's noise they are wrong by several per cent.

A path crosses a barrier between steps more often than at their ends. Lowering the logarithm of the
radius by 0.5826 standard deviations of a step of log |V| corrects this to first order (Broadie,
Glasserman and Kou, Mathematical Finance 7, 1997; 0.5826 is -zeta(1/2) / sqrt(2 pi)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Parameters, traced
from shaped_attention.blocks.reasons import limit_of
from shaped_attention.numerics.forward import pushed
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.named_numbers import DrawnOnce
from shaped_attention.numerics.primitives import M, Numbers, column_sums, row_squares, sqrt
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.samplers.steps import NumbersAt, Parts, explained, flowed, traced_numbers

_PACE = 0.2
"""Weight of the speed in the length of a step.

At the default step the probability to reach a radius is then right within 1 % (measured against the
exact law at gamma from 0.35 to 0.8).
"""

_TINY = 1e-300


def clock_speed(parts: Parts, factor: M) -> M:
    """Return the rate (1, 1) by which steps are shorter."""
    speed = 0.0 * column_sums(row_squares(factor))
    for _, limit, p in parts.limits:
        part = limit.speed(p, factor)
        speed = speed if part is None else speed + (_PACE * parts.share) * part
    return speed


def norm_spread(parts: Parts, factor: M) -> M:
    """Return the variance rate (1, 1) of log |V|."""
    v = factor @ factor.mT
    square = column_sums(row_squares(v))
    along = (2.0 * parts.rate) * column_sums(row_squares(v @ v))
    for _, limit, p in parts.limits:
        part = limit.noise_along(p, factor, v)
        along = along if part is None else along + parts.share * part
    return along / (square * square + _TINY)


def clock_step(parts: Parts, factor: M, step: M, numbers_at: NumbersAt) -> M:
    """Return the factor after a step of length `step` (1, 1); the numbers are standard normals."""
    pairs = [(limit, p) for _, limit, p in parts.limits]
    half = (0.5 * parts.share) * step
    root = flowed(pairs, factor, half, order=2)
    size = sqrt(step)
    # The numbers of a place may be drawn several times.
    numbers = cache(lambda place: DrawnOnce(numbers_at(place)))
    drift = parts.drift(root)
    noise = parts.noise(root, numbers) * size
    moved = noise + drift * step
    # The linear noise is linear in the factor, so its second order needs no derivative.
    mean = ((root.shape[-1] + 1) / 8.0 * parts.rate) * (root * step)
    change = parts.linear_noise(root + 0.5 * moved, numbers) * size - mean
    for place, limit, p in parts.limits:
        part = _second_order(limit, p, root, noise, moved, numbers(place), size, parts.share)
        if part is not None:
            change = change + part
    new = root + change
    new = new + (0.5 * (drift + parts.drift(new + drift * step))) * step
    return flowed(pairs, new, half, order=2)


def _second_order(
    limit: Limit, p: Parameters, root: M, noise: M, moved: M, numbers: Numbers, size: M,
    share: float,
) -> M | None:  # fmt: skip
    """Return the noise of a block in a step of length size^2, to second order if it has a mean."""
    weight = math.sqrt(share)
    mean = limit.noise_drift(p, root)
    if mean is None:
        first = limit.factor_noise(p, root, numbers)
        return None if first is None else weight * (first * size)
    first, along = pushed(lambda x: limit.factor_noise(p, x, numbers), root, moved)
    ahead = limit.factor_noise(p, root + noise, numbers)
    behind = limit.factor_noise(p, root - noise, numbers)
    assert ahead is not None
    assert behind is not None
    odd = (5.0 / 6.0) * first + (1.0 / 12.0) * (ahead + behind)
    return weight * ((odd + 0.5 * along) * size) - (0.5 * share) * (mean * (size * size))


def can_explode(blocks: Sequence[Block], tokens: int) -> bool:
    """Return whether a block of the layer has superlinear terms for that number of tokens."""
    factor = Graph().node("input", (), (tokens, tokens))
    return any(limit_of(block).speed(traced(block), factor) is not None for block in blocks)


def first_order(blocks: Sequence[Block], tokens: int) -> list[Block]:
    """Return the blocks that have noise of the factor, but not the second order of that noise."""
    graph = Graph()
    factor = graph.node("input", (), (tokens, tokens))
    numbers = traced_numbers(graph, 1.0)(())
    return [
        block
        for block in blocks
        if limit_of(block).noise_drift(traced(block), factor) is None
        and limit_of(block).factor_noise(traced(block), factor, numbers) is not None
    ]


T = TypeVar("T")


class ByClock(NamedTuple, Generic[T]):
    """What the clock computes: the speed, a step, and the variance rate of log |V|."""

    speed: T
    step: T
    spread: T


def traced_clock(pattern: Sequence[Sequence[Block]], tokens: int) -> ByClock[Program]:
    """Trace `clock_speed`, `clock_step` and `norm_spread`; the inputs are factor and length."""
    parameters = [[traced(block) for block in blocks] for blocks in pattern]

    def moved(parts: Parts, factor: Matrix, step: Matrix) -> Matrix:
        return clock_step(parts, factor, step, traced_numbers(factor.graph, 1.0))

    functions: list[Callable[[Parts, Matrix, Matrix], Matrix]] = [
        lambda parts, factor, _: clock_speed(parts, factor), moved,
        lambda parts, factor, _: norm_spread(parts, factor),
    ]  # fmt: skip
    programs = []
    for function in functions:
        graph = Graph()
        inputs = [graph.node("input", (), shape) for shape in ((tokens, tokens), (1, 1))]
        with explained([block for blocks in pattern for block in blocks]):
            parts = Parts.of(pattern, parameters)
            programs.append(assemble(graph, inputs, [function(parts, *inputs)]))
    return ByClock(*programs)
