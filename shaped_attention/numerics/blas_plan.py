"""Programs on large matrices, run sample by sample, one operation of the graph at a time.

Tiles of 64 paths exceed every cache once a matrix is large. Here each operation of a trace is a
library routine or one loop over entries, and the random numbers are those of the other executors.
The memory of a value is reused after its last use, so a sample needs that of a few matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.blas_operations import FUNCTIONS, Memory, Operation, Place, draw
from shaped_attention.numerics.graph import Node, Shape, needed
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
        number = {id(node): k for k, node in enumerate(nodes)}
        last = {number[id(x)]: k for k, node in enumerate(nodes) for x in node.inputs}
        self.results = [number[id(node)] for node in results]
        self.inputs = [k for k, node in enumerate(nodes) if node.kind == "input"]
        self.constants = {k: node.data for k, node in enumerate(nodes) if node.kind == "constant"}
        pinned = {*self.results, *self.inputs, *self.constants}
        self.operations, self.count, self.normals = [], len(nodes), 0
        for k, node in enumerate(nodes):
            if node.kind in ("input", "constant"):
                continue
            inputs = tuple(number[id(x)] for x in node.inputs)
            ends = {x for x in inputs if last[x] == k} - pinned
            columns = [np.broadcast_to(value(x, depths), depths.shape) for x in node.scalars]
            table = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
            table = table[:1] if (table == table[0]).all() else table
            address = None if node.address is None else key(node.address)
            inside = None
            if node.inside is not None:
                graph, result = node.inside
                inside = Plan(needed([result], graph.nodes), [result], key, depths)
            self.operations.append(
                Operation(node, inputs, k, tuple(ends), table, address, self.normals, inside)
            )
            if node.kind == "normal":
                self.normals += node.shape[0] * node.shape[1]

    @classmethod
    def of(cls, program: Program, key: Callable[[Any], Any], depths: Depths) -> Plan:
        """Prepare a program."""
        return cls(program.nodes, program.results, key, depths)

    def run(
        self, inputs: Sequence[Array], sample: int, step: int, memory: Memory,
        given: Array | None = None, row: int | None = None,
    ) -> list[Array]:  # fmt: skip
        """Return the results for one sample; their memory may be given back.

        The normals are those of `given` (normals,) or, if it is None, drawn. The scalars are those
        of the step, or of `row`.
        """
        place = Place(sample, step, memory, given, step if row is None else row)
        values = self._values(inputs, place, None)
        return [values[k] for k in self.results]

    def _values(
        self, inputs: Sequence[Array], place: Place, shape: Shape | None
    ) -> dict[int, Array]:
        values: dict[int, Array] = dict(zip(self.inputs, inputs, strict=True))
        values.update(self.constants)  # type: ignore[arg-type]
        for operation in self.operations:
            out = place.memory.take(shape or operation.node.shape)
            arguments = [values[k] for k in operation.inputs]
            FUNCTIONS[operation.node.kind](operation, place, out, *arguments)
            values[operation.output] = out
            for k in operation.ends:
                place.memory.give_back(values.pop(k))
        return values

    def give_back(self, results: Sequence[Array], memory: Memory) -> None:
        """Give back the memory of results that are not inputs."""
        fresh = {k: x for k, x in zip(self.results, results, strict=True) if k not in self.inputs}
        for k, array in fresh.items():
            if k not in self.constants:
                memory.give_back(array)

    def draw(self, sample: int, step: int, out: Array) -> None:
        """Write the normals of a step into `out` (normals,)."""
        for operation in self.operations:
            if operation.node.kind == "normal":
                rows, columns = operation.node.shape
                part = out[operation.start : operation.start + rows * columns]
                draw(operation, sample, step, step, part)

    def activate(self, hidden: Sequence[Array], place: Place) -> Array:
        """Apply a plan of functions of single entries."""
        (result,) = self.results
        rows, columns = hidden[0].shape
        return self._values(hidden, place, (rows, columns))[result]
