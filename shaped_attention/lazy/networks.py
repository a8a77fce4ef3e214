"""The blocks of a layer on rows: their branch, as it is written for real weights.

Tokens X_l are rows of the residual space, or of a direct sum if heads without an output projection
split its columns. Every ``project(x, columns)`` is a product with a `Matrix` of its own, named
"layer.block.number"; what the branch does with the product decides on its space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.parameters import at_depth, traced
from shaped_attention.lazy.space import new_rows
from shaped_attention.lazy.weights import Weights
from shaped_attention.numerics.threads import few_threads
from shaped_attention.rows.directions import directions
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import AnySpace, Frame, Sum
from shaped_attention.rows.traced import TracedSource
from shaped_attention.samplers.memory import check_one_fits, chunk_size, of_rows
from shaped_attention.samplers.specification import Specification

T = TypeVar("T")

_OF_A_LOGIT = 6
"""Numbers that are held for each logit at once: images, logits, the loss, and their gradients."""


def chunk_of_samples(
    entries: int, spec: Specification, hint: str = "fewer tokens, layers or hidden units"
) -> int:
    """Return how many samples move together, from the numbers that one keeps.

    Raise ValueError if a single one takes more than the memory of the specification.
    """
    bytes_of_one = of_rows(entries, spec.dtype.itemsize)
    check_one_fits(spec, bytes_of_one, hint)
    return chunk_size(spec, bytes_of_one, threads=1)


def in_chunks(
    spec: Specification, size: int, of_operand: float, work: Callable[[int, int], T]
) -> list[T]:
    """Return ``work(first, count)`` for all samples, `size` at a time.

    Libraries have one thread if operands have few entries; those of a sample have `of_operand`.
    """
    samples = spec.samples
    with few_threads(min(size, samples) * of_operand):
        starts = range(0, samples, size)
        return [work(first, min(size, samples - first)) for first in starts]


def readout_entries(outputs: int, spec: Specification) -> int:
    """Return how many numbers of one sample a readout takes, with its loss and gradient.

    Raise ValueError if they take more than the memory of the specification.
    """
    entries = _OF_A_LOGIT * spec.tokens * outputs
    chunk_of_samples(entries, spec, "fewer tokens or classes")
    return entries


def start_of(spec: Specification, width: int, source: Source) -> Rows:
    """Return the tokens X_0 of the samples of a source."""
    groups, space = spec.groups, residual_space(source, width, spec.groups)
    columns = min(spec.tokens, width // groups)
    factors = spec.start_factors(source.first, source.samples, groups, columns)
    parts = []
    for g, part in enumerate(space):
        coordinates: Any = part.n**0.5 * factors[:, g]
        if part.explicit:
            # Tokens are given by their covariance: a uniform frame has the law of all others.
            gaussian = part.fresh(columns, source.stream().draws())
            coordinates = source.constant(coordinates) @ directions(gaussian).units
        parts.append(new_rows(part, coordinates).parts[0])
    return Rows(space, tuple(parts))


def residual_space(source: Source, width: int, groups: int) -> AnySpace:
    """Return the space of tokens, as a direct sum of equal parts if there are several groups."""
    parts = [Frame(width // groups, source) for _ in range(groups)]
    return parts[0] if groups == 1 else Sum(parts)


def through_layer(
    tokens: Rows, blocks: Sequence[Block], layer: int, depth: int, weights: Weights,
    prefix: str | None = None,
) -> Rows:  # fmt: skip
    """Return the tokens after a layer, whose names begin with its number or with the prefix."""
    x: Any = tokens
    prefix = f"{layer}." if prefix is None else prefix
    for index, block in enumerate(blocks):
        project: Any = weights.block(f"{prefix}{index}")
        of_graph = isinstance(weights.source, TracedSource)
        p = traced(block) if of_graph else at_depth(block, layer / depth)
        x = block.forward(p, x, project)
    return x


def matrix_names(block: Block, tokens: int, width: int) -> list[str]:
    """Return the names by which the branch of a block calls its matrices, in their order.

    The branch runs on shapes alone. A matrix without a name, and all of a branch that needs more
    than shapes, have empty names.
    """
    taken: list[tuple[str, int]] = []

    def project(x: Tensor, columns: int, name: str | None = None, head: int = 0) -> Tensor:
        taken.append((name or "", head))
        return x.new_empty(*x.shape[:-1], columns, device="meta")

    try:
        rows = torch.empty(1, tokens, width, dtype=torch.float64, device="meta")
        block.applied(at_depth(block, 0.0), rows, project)
    except Exception:
        return [""] * len(taken)
    several = {name for name, head in taken if head}
    return [f"{name}, head {head}" if name in several else name for name, head in taken]


def classification(f: Tensor, targets: Tensor) -> Float[Tensor, " B"]:
    """Return the mean over tokens of the cross-entropy of logits f (B, m, K) against classes."""
    chosen = torch.log_softmax(f, -1)[:, range(f.shape[1]), targets]
    return -chosen.mean(-1)
