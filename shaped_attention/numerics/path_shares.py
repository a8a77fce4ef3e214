"""Shares of a program for several threads: each computes what its own results need.

The stretches between operations with many inputs, such as the concatenation of heads, are divided.
The results of a stretch, its values that are used after it, are divided evenly; a share consists of
all the operations that its results depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.program import Program

_MANY_INPUTS = 4
_FEWEST_NANOSECONDS = 2e5
"""Estimated time of a stretch from which on a second thread saves more than its start costs."""

_LARGEST_EXCESS = 1.5
"""Largest share that is accepted, in units of an even share."""

_COSTS = {"normal": 2.0, "wishart": 4.0, "softmax": 3.0, "exp": 2.0, "tanh": 3.0, "sigmoid": 2.0}
"""Nanoseconds for an entry; all others take `_COST`."""
_COST = 0.3
_PRODUCT = 0.1
"""Nanoseconds for a term of a product."""


@dataclass(frozen=True)
class Share:
    """Instructions of a thread.

    Attributes
    ----------
    code
        Instructions (count, 20).
    before, after
        Regions (count, 4) of the values that it reads, and of its results, as in
        `program.Program.regions`.
    """

    code: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]


def shares(program: Program, threads: int) -> list[list[Share] | int]:
    """Return, in order, stages of a program: shares of threads, or a node with hidden units."""
    return [
        stage[0] if program.nodes[stage[0]].kind == "activated_gram" else _divided(
            program, stage, threads
        )
        for stage in _stretches(program.nodes, threads)
    ]  # fmt: skip


def _stretches(nodes: Sequence[Node], threads: int) -> list[list[int]]:
    """Return the positions of the nodes of each stage."""
    found: list[list[int]] = [[]]
    for k, node in enumerate(nodes):
        if node.kind in ("input", "constant"):
            continue
        if node.kind == "activated_gram":
            found += [[k], []]
        elif threads > 1 and len(node.inputs) >= _MANY_INPUTS:
            found.append([k])
        else:
            found[-1].append(k)
    return [stage for stage in found if stage]


def _divided(program: Program, stage: list[int], threads: int) -> list[Share]:
    whole = [_share(program, stage, [])]
    costs = {k: _cost(program.nodes[k]) for k in stage}
    total = sum(costs.values())
    results = _results(program, stage)
    count = min(threads, len(results))
    if count < 2 or total < _FEWEST_NANOSECONDS:
        return whole
    ends = [len(results) * k // count for k in range(count + 1)]
    parts = [_needed(program, stage, results[first:last]) for first, last in pairwise(ends)]
    largest = max(sum(costs[k] for k in part) for part in parts)
    if largest > _LARGEST_EXCESS * total / count:
        return whole
    return [
        _share(program, part, results[first:last])
        for part, (first, last) in zip(parts, pairwise(ends), strict=True)
    ]


def _results(program: Program, stage: list[int]) -> list[int]:
    """Return the positions of the values of a stage that are used after it."""
    inside = {id(program.nodes[k]) for k in stage}
    used = {id(x) for x in program.results}
    used |= {id(x) for node in program.nodes if id(node) not in inside for x in node.inputs}
    return [k for k in stage if id(program.nodes[k]) in used]


def _needed(program: Program, stage: list[int], results: list[int]) -> list[int]:
    """Return the positions in a stage of all that some of its values depend on."""
    wanted = {id(program.nodes[k]) for k in results}
    kept = []
    for k in reversed(stage):
        node = program.nodes[k]
        if id(node) in wanted:
            kept.append(k)
            wanted.update(id(x) for x in node.inputs)
    return kept[::-1]


def _share(program: Program, part: list[int], results: list[int]) -> Share:
    nodes, position = program.nodes, {id(node): k for k, node in enumerate(program.nodes)}
    used = {position[id(x)] for k in part for x in nodes[k].inputs}
    lines = [k for j in part for k in range(*program.spans[j])]
    before = [program.regions[k] for k in sorted(used - set(part))]
    after = [program.regions[k] for k in results]
    return Share(
        program.code[lines],
        np.array(before, dtype=np.int64).reshape(-1, 4),
        np.array(after, dtype=np.int64).reshape(-1, 4),
    )


def _cost(node: Node) -> float:
    """Return the estimated nanoseconds of an operation."""
    rows, columns = node.shape
    if node.kind.startswith("multiply"):
        first = node.inputs[0]
        inner = first.shape[0] if node.kind == "multiply_tn" else first.shape[1]
        return _PRODUCT * rows * inner * columns
    if node.kind == "lower":
        return _PRODUCT * rows * rows * node.inputs[0].shape[1]
    return _COSTS.get(node.kind, _COST) * rows * columns
