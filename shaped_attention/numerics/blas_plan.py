"""Programs on large matrices, run sample by sample, one operation of the graph at a time.

Tiles of 64 paths exceed every cache once a matrix is large. Here each operation of a trace is a
library routine or one loop over entries, and the random numbers are those of the other executors.
The memory of a value is reused after its last use, so a sample needs that of a few matrices. Small
operations of the same kind are done at once (`blas_stacks`), large ones in parts (`blas_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.blas_operations import FUNCTIONS, draw
from shaped_attention.numerics.blas_parts import in_parts
from shaped_attention.numerics.blas_stacks import stacks
from shaped_attention.numerics.blas_values import Memory, Operation, Place, Source
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
    together
        Whether small operations of the same kind are done at once (`blas_stacks`).
    """

    def __init__(
        self, nodes: Sequence[Node], results: Sequence[Node], key: Callable[[Any], Any],
        depths: Depths, together: bool = True,
    ) -> None:  # fmt: skip
        tables = {id(node): _table(node, depths) for node in nodes}
        groups = stacks(nodes, tables) if together else [[node] for node in nodes]
        place = {
            id(node): Source(k, i if len(group) > 1 else None)
            for k, group in enumerate(groups)
            for i, node in enumerate(group)
        }
        last: dict[int, int] = {}
        for k, group in enumerate(groups):
            last.update((place[id(x)].value, k) for node in group for x in node.inputs)
        self.results = [place[id(node)] for node in results]
        self.inputs = [place[id(node)].value for node in nodes if node.kind == "input"]
        self.constants = {
            k: group[0].data for k, group in enumerate(groups) if group[0].kind == "constant"
        }
        pinned = {*(x.value for x in self.results), *self.inputs, *self.constants}
        starts = _starts(nodes)
        self.normals = sum(node.shape[0] * node.shape[1] for node in nodes if id(node) in starts)
        self.operations = []
        for k, group in enumerate(groups):
            first = group[0]
            if first.kind in ("input", "constant"):
                continue
            inputs = tuple(
                _source([place[id(x)] for x in same], groups)
                for same in zip(*(node.inputs for node in group), strict=True)
            )
            ends = {x.value for x in inputs if last[x.value] == k} - pinned
            address = None if first.address is None else key(first.address)
            inside = None
            if first.inside is not None:
                graph, result = first.inside
                inside = Plan(needed([result], graph.nodes), [result], key, depths, together=False)
            numbers = [starts.get(id(node), 0) for node in group]
            self.operations.append(
                Operation(
                    group, inputs, k, tuple(ends), tables[id(first)], address, numbers, inside
                )
            )

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
        return [source.of(values) for source in self.results]

    def _values(
        self, inputs: Sequence[Array], place: Place, shape: Shape | None, team: Team = ALONE
    ) -> dict[int, Array]:
        values: dict[int, Array] = dict(zip(self.inputs, inputs, strict=True))
        values.update(self.constants)  # type: ignore[arg-type]

        def perform(k: int) -> None:
            operation = self.operations[k]
            out = place.memory.take(shape or operation.shape)
            arguments = [source.of(values) for source in operation.inputs]
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
        used = [{x.value for x in operation.inputs} for operation in self.operations]
        before = [{position[x] for x in values if x in position} for values in used]
        return Order.of(before, used, [operation.ends for operation in self.operations])

    def give_back(self, results: Sequence[Array], memory: Memory) -> None:
        """Give back the memory of results that are not inputs."""
        fresh = {
            source.value: array
            for source, array in zip(self.results, results, strict=True)
            if source.member is None and source.value not in (*self.inputs, *self.constants)
        }
        for array in fresh.values():
            memory.give_back(array)

    def draw(self, sample: int, step: int, out: Array) -> None:
        """Write the normals of a step into `out` (normals,)."""
        for operation in self.operations:
            if operation.node.kind == "normal":
                for k, (node, start) in enumerate(
                    zip(operation.nodes, operation.starts, strict=True)
                ):
                    size = node.shape[0] * node.shape[1]
                    draw(operation, k, sample, step, step, out[start : start + size])

    def activate(self, hidden: Sequence[Array], place: Place) -> Array:
        """Apply a plan of functions of single entries."""
        (result,) = self.results
        rows, columns = hidden[0].shape
        return self._values(hidden, place, (rows, columns))[result.value]


def _table(node: Node, depths: Depths) -> Array:
    """Return the scalars of a node (steps or 1, count)."""
    columns = [np.broadcast_to(value(x, depths), depths.shape) for x in node.scalars]
    table = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
    return table[:1] if (table == table[0]).all() else table


def _starts(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the number of normals before those of each normal node."""
    found, count = {}, 0
    for node in nodes:
        if node.kind == "normal":
            found[id(node)] = count
            count += node.shape[0] * node.shape[1]
    return found


def _source(members: list[Source], groups: list[list[Node]]) -> Source:
    """Return where the inputs at one place of the nodes of a stack are."""
    first = members[0]
    if all(x == first for x in members):
        return first
    index = [x.member for x in members]
    if index == list(range(len(groups[first.value]))):
        return Source(first.value)
    return Source(first.value, np.array(index, dtype=np.int64))
