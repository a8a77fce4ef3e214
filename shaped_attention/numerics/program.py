"""A trace as a program: its operations in order, and where their values are.

Each value has rows of a buffer, which are reused after its last use. A value that becomes a part of
a larger matrix is written there directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TypeAlias

from shaped_attention.compiler.matrices import View
from shaped_attention.numerics.graph import Graph, Matrix, Node, Shape, needed
from shaped_attention.numerics.operations.hidden import scalars_inside
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.scalars import Number, Scalar, name_of

Slot: TypeAlias = int | float
"""Index of a scalar, or a number that code has."""

_FOLDED = (0.0, 1.0, -1.0)
"""Numbers that code has, since they cost nothing there."""

ROUNDED = 4
"""Normals are drawn in whole blocks: their rows are a multiple of this number."""


@dataclass
class Program:
    """A step: operations in order, and the nodes of its inputs and results.

    Scalars are numbers and formulas that are looked up by index, so that code does not depend on
    them; `addresses` are those of the random numbers, by the index of their key.
    """

    nodes: list[Node] = field(repr=False)
    inputs: list[Node] = field(repr=False)
    results: list[Node] = field(repr=False)
    scalars: list[Number] = field(default_factory=list)
    addresses: list[Hashable] = field(default_factory=list)

    def __post_init__(self) -> None:
        places: dict[Hashable, int] = {}
        self._slots: dict[int, list[Slot]] = {}
        for node in self.nodes:
            slots = self._slots[id(node)] = []
            for number in (*node.scalars, *scalars_inside(node)):
                if not isinstance(number, Scalar) and number in _FOLDED:
                    slots.append(float(number))
                    continue
                # Numbers may be equal by coincidence, so each has its own place.
                name = name_of(number) if isinstance(number, Scalar) else len(self.scalars)
                if name not in places:
                    places[name] = len(self.scalars)
                    self.scalars.append(number)
                slots.append(places[name])
            if node.address is not None and node.address not in self.addresses:
                self.addresses.append(node.address)

    def slots(self, node: Node) -> list[Slot]:
        """Return the index of each scalar of a node, or the number itself if code has it."""
        return self._slots[id(node)]

    @cached_property
    def signature(self) -> bytes:
        """What the code of the program depends on."""
        index = {id(node): k for k, node in enumerate(self.nodes)}

        def text(node: Node, inputs: dict[int, int]) -> object:
            return (
                node.kind, node.shape, node.lower, node.integers, node.data is None or
                node.data.tobytes(), [inputs[id(x)] for x in node.inputs],
            )  # fmt: skip

        parts: list[object] = [[index[id(x)] for x in (*self.inputs, *self.results)]]
        for node in self.nodes:
            inside: list[object] = []
            if node.inside is not None:
                nodes = needed([node.inside[1]], node.inside[0].nodes)
                within = {id(x): k for k, x in enumerate(nodes)}
                inside = [text(x, within) for x in nodes]
            key = self.addresses.index(node.address) if node.address is not None else None
            parts.append((text(node, index), self.slots(node), key, inside))
        return blake2b(repr(parts).encode()).digest()

    @property
    def coefficients(self) -> list[Number]:
        """All numbers that the operations have, formulas or known."""
        return [x for node in self.nodes for x in (*node.scalars, *scalars_inside(node))]

    @property
    def input_shapes(self) -> list[Shape]:
        """Shapes of the inputs."""
        return [node.shape for node in self.inputs]

    @property
    def result_shapes(self) -> list[Shape]:
        """Shapes of the results."""
        return [node.shape for node in self.results]

    @property
    def numbers(self) -> int:
        """Number of random numbers drawn per step, a chi variable counted as one normal."""
        count = 0
        for node in self.nodes:
            rows, columns = node.shape
            if node.kind == "wishart":
                count += rows * (rows + 1) // 2
            elif node.kind == "normal":
                count += rows * columns
            elif node.kind == "activated_gram":
                _, units, copies = node.integers
                count += units * copies * node.inputs[0].shape[1]
        return count


def assemble(graph: Graph, inputs: Sequence[Matrix], outputs: Sequence[Matrix]) -> Program:
    """Turn a trace into a program; `inputs` are nodes of kind "input"."""
    results = [_copied(matrix.value()) for matrix in outputs]
    nodes = needed([x.node for x in results] + [x.node for x in inputs], graph.nodes)
    return Program(nodes, [x.node for x in inputs], [x.node for x in results])


def _copied(output: Matrix) -> Matrix:
    """Return a copy of an output that is an input or a constant."""
    node = output.node
    if node.kind not in ("input", "constant"):
        return output
    return output.graph.node("scale", (node,), node.shape, (1.0,), lower=node.lower)


class Layout:
    """Where the values of a program are in the buffer, which has some rows.

    The inputs have the first ones, one after the other.
    """

    def __init__(self, program: Program) -> None:
        self._offset: dict[int, int] = {}
        self._part: dict[int, tuple[Node, int]] = {}
        self.rows = 0
        self._free: list[tuple[int, int]] = []
        uses = Counter(id(x) for node in program.nodes for x in node.inputs)
        uses.update(id(node) for node in program.results)
        for node in program.nodes:
            if node.kind == "concatenate":
                column = 0
                for part in node.inputs:
                    known = OPERATIONS.get(part.kind)
                    if known and known.in_place and uses[id(part)] == 1:
                        self._part[id(part)] = (node, column)
                    column += part.shape[1]
        self._place(program)

    def _place(self, program: Program) -> None:
        last: dict[int, int] = {}
        for k, node in enumerate(program.nodes):
            last.update((id(x), k) for x in node.inputs)
        last.update((id(node), len(program.nodes)) for node in program.results)
        for node in program.inputs:
            self._offset[id(node)] = self._take(count(node))
        ends: dict[int, list[tuple[int, int]]] = {}
        for k, node in enumerate(program.nodes):
            if node.kind not in ("input", "constant"):
                whole = self._part.get(id(node), (node, 0))[0]
                if id(whole) not in self._offset:
                    self._offset[id(whole)] = self._take(count(whole))
                    span = (self._offset[id(whole)], count(whole))
                    ends.setdefault(last.get(id(whole), len(program.nodes)), []).append(span)
            for span in ends.get(k, ()):
                self._give_back(*span)

    def view(self, node: Node) -> View:
        """Return where a value is."""
        if node.data is not None:
            return View.of(node.data)
        whole, column = self._part.get(id(node), (node, 0))
        return View("%buf", self._offset[id(whole)] + column, whole.shape[1])

    def _take(self, size: int) -> int:
        for k, (start, length) in enumerate(self._free):
            if length >= size:
                self._free[k : k + 1] = [(start + size, length - size)] if length > size else []
                return start
        start = self.rows
        if self._free and sum(self._free[-1]) == self.rows:
            start, _ = self._free.pop()
        self.rows = start + size
        return start

    def _give_back(self, start: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for begin, length in sorted([*self._free, (start, size)]):
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((begin, length))
        self._free = merged


def count(node: Node) -> int:
    """Return the rows of a value."""
    size = node.shape[0] * node.shape[1]
    return size + -size % ROUNDED if node.kind == "normal" else size
