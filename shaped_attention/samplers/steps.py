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
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shaped_attention.blocks.base import Block, needs_means
from shaped_attention.blocks.parameters import Parameters, traced
from shaped_attention.blocks.reasons import limit_of
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.mover import table_of
from shaped_attention.numerics.named_numbers import TracedNumbers
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    cholesky,
    exp,
    sqrt,
    symmetric_noise,
    tanh,
    unit_rows,
)
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.numerics.scalars import mean_decay
from shaped_attention.rows.step import State, factor_columns, seen_weights

if TYPE_CHECKING:
    from shaped_attention.blocks.limit import Limit

_TINY = 1e-300

NumbersAt = Callable[[tuple[int, ...]], Numbers]


def chain_step(
    blocks: Sequence[Block],
    parameters: Sequence[Parameters],
    state: State,
    numbers_at: NumbersAt,
    width: int,
) -> State:
    """Take the state of layer l to that of layer l + 1.

    Raise ValueError if a block omits the means of the tokens from a state that has them.
    """
    for i, (block, p) in enumerate(zip(blocks, parameters, strict=True)):
        new = block.step(p, state, numbers_at((i,)), width)
        if new.means != state.means:
            raise ValueError(
                f"layer contains {block!r}, whose step does not keep the means of the tokens, "
                "which LayerNorm subtracts; state._replace(factors=...) keeps them"
            )
        state = new
    return state


def limit_step(parts: Parts, factor: M, numbers_at: NumbersAt, step: float) -> tuple[M, M]:
    """Return drift times step, and noise, of the factor of V.

    The layers of a pattern share the time: each of K layers has weight 1 / K.
    """
    root = parts.moved(flowed(parts.flows, factor, parts.share * step), numbers_at, step)
    noise = parts.noise(root, numbers_at)
    drift = step * parts.drift(root)
    if root is not factor:
        drift = drift + (root - factor)
    if parts.normalised:
        # The step ends on the unit sphere; what the division changes counts as drift.
        drift = unit_rows(factor + drift + noise) - factor - noise
    return drift, noise


class Parts:
    """The limits of the blocks of a pattern, whose drifts and noises add up.

    `limits` are place, limit and parameters of each block, `share` the weight 1 / K of a layer of
    the pattern, and `rate` the linear rate k of the whole layer. If it is `normalised`, the rows of
    the factor are divided by their lengths after a step. What grows and decays, `flows`, is for
    `flowed`.
    """

    def __init__(
        self, limits: Sequence[tuple[tuple[int, ...], Limit, Parameters]], share: float
    ) -> None:
        self.limits, self.share = limits, share
        self.rate = self.share * sum(limit.linear_rate(p) for _, limit, p in self.limits)
        self.normalised = any(limit.normalised for _, limit, _ in self.limits)
        self.flows: list[tuple[Limit, Parameters]] = [(limit, p) for _, limit, p in self.limits]
        if any(limit.norm is not None and limit.norm.relaxes for limit, _ in self.flows):
            from shaped_attention.blocks.normalised_limit import Relaxation

            self.flows.append((Relaxation(self.flows[:]), self.flows[0][1]))

    @classmethod
    def of(
        cls, pattern: Sequence[Sequence[Block]], parameters: Sequence[Sequence[Parameters]]
    ) -> Parts:
        """Return the limits of the blocks of a pattern."""
        limits = [
            ((k, i) if len(pattern) > 1 else (i,), limit_of(block), parameters[k][i])
            for k, blocks in enumerate(pattern)
            for i, block in enumerate(blocks)
        ]
        return cls(limits, 1.0 / len(pattern))

    def drift(self, root: M) -> M:
        """Return the drift of the factor, without growth and decay."""
        drift = (-(root.shape[-1] + 1) / 8.0 * self.rate) * root
        for _, limit, p in self.limits:
            part = limit.factor_drift(p, root)
            drift = drift if part is None else drift + self.share * part
        return drift

    def moved(self, root: M, numbers_at: NumbersAt, step: float) -> M:
        """Take a step of the branches that end in a norm, one after the other."""
        for place, limit, p in self.limits:
            norm = limit.norm
            of_branch = None if norm is None else norm.branch(p)
            if norm is not None and of_branch is not None:
                branch = Parts([((0,), of_branch[0], of_branch[1])], 1.0)
                begin = flowed(branch.flows, root, self.share * step)
                noise = branch.noise(begin, _inner_numbers(numbers_at(place)))
                end = begin + (self.share * step) * branch.drift(begin)
                root = norm.moved(p, root, unit_rows(end + math.sqrt(self.share) * noise))
        return root

    def linear_noise(self, root: M, numbers_at: NumbersAt) -> M:
        """Return the noise common to all blocks, whose place is (); block i has the place (i,)."""
        c = root.shape[-1]
        increments = numbers_at(()).normal("linear", 1, c * (c + 1) // 2)
        return root @ ((0.5 * sqrt(self.rate)) * symmetric_noise(increments, c))

    def noise(self, root: M, numbers_at: NumbersAt) -> M:
        """Return the noise of the factor, for the increments that `numbers_at` provides."""
        noise = self.linear_noise(root, numbers_at)
        for place, limit, p in self.limits:
            part = limit.factor_noise(p, root, numbers_at(place))
            if part is not None:
                noise = noise + (part if self.share == 1.0 else math.sqrt(self.share) * part)
        return noise


def _inner_numbers(numbers: Numbers) -> NumbersAt:
    """Return the numbers of the places of a branch."""
    return lambda place: numbers.inside(place[0] if place else 1)


def flowed(
    pairs: Sequence[tuple[Limit, Parameters]], factor: M, step: float | M, order: int = 1
) -> M:
    """Apply growth and decay of V; return `factor` itself if there is neither.

    `step` is a number, or a matrix (1, 1) if each path has a step of its own. The growth is that at
    the start, or of order 2 the mean of start and end.
    """
    v = factor @ factor.mT
    growth = _growth(pairs, v)
    decays = [limit.decay(p) for limit, p in pairs]
    decay = sum(decays)
    if growth is None:
        constant = all(isinstance(rate, float | int) for rate in decays)
        return factor if constant and decay == 0.0 else _decayed(0.5 * decay, step)[0] * factor
    factor_of_v, factor_of_growth = _decayed(decay, step)
    kept = factor_of_v * v
    if order == 2:
        after = _growth(pairs, kept + factor_of_growth * growth)
        assert after is not None
        growth = 0.5 * (growth + after)
    return cholesky(kept + factor_of_growth * growth)


def _growth(pairs: Sequence[tuple[Limit, Parameters]], v: M) -> M | None:
    """Return the sum of the parts of the drift that raise the rank; None if there are none."""
    parts = [part for limit, p in pairs if (part := limit.growth(p, v)) is not None]
    return sum(parts[1:], start=parts[0]) if parts else None


def _decayed(decay: Any, step: Any) -> tuple[Any, Any]:
    """Return exp(-decay step), and its integral over the step."""
    if not isinstance(step, Matrix | Tensor):
        return exp(-step * decay), mean_decay(decay, step)
    if isinstance(decay, float | int) and decay == 0.0:
        return 1.0, step
    # 1 - e = tanh(x / 2) (1 + e) keeps its digits for small x = decay step.
    remaining = exp((-decay) * step)
    safe = decay + _TINY
    return remaining, (1.0 / safe) * (tanh((0.5 * safe) * step) * (1.0 + remaining))


@contextmanager
def explained(blocks: Sequence[Block]) -> Iterator[None]:
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
    pattern: Sequence[Sequence[Block]],
    tokens: int,
    width: int,
    groups: int,
    weights: bool = False,
) -> list[Program]:
    """Trace the step of each layer of a pattern, for the Grams of `groups` groups of columns.

    Outputs are the new factors and, with `weights`, the attention weights of each head of the
    layer's first block.

    Factors are lower triangular if all layers preserve this: their zeros are then skipped.
    """
    means = needs_means(block for blocks in pattern for block in blocks)
    columns = factor_columns(tokens, width, groups, means)

    def trace(blocks: Sequence[Block], lower: bool) -> tuple[Graph, list[Matrix], list[Matrix]]:
        """Return the trace of a layer's step, its inputs and its outputs."""
        graph = Graph()
        inputs = [graph.node("input", (), (tokens, columns), lower=lower) for _ in range(groups)]
        parameters, start = [traced(block) for block in blocks], State(tuple(inputs), means)
        with explained(blocks):
            state = chain_step(blocks, parameters, start, traced_numbers(graph, None), width)
            outputs = list(state.factors)
            if weights:
                again = TracedNumbers(graph, place=(0,))
                seen = seen_weights(blocks[0], parameters[0], start, again, width)
                outputs += [x for _, x in seen]
        return graph, inputs, outputs

    for lower in (columns == tokens and not means, False):
        traces = [trace(blocks, lower) for blocks in pattern]
        if all(x.node.lower for _, _, outputs in traces for x in outputs[:groups]):
            break
    return [assemble(*of_layer) for of_layer in traces]


def traced_numbers(graph: Graph, increments: float | None) -> NumbersAt:
    """Return the traced numbers of each place; `increments` as in `TracedNumbers`."""
    return cache(lambda place: TracedNumbers(graph, place=place, increments=increments))


_MOST_DEPTHS = 1001
"""Number of relative depths at which coefficients are checked, with those at both ends."""


def check_coefficients(pattern: Sequence[Sequence[Block]], tokens: int, steps: int) -> None:
    """Raise FloatingPointError if a coefficient of the limit is not finite at some depth.

    Coefficients are the numbers that a limit computes from the parameters, such as roots of rates.
    """
    depths = np.unique(np.rint(np.linspace(0, steps - 1, min(steps, _MOST_DEPTHS)))) / steps
    for block in (block for blocks in pattern for block in blocks):
        program = traced_limit([[block]], tokens, 0.01)
        with np.errstate(all="ignore"):
            finite = np.isfinite(table_of(program.coefficients, depths)).all(axis=1)
        if not finite.all():
            where = depths[~np.broadcast_to(finite, depths.shape)][0]
            raise FloatingPointError(
                f"layer contains {block!r}, whose limit has a coefficient that is not finite at "
                f"relative depth {where:.6g}: a parameter is outside its range"
            )


def traced_limit(pattern: Sequence[Sequence[Block]], tokens: int, step: float) -> Program:
    """Trace the step of the limit; its outputs are drift times step, and noise."""
    graph = Graph()
    factor = graph.node("input", (), (tokens, tokens))
    numbers_at = traced_numbers(graph, math.sqrt(step))
    parameters = [[traced(block) for block in blocks] for blocks in pattern]
    with explained([block for blocks in pattern for block in blocks]):
        outputs = limit_step(Parts.of(pattern, parameters), factor, numbers_at, step)
    return assemble(graph, [factor], outputs)
