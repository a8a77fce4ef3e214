"""Programs run on one path at a time, one operation of the graph after another.

Vectors of paths exceed every cache once a matrix or a layer is large. Here each operation is a
library routine or emitted code on arrays. Hidden units, and wide factorisations, are done in parts,
which threads share and which depend on sizes only, so the order of every sum does too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.array_code import alone
from shaped_attention.numerics.fills import path_words
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.mover import table_of
from shaped_attention.numerics.operations.hidden import FEWEST_LARGE_TOKENS, scalars_inside
from shaped_attention.numerics.operations.registry import OPERATIONS, Alone, Call
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Depths
from shaped_attention.numerics.threads import ALONE, Team

Array = NDArray[np.float64]

_FEWEST_ENTRIES = 2**18
"""Least entries of a matrix that is factorised in parts."""


@dataclass
class Step:
    """A node with the data needed to run it, by `run`.

    `inputs` and `output` are the numbers of the values that are its arguments, and of its value;
    `ends` are those that are not needed afterwards. It has the scalars (steps or 1, count) of the
    node, and the key of its random numbers.
    """

    node: Node
    inputs: tuple[int, ...]
    output: int
    ends: tuple[int, ...]
    scalars: Array
    key: Any
    run: Alone

    def call(self, path: NDArray[np.uint64], row: int, team: Team = ALONE) -> Call:
        """Return the context of the operation in a step."""
        return Call(self.scalars[row if len(self.scalars) > 1 else 0], self.key, path, team)


class Plan:
    """A program, ready to run.

    `key` is a function from an address to its key; scalars are evaluated at the relative depths of
    the steps.
    """

    def __init__(self, program: Program, key: Callable[[Any], Any], depths: Depths) -> None:
        nodes, results = _narrowed(program.nodes, program.results)
        place = {id(node): k for k, node in enumerate(nodes)}
        last = {place[id(x)]: k for k, node in enumerate(nodes) for x in node.inputs}
        self._results = [place[id(node)] for node in results]
        self._inputs = [k for k, node in enumerate(nodes) if node.kind == "input"]
        self._constants = {k: node.data for k, node in enumerate(nodes) if node.data is not None}
        pinned = {*self._results, *self._inputs, *self._constants}
        steps: list[Step] = []
        for k, node in enumerate(nodes):
            if node.kind in ("input", "constant"):
                continue
            inputs = tuple(place[id(x)] for x in node.inputs)
            ends = {x for x in inputs if last[x] == k} - pinned
            address = None if node.address is None else key(node.address)
            table = table_of([*node.scalars, *scalars_inside(node)], depths)
            steps.append(Step(node, inputs, k, tuple(ends), table, address, _run_of(node)))
        # Hidden units have parts that threads share. Of a large program, they share the rest too.
        large = max(nodes[k].shape[0] for k in self._inputs) >= FEWEST_LARGE_TOKENS
        self._stages = [
            (large and not hidden, list(stage))
            for hidden, stage in groupby(steps, lambda step: step.node.kind == "activated_gram")
        ]

    def run(
        self, inputs: Sequence[Array], sample: int, step: int, row: int | None = None,
        team: Team = ALONE,
    ) -> list[Array]:  # fmt: skip
        """Return the results for the inputs of a path, with the numbers of a sample in a step.

        The scalars are those of `row`, by default of the step. The threads of `team` share the
        operations, and do not change a result.
        """
        path, row = path_words(sample, step), step if row is None else row
        values = dict(self._constants)
        values.update(zip(self._inputs, map(np.ascontiguousarray, inputs), strict=True))

        def perform(step: Step, team: Team = ALONE) -> None:
            out = np.empty(step.node.shape)
            step.run(step.call(path, row, team), out, *(values[x] for x in step.inputs))
            values[step.output] = out

        def forget(value: int) -> None:
            del values[value]

        for shared, steps in self._stages:
            if shared:
                team.perform(steps, perform, forget)
            else:
                ALONE.perform(steps, partial(perform, team=team), forget)
        return [values[k] for k in self._results]


def _run_of(node: Node) -> Alone:
    """Return the library's routine, or emitted code."""
    routine = OPERATIONS[node.kind].routine(node)
    if routine is not None:
        return routine
    run = alone(node)
    return lambda call, out, *values: run(out, call.scalars, *values)


def _narrowed(nodes: Sequence[Node], results: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return operations, in order, of which wide factorisations are in parts."""
    new: dict[int, Node] = {}
    narrowed: list[Node] = []

    def add(node: Node) -> Node:
        narrowed.append(node)
        return node

    for node in nodes:
        here = replace(node, inputs=tuple(new[id(x)] for x in node.inputs)) if node.inputs else node
        if node.kind == "lower":
            here = replace(here, inputs=(_narrow(here.inputs[0], add),))
        new[id(node)] = add(here)
    return narrowed, [new[id(node)] for node in results]


def _narrow(root: Node, add: Callable[[Node], Node]) -> Node:
    """Return a matrix with the same Gram matrix: triangular factors of parts of the columns."""
    rows, columns = root.shape
    parts = min(4, columns // (4 * rows))
    if parts < 2 or rows * columns < _FEWEST_ENTRIES:
        return root
    ends = [columns * k // parts for k in range(parts + 1)]
    factors = []
    for first, last in pairwise(ends):
        part = add(Node("columns", (root,), (rows, last - first), (), (first,)))
        factors.append(add(Node("lower", (part,), (rows, rows), lower=True)))
    return add(Node("concatenate", tuple(factors), (rows, parts * rows), (1.0,) * parts))
