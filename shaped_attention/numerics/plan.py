"""Programs run on stacks of samples, one operation of the graph at a time.

Tiles of 64 paths exceed every cache once a matrix or a layer is large. Here each operation of a
trace is a library routine or one loop over entries, for all samples of a stack, and the random
numbers are those of the other executors. The memory of a value is reused after its last use.
Hidden units, and wide factorisations, are done in parts, which threads share. The parts depend on
sizes only, so the order of every sum does not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Node, needed
from shaped_attention.numerics.mover import table_of
from shaped_attention.numerics.operations.hidden import COLUMNS, HiddenUnits, scalars_inside
from shaped_attention.numerics.operations.random import draw
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.operations.stacks import Memory, Place, Step, is_large
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Depths
from shaped_attention.numerics.threads import ALONE, Team
from shaped_attention.numerics.threefry import path_words

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_STACK_ENTRIES = 2**13
"""Entries of a value of all samples of a stack: they share the time of a call, and the caches."""

_LARGEST_PARTS = 16
_FEWEST_NUMBERS = 2**15
"""Random numbers of a part for few tokens, which take ten times as long as a call."""
_UNITS = 64
"""Hidden units of a part are a multiple of this number."""
_PART_ENTRIES = 2**24
"""Entries of all partial sums of a Gram matrix together."""
_FEWEST_ENTRIES = 2**18
"""Least entries of a matrix that is factorised in parts."""


class Plan:
    """A program, ready to run.

    Parameters
    ----------
    nodes, results
        Operations in order, and those whose values are the results.
    key
        Function from an address to its key.
    depths
        Relative depths of the steps, at which scalars are evaluated.
    """

    def __init__(
        self, nodes: Sequence[Node], results: Sequence[Node], key: Callable[[Any], Any],
        depths: Depths,
    ) -> None:  # fmt: skip
        place = {id(node): k for k, node in enumerate(nodes)}
        last = {place[id(x)]: k for k, node in enumerate(nodes) for x in node.inputs}
        self.results = [place[id(node)] for node in results]
        self._shapes = {place[id(node)]: node.shape for node in results}
        self.inputs = [k for k, node in enumerate(nodes) if node.kind == "input"]
        self.constants = {
            k: node.data[None] for k, node in enumerate(nodes) if node.data is not None
        }
        pinned = {*self.results, *self.inputs, *self.constants}
        self.normals = 0
        self.steps: list[Step] = []
        units: dict[int, HiddenUnits] = {}
        for k, node in enumerate(nodes):
            if node.kind in ("input", "constant"):
                continue
            inputs = tuple(place[id(x)] for x in node.inputs)
            ends = {x for x in inputs if last[x] == k} - pinned
            address = None if node.address is None else key(node.address)
            inside: Plan | HiddenUnits | None = None
            if node.inside is not None and is_large(node.shape[0]):
                graph, result = node.inside
                inside = Plan(needed([result], graph.nodes), [result], key, depths)
            elif node.inside is not None:
                if id(node.inside) not in units:
                    units[id(node.inside)] = HiddenUnits(node)
                inside = units[id(node.inside)]
            table = table_of([*node.scalars, *scalars_inside(node)], depths)
            self.steps.append(
                Step(
                    node, inputs, k, tuple(ends), table, address,
                    self.normals, inside,
                )
            )  # fmt: skip
            if node.kind == "normal":
                self.normals += node.shape[0] * node.shape[1]
        # What threads share: all of a large program, or else the parts of the hidden units.
        large = any(is_large(nodes[k].shape[0]) for k in self.inputs)
        self._stages = [
            list(stage)
            for shared, group in groupby(
                self.steps, lambda step: large or step.node.kind == "activated_gram"
            )
            for stage in ([group] if shared else ([step] for step in group))
        ]

    @classmethod
    def of(cls, program: Program, key: Callable[[Any], Any], depths: Depths) -> Plan:
        """Prepare a program."""
        return cls(*_in_parts(program.nodes, program.results), key, depths)

    def run(
        self, inputs: Sequence[Array], samples: Integers | int, step: Integers | int,
        row: int | None = None, normals: Array | None = None, team: Team = ALONE,
    ) -> list[Array]:  # fmt: skip
        """Return the results (samples, rows, columns) for inputs of that shape.

        The normals are those of `normals` (samples, normals) or, if it is None, drawn for `samples`
        (samples,) in a step, or each in its own. The scalars are those of the step, or of `row`.
        The threads of `team` share the operations. Neither they nor the other samples change a
        result.
        """
        if row is None:
            assert isinstance(step, int)
            row = step
        paths, count = path_words(samples, step), len(inputs[0])
        size, memory = max(1, _STACK_ENTRIES // inputs[0][0].size), Memory()
        results = {k: np.empty((count, *shape)) for k, shape in self._shapes.items()}
        constants = {k: np.repeat(x, min(size, count), 0) for k, x in self.constants.items()}
        for k in results.keys() & self.constants:
            results[k][...] = self.constants[k]
        for first in range(0, count, size):
            here = slice(first, first + size)
            chosen = None if normals is None else normals[here]
            place = Place(paths[here], memory, chosen, row)
            outs = {k: whole[here] for k, whole in results.items()}
            values = {k: x[: len(place.paths)] for k, x in constants.items()}
            values.update(zip(self.inputs, (x[here] for x in inputs), strict=True))
            self._values(values, place, None, outs, team)
        return [results[k] for k in self.results]

    def _values(
        self, values: dict[int, Array], place: Place, shape: tuple[int, ...] | None,
        outs: Mapping[int, Array], team: Team = ALONE,
    ) -> dict[int, Array]:  # fmt: skip
        """Add the values of all operations to those of inputs and constants."""
        samples = len(values[self.inputs[0]])

        def perform(step: Step) -> None:
            out = outs.get(step.output)
            if out is None:
                out = place.memory.take((samples, *(shape or step.node.shape)))
            arguments = [values[x] for x in step.inputs]
            OPERATIONS[step.node.kind].blas(step, place, out, *arguments)
            values[step.output] = out

        def forget(value: int) -> None:
            place.memory.give_back(values.pop(value))

        for stage in self._stages:
            team.perform(stage, perform, forget)
        return values

    def draw(self, samples: Integers, step: int) -> Array:
        """Return the normals of a step (samples, normals)."""
        place = Place(path_words(samples, step), Memory(), None, step)
        drawn = [np.empty((len(samples), 0))]
        for normal in self.steps:
            if normal.node.kind == "normal":
                rows, columns = normal.node.shape
                drawn.append(np.empty((len(samples), rows * columns)))
                draw(normal, place, drawn[-1])
        return np.concatenate(drawn, axis=1)

    def activate(self, hidden: Sequence[Array], place: Place) -> Array:
        """Apply a plan of functions of single entries."""
        (result,) = self.results
        values = {**self.constants, **dict(zip(self.inputs, hidden, strict=True))}
        return self._values(values, place, hidden[0].shape[1:], {})[result]


def _in_parts(nodes: Sequence[Node], results: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return operations, in order, that give the same results in parts."""
    new: dict[int, Node] = {}
    divided: list[Node] = []

    def add(node: Node) -> Node:
        divided.append(node)
        return node

    for node in nodes:
        here = replace(node, inputs=tuple(new[id(x)] for x in node.inputs)) if node.inputs else node
        if node.kind == "activated_gram":
            parts = tuple(add(part) for part in _hidden_parts(here))
            here = Node("sum_of_parts", parts, node.shape)
        elif node.kind == "lower":
            (root,) = here.inputs
            here = replace(here, inputs=(_narrowed(root, add),))
        new[id(node)] = add(here)
    return divided, [new[id(node)] for node in results]


def _hidden_parts(node: Node) -> list[Node]:
    slot, count, copies = node.integers
    tokens, columns = node.inputs[0].shape
    if is_large(tokens):
        units, most = COLUMNS, _PART_ENTRIES // tokens**2
    else:
        units, most = _UNITS, count * copies * columns // _FEWEST_NUMBERS
    blocks = -(-count // units)
    parts = max(1, min(_LARGEST_PARTS, blocks, most))
    ends = [min(count, blocks * k // parts * units) for k in range(parts + 1)]
    return [replace(node, integers=(slot, first, last, copies)) for first, last in pairwise(ends)]


def _narrowed(root: Node, add: Callable[[Node], Node]) -> Node:
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
