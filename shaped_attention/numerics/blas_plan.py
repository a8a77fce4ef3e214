"""Programs on large matrices, run sample by sample, one operation of the graph at a time.

Tiles of 64 paths exceed every cache once a matrix is large. Here each operation of a trace is a
library routine or one loop over entries, and the random numbers are those of the other executors.
The memory of a value is reused after its last use, so a sample needs that of a few matrices. Large
operations are done in parts (`blas_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.blas_operations import FUNCTIONS, draw
from shaped_attention.numerics.blas_parts import in_parts
from shaped_attention.numerics.blas_values import Memory, Operation, Place
from shaped_attention.numerics.graph import Node, Shape, needed
from shaped_attention.numerics.path_team import ALONE, Order, Team
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Depths, value

Array = NDArray[np.float64]


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
        self.constants = {k: node.data for k, node in enumerate(nodes) if node.kind == "constant"}
        pinned = {*self.results, *self.inputs, *self.constants}
        self.normals = 0
        self.operations = []
        for k, node in enumerate(nodes):
            if node.kind in ("input", "constant"):
                continue
            inputs = tuple(place[id(x)] for x in node.inputs)
            ends = {x for x in inputs if last[x] == k} - pinned
            address = None if node.address is None else key(node.address)
            inside = None
            if node.inside is not None:
                graph, result = node.inside
                inside = Plan(needed([result], graph.nodes), [result], key, depths)
            self.operations.append(
                Operation(
                    node, inputs, k, tuple(ends), _table(node, depths), address, self.normals,
                    inside,
                )
            )  # fmt: skip
            if node.kind == "normal":
                self.normals += node.shape[0] * node.shape[1]

    @classmethod
    def of(cls, program: Program, key: Callable[[Any], Any], depths: Depths) -> Plan:
        """Prepare a program."""
        return cls(*in_parts(program.nodes, program.results), key, depths)

    def run(
        self, inputs: Sequence[Array], sample: int, step: int, memory: Memory,
        given: Array | None = None, row: int | None = None, team: Team = ALONE,
    ) -> list[Array]:  # fmt: skip
        """Return the results for one sample; their memory may be given back.

        The normals are those of `given` (normals,) or, if it is None, drawn. The scalars are those
        of the step, or of `row`. The threads of `team` share the operations; the results do not
        depend on it.
        """
        place = Place(sample, step, memory, given, step if row is None else row)
        values = self._values(inputs, place, None, team)
        return [values[k] for k in self.results]

    def _values(
        self, inputs: Sequence[Array], place: Place, shape: Shape | None, team: Team = ALONE
    ) -> dict[int, Array]:
        values: dict[int, Array] = dict(zip(self.inputs, inputs, strict=True))
        values.update(self.constants)  # type: ignore[arg-type]

        def perform(k: int) -> None:
            operation = self.operations[k]
            out = place.memory.take(shape or operation.node.shape)
            arguments = [values[x] for x in operation.inputs]
            FUNCTIONS[operation.node.kind](operation, place, out, *arguments)
            values[operation.output] = out

        def forget(value: int) -> None:
            place.memory.give_back(values.pop(value))

        team.perform(self.order, perform, forget)
        return values

    @cached_property
    def order(self) -> Order:
        """Which operations must come before which."""
        position = {operation.output: k for k, operation in enumerate(self.operations)}
        used = [set(operation.inputs) for operation in self.operations]
        before = [{position[x] for x in values if x in position} for values in used]
        return Order.of(before, used, [operation.ends for operation in self.operations])

    def give_back(self, results: Sequence[Array], memory: Memory) -> None:
        """Give back the memory of results that are not inputs."""
        fresh = {
            k: array
            for k, array in zip(self.results, results, strict=True)
            if k not in (*self.inputs, *self.constants)
        }
        for array in fresh.values():
            memory.give_back(array)

    def draw(self, sample: int, step: int, out: Array) -> None:
        """Write the normals of a step into `out` (normals,)."""
        for operation in self.operations:
            if operation.node.kind == "normal":
                rows, columns = operation.node.shape
                start = operation.start
                draw(operation, sample, step, step, out[start : start + rows * columns])

    def activate(self, hidden: Sequence[Array], place: Place) -> Array:
        """Apply a plan of functions of single entries."""
        (result,) = self.results
        rows, columns = hidden[0].shape
        return self._values(hidden, place, (rows, columns))[result]


def _table(node: Node, depths: Depths) -> Array:
    """Return the scalars of a node (steps or 1, count)."""
    columns = [np.broadcast_to(value(x, depths), depths.shape) for x in node.scalars]
    table = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
    return table[:1] if (table == table[0]).all() else table
