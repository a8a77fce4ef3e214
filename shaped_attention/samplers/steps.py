"""One step of a layer, of the exact chain and of the limit, from the descriptions of its blocks.

Both are written in the primitives of descriptions. Torch runs them as they are; `traced_chain` and
`traced_limit` turn them into programs for compiled code.

The step of the limit with length h moves a factor F, V = F F^T. V is therefore positive
semidefinite by construction, even if singular, and nothing larger than m x m is formed:

1. the part of the drift that raises the rank of V is applied first,
   V' = exp(-d h) V + (1 - exp(-d h)) / d `growth`, and R is a triangular factor of V' (R = F if no
   block has such a part);
2. F' = R + h b_F(R) + R (sqrt(k) / 2) dZ_1 + (the blocks' further noise at R).

For torchsde this is an Euler step with the drift (R - F) / h + b_F(R) and the noise at R, both
functions of F and h. The splitting changes neither the weak order 1 nor the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.parameters import traced
from shaped_attention.blocks.state import State
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.primitives import M, Numbers, cholesky, sqrt, symmetric_noise
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.numerics.scalars import exponential, mean_decay
from shaped_attention.numerics.traced_numbers import TracedNumbers

COMMON: tuple[int, ...] = ()
"""Place of the noise common to all blocks; block i has the place (i,)."""

NumbersAt = Callable[[tuple[int, ...]], Numbers]


def chain_step(
    blocks: Sequence[Block],
    parameters: Sequence[Any],
    state: State,
    numbers_at: NumbersAt,
    width: int,
) -> State:
    """Take the state of layer l to that of layer l + 1."""
    for i, (block, p) in enumerate(zip(blocks, parameters, strict=True)):
        state = block.step(p, state, numbers_at((i,)), width)
    return state


def limit_step(
    pattern: Sequence[Sequence[Block]],
    parameters: Sequence[Sequence[Any]],
    factor: M,
    numbers_at: NumbersAt,
    step: float,
) -> tuple[M, M]:
    """Return drift times step, and noise, of the factor of V.

    The layers of a pattern share the time: each of K layers has weight 1 / K.
    """
    share = 1.0 / len(pattern)
    parts = [
        ((k, i) if len(pattern) > 1 else (i,), block.limit, parameters[k][i])
        for k, blocks in enumerate(pattern)
        for i, block in enumerate(blocks)
    ]
    root = flowed([(limit, p) for _, limit, p in parts], factor, share * step)
    c = root.shape[-1]
    rate = share * sum(limit.linear_rate(p) for _, limit, p in parts)
    increments = numbers_at(COMMON).normal("linear", 1, c * (c + 1) // 2)
    noise = root @ ((0.5 * sqrt(rate)) * symmetric_noise(increments, c))
    drift = (-step * (c + 1) / 8.0 * rate) * root
    if root is not factor:
        drift = drift + (root - factor)
    for place, limit, p in parts:
        part = limit.factor_drift(p, root)
        drift = drift if part is None else drift + (share * step) * part
        part = limit.factor_noise(p, root, numbers_at(place))
        if part is not None:
            noise = noise + (part if share == 1.0 else math.sqrt(share) * part)
    return drift, noise


def flowed(pairs: Sequence[tuple[Any, Any]], factor: M, step: float) -> M:
    """Apply growth and decay of V; return `factor` itself if there is neither."""
    v = factor @ factor.mT
    parts = [limit.growth(p, v) for limit, p in pairs]
    parts = [part for part in parts if part is not None]
    decays = [limit.decay(p) for limit, p in pairs]
    decay = sum(decays)
    if not parts:
        constant = all(isinstance(rate, float | int) for rate in decays)
        return factor if constant and decay == 0.0 else exponential(-0.5 * step * decay) * factor
    new = exponential(-step * decay) * v
    for part in parts:
        new = new + mean_decay(decay, step) * part
    return cholesky(new)


@contextmanager
def _explained(blocks: Sequence[Block]) -> Iterator[None]:
    """Raise ValueError for a description that uses anything but the primitives."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        names = ", ".join(dict.fromkeys(type(block).__name__ for block in blocks))
        raise ValueError(
            f"layer contains {names}, whose description cannot be traced into a program "
            f"({type(error).__name__}: {error}); it may use arithmetic on matrices and what "
            "shaped_attention.numerics.primitives lists, and `with sa.eager():` steps through it "
            "in torch"
        ) from error


def traced_chain(
    pattern: Sequence[Sequence[Block]], tokens: int, width: int, groups: int
) -> list[Program]:
    """Trace the step of each layer of a pattern, for the Grams of `groups` groups of columns.

    Factors are lower triangular if all layers preserve this: their zeros are then skipped.
    """
    columns = min(tokens, width // groups)
    for lower in (columns == tokens, False):
        traces = [
            _traced_layer(blocks, tokens, columns, width, groups, lower) for blocks in pattern
        ]
        if all(x.node.lower for _, _, outputs in traces for x in outputs):
            break
    return [assemble(*trace) for trace in traces]


def _traced_layer(
    blocks: Sequence[Block], tokens: int, columns: int, width: int, groups: int, lower: bool
) -> tuple[Graph, list[Matrix], list[Matrix]]:
    """Return the trace of a layer's step, its inputs and its outputs."""
    graph = Graph()
    inputs = [graph.node("input", (), (tokens, columns), lower=lower) for _ in range(groups)]
    parameters = [traced(block) for block in blocks]
    with _explained(blocks):
        numbers_at = _traced_numbers(graph, None)
        state = chain_step(blocks, parameters, State(tuple(inputs)), numbers_at, width)
    return graph, inputs, list(state.factors)


def _traced_numbers(graph: Graph, increments: float | None) -> NumbersAt:
    places: dict[tuple[int, ...], Numbers] = {}

    def numbers_at(place: tuple[int, ...]) -> Numbers:
        return places.setdefault(place, TracedNumbers(graph, place, increments))

    return numbers_at


def traced_limit(pattern: Sequence[Sequence[Block]], tokens: int, step: float) -> Program:
    """Trace the step of the limit; its outputs are drift times step, and noise."""
    graph = Graph()
    factor = graph.node("input", (), (tokens, tokens))
    numbers_at = _traced_numbers(graph, math.sqrt(step))
    parameters = [[traced(block) for block in blocks] for blocks in pattern]
    with _explained([block for blocks in pattern for block in blocks]):
        outputs = limit_step(pattern, parameters, factor, numbers_at, step)
    return assemble(graph, [factor], outputs)
