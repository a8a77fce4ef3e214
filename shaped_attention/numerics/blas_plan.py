"""Programs run on stacks of samples, one operation of the graph at a time.

Tiles of 64 paths exceed every cache once a matrix or a layer is large. Here each operation of a
trace is a library routine or one loop over entries, for all samples of a stack, and the random
numbers are those of the other executors. The memory of a value is reused after its last use. Large
operations are done in parts (`blas_parts`), which threads share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.blas_operations import FUNCTIONS, draw, is_large
from shaped_attention.numerics.blas_parts import in_parts
from shaped_attention.numerics.blas_values import Memory, Operation, Place, table_of
from shaped_attention.numerics.graph import Node, needed
from shaped_attention.numerics.hidden_tiles import Activation
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Depths
from shaped_attention.numerics.threads import ALONE, Team
from shaped_attention.numerics.threefry import path_words

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_STACK_ENTRIES = 2**13
"""Entries of a value of all samples of a stack: they share the time of a call, and the caches."""


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
        self.inputs = [k for k, node in enumerate(nodes) if node.kind == "input"]
        self.constants = {
            k: node.data[None] for k, node in enumerate(nodes) if node.data is not None
        }
        pinned = {*self.results, *self.inputs, *self.constants}
        self.normals = 0
        self.operations: list[Operation] = []
        for k, node in enumerate(nodes):
            if node.kind in ("input", "constant"):
                continue
            inputs = tuple(place[id(x)] for x in node.inputs)
            ends = {x for x in inputs if last[x] == k} - pinned
            address = None if node.address is None else key(node.address)
            inside: Plan | Activation | None = None
            if node.inside is not None and is_large(node.shape[0]):
                graph, result = node.inside
                inside = Plan(needed([result], graph.nodes), [result], key, depths)
            elif node.inside is not None:
                inside = Activation(node.inside, depths)
            self.operations.append(
                Operation(
                    node, inputs, k, tuple(ends), table_of(node.scalars, depths), address,
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
                self.operations, lambda op: large or op.node.kind == "activated_part"
            )
            for stage in ([group] if shared else ([op] for op in group))
        ]

    @classmethod
    def of(cls, program: Program, key: Callable[[Any], Any], depths: Depths) -> Plan:
        """Prepare a program."""
        return cls(*in_parts(program.nodes, program.results), key, depths)

    def run(
        self, inputs: Sequence[Array], samples: Integers | int, step: Integers | int,
        row: int | None = None, given: Array | None = None, team: Team = ALONE,
    ) -> list[Array]:  # fmt: skip
        """Return the results (samples, rows, columns) for inputs of that shape.

        The normals are those of `given` (samples, normals) or, if it is None, drawn for `samples`
        (samples,) in a step, or each in its own. The scalars are those of the step, or of `row`.
        The threads of `team` share the operations. Neither they nor the other samples change a
        result.
        """
        if row is None:
            assert isinstance(step, int)
            row = step
        paths, count = path_words(samples, step), len(inputs[0])
        size = max(1, _STACK_ENTRIES // inputs[0][0].size)
        stacks = []
        for first in range(0, count, size):
            here = slice(first, first + size)
            numbers = None if given is None else given[here]
            place = Place(paths[here], Memory(), numbers, row)
            values = self._values([x[here] for x in inputs], place, None, team)
            stacks.append([values[k] for k in self.results])
        if len(stacks) == 1:
            return stacks[0]
        return [np.concatenate(parts) for parts in zip(*stacks, strict=True)]

    def _values(
        self, inputs: Sequence[Array], place: Place, shape: tuple[int, ...] | None,
        team: Team = ALONE,
    ) -> dict[int, Array]:  # fmt: skip
        values: dict[int, Array] = dict(zip(self.inputs, inputs, strict=True))
        values.update(self.constants)

        def perform(operation: Operation) -> None:
            out = place.memory.take((len(inputs[0]), *(shape or operation.node.shape)))
            arguments = [values[x] for x in operation.inputs]
            FUNCTIONS[operation.node.kind](operation, place, out, *arguments)
            values[operation.output] = out

        def forget(value: int) -> None:
            place.memory.give_back(values.pop(value))

        for stage in self._stages:
            team.perform(stage, perform, forget)
        return values

    def draw(self, samples: Integers, step: int) -> Array:
        """Return the normals of a step (samples, normals)."""
        paths = path_words(samples, step)
        drawn = [np.empty((len(samples), 0))]
        for operation in self.operations:
            if operation.node.kind == "normal":
                rows, columns = operation.node.shape
                drawn.append(np.empty((len(samples), rows * columns)))
                draw(operation, paths, step, drawn[-1])
        return np.concatenate(drawn, axis=1)

    def activate(self, hidden: Sequence[Array], place: Place) -> Array:
        """Apply a plan of functions of single entries."""
        (result,) = self.results
        return self._values(hidden, place, hidden[0].shape[1:])[result]
