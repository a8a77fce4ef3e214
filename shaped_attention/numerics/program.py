"""Assembly of a trace into a program: instructions on rows of one buffer, and its layout.

The value of each operation occupies rows of a buffer (rows, STRIDE), which are reused after its
last use. A value that becomes a part of a larger matrix is written there directly.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Graph, Matrix, Node, needed
from shaped_attention.numerics.operation_codes import CODE
from shaped_attention.numerics.scalars import Depths, Number, Scalar, name_of, value

(
    OP, OUT, OUT_COLUMNS, A, B, ROWS, INNER, COLUMNS, A_LOWER, B_LOWER, B_ROWS, B_COLUMNS,
    SCALAR, SCALAR_2, KEY, SLOT, WORK, COUNT, FIRST, LAST,
) = range(20)  # fmt: skip
"""Fields of an instruction."""

COPIES = B_ROWS
"""Number of columns of which an activated Gram matrix has a function; it has no second input."""

HIDDEN_COLUMNS = 8
"""Number of columns of an activated Gram matrix drawn at once; even, to keep pairs together."""

_IN_PLACE = {"multiply_nn", "multiply_nt", "multiply_tn", "combine", "scale"}
"""Operations that can write into a part of a larger matrix."""


@dataclass
class Program:
    """Instructions for a step, and their data.

    Attributes
    ----------
    code
        Instructions (count, 20); the constants of this module name the columns.
    rows
        Number of rows of the buffer.
    inputs, outputs
        Offsets and shapes of the input and output matrices of the step.
    constants
        Offsets and entries of constant matrices.
    scalars
        Numbers that the instructions look up by index.
    addresses
        Addresses of the random numbers, by the index of their key.
    normals
        Number of normals drawn per step, without those of Wishart factors and hidden columns.
    nodes
        Operations in order, for printing and for the executor on large matrices.
    spans
        First instruction, and that after the last, of each of the nodes.
    regions
        Rows of the value of each node: first row, rows and columns of the matrix, and rows of the
        buffer from one row of the matrix to the next.
    """

    code: NDArray[np.int64]
    rows: int
    inputs: list[tuple[int, tuple[int, int]]]
    outputs: list[tuple[int, tuple[int, int]]]
    constants: list[tuple[int, NDArray[np.float64]]]
    scalars: list[Number]
    addresses: list[Hashable]
    normals: int
    nodes: list[Node] = field(repr=False, default_factory=list)
    results: list[Node] = field(repr=False, default_factory=list)
    spans: list[tuple[int, int]] = field(repr=False, default_factory=list)
    regions: list[tuple[int, int, int, int]] = field(repr=False, default_factory=list)

    @property
    def numbers(self) -> int:
        """Number of random numbers drawn per step, a chi variable counted as one normal."""
        count = 0
        for node in self.nodes:
            rows, columns = node.shape
            if node.kind == "wishart" and node.lower:
                count += rows * (rows + 1) // 2
            elif node.kind in ("normal", "wishart"):
                count += rows * columns
            elif node.kind == "activated_gram":
                _, units, copies = node.integers
                count += units * copies * node.inputs[0].shape[1]
        return count

    def table(self, depths: Depths) -> NDArray[np.float64]:
        """Return the scalars (layers, count) at relative depths."""
        result = np.zeros((len(depths), max(1, len(self.scalars))))
        for k, number in enumerate(self.scalars):
            result[:, k] = value(number, depths)
        return result


class _Rows:
    """Allocator of rows of the buffer, first fit."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []

    def take(self, count: int) -> int:
        for k, (start, length) in enumerate(self._free):
            if length >= count:
                if length == count:
                    del self._free[k]
                else:
                    self._free[k] = (start + count, length - count)
                return start
        start = self.size
        if self._free and sum(self._free[-1]) == self.size:
            start, _ = self._free.pop()
        self.size = start + count
        return start

    def give_back(self, start: int, count: int) -> None:
        spans = sorted([*self._free, (start, count)])
        merged: list[tuple[int, int]] = []
        for begin, length in spans:
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((begin, length))
        self._free = merged


def assemble(graph: Graph, inputs: Sequence[Matrix], outputs: Sequence[Matrix]) -> Program:
    """Turn a trace into a program.

    `inputs` are nodes of kind "input". They and the constants keep their rows throughout, since a
    program runs for many steps.
    """
    results = [_copied(matrix.value()) for matrix in outputs]
    nodes = needed([x.node for x in results] + [x.node for x in inputs], graph.nodes)
    return _Assembler(nodes, [x.node for x in inputs], [x.node for x in results]).program()


def _copied(output: Matrix) -> Matrix:
    """Return a copy of an output that is an input: inputs are overwritten one by one."""
    node = output.node
    if node.kind != "input":
        return output
    return output.graph.node("scale", (node,), node.shape, (1.0,), lower=node.lower)


class _Assembler:
    def __init__(self, nodes: list[Node], inputs: list[Node], results: list[Node]) -> None:
        self.nodes, self.inputs, self.results = nodes, inputs, results
        self.rows = _Rows()
        self.offset: dict[int, int] = {}
        self.owner: dict[int, Node] = {}
        self.scalars: list[Number] = []
        self.places: dict[Hashable, int] = {}
        self.addresses: list[Hashable] = []
        self.code: list[list[int]] = []
        self.normals = 0
        self.uses: dict[int, int] = {}
        self.last: dict[int, int] = {}
        for k, node in enumerate(nodes):
            for x in node.inputs:
                self.uses[id(x)] = self.uses.get(id(x), 0) + 1
                self.last[id(x)] = k
        for node in results:
            self.uses[id(node)] = self.uses.get(id(node), 0) + 1
            self.last[id(node)] = len(nodes)
        # Parts that are written directly into the larger matrix.
        self.inside: dict[int, tuple[Node, int]] = {}
        for node in nodes:
            if node.kind == "concatenate":
                column = 0
                for part in node.inputs:
                    fresh = part.kind in _IN_PLACE and self.uses[id(part)] == 1
                    if fresh and id(part) not in self.inside:
                        self.inside[id(part)] = (node, column)
                    column += part.shape[1]

    def program(self) -> Program:
        pinned = {id(x) for x in self.inputs}
        constants = []
        for node in self.inputs:
            self.offset[id(node)] = self.rows.take(_count(node))
        for node in self.nodes:
            if node.kind == "constant":
                self.offset[id(node)] = self.rows.take(_count(node))
                pinned.add(id(node))
            if node.kind == "constant":
                assert node.data is not None
                constants.append((self.offset[id(node)], node.data))
        alive: dict[int, tuple[int, int]] = {}
        ends: dict[int, list[int]] = {}
        spans: list[tuple[int, int]] = []
        for k, node in enumerate(self.nodes):
            begin = len(self.code)
            if id(node) not in pinned:
                if id(node) in self.inside:
                    whole, column = self.inside[id(node)]
                    if id(whole) not in self.offset:
                        self._take(whole, alive, ends)
                    self.offset[id(node)] = self.offset[id(whole)] + column
                elif id(node) not in self.offset:
                    self._take(node, alive, ends)
                work = self._emit(node)
                if work is not None:
                    self.rows.give_back(*work)
            for key in ends.get(k, ()):
                self.rows.give_back(*alive.pop(key))
            spans.append((begin, len(self.code)))
        return Program(
            np.array(self.code, dtype=np.int64).reshape(-1, 20),
            max(1, self.rows.size),
            [(self.offset[id(x)], x.shape) for x in self.inputs],
            [(self.offset[id(x)], x.shape) for x in self.results],
            constants,
            self.scalars,
            self.addresses,
            self.normals,
            self.nodes,
            self.results,
            spans,
            [self._region(node) for node in self.nodes],
        )

    def _region(self, node: Node) -> tuple[int, int, int, int]:
        whole = self.inside.get(id(node))
        step = whole[0].shape[1] if whole else node.shape[1]
        return (self.offset[id(node)], *node.shape, step)

    def _take(
        self, node: Node, alive: dict[int, tuple[int, int]], ends: dict[int, list[int]]
    ) -> None:
        count = _count(node)
        self.offset[id(node)] = self.rows.take(count)
        alive[id(node)] = (self.offset[id(node)], count)
        ends.setdefault(self.last.get(id(node), len(self.nodes)), []).append(id(node))

    def _kept(self, node: Node) -> bool:
        """Return whether the value of a node must outlive an operation on it."""
        return self.uses[id(node)] > 1 or node.kind in ("input", "constant")

    def _scalar(self, number: Number) -> int:
        place = self.places.setdefault(name_of(number), len(self.scalars))
        if place == len(self.scalars):
            self.scalars.append(number)
        return place

    def _key(self, address: Hashable) -> int:
        if address not in self.addresses:
            self.addresses.append(address)
        return self.addresses.index(address)

    def _emit(self, node: Node) -> tuple[int, int] | None:
        """Append the instructions of a node; return the rows of its scratch."""
        kind, (rows, columns) = node.kind, node.shape
        line = [0] * 20
        line[OP], line[OUT], line[ROWS], line[COLUMNS] = (
            CODE[kind],
            self.offset[id(node)],
            rows,
            columns,
        )
        whole = self.inside.get(id(node))
        line[OUT_COLUMNS] = whole[0].shape[1] if whole else columns
        for name, x in zip((A, B), node.inputs, strict=False):
            line[name] = self.offset[id(x)]
        for name, x in zip((A_LOWER, B_LOWER), node.inputs, strict=False):
            line[name] = int(x.lower)
        if len(node.inputs) > 1:
            line[B_ROWS], line[B_COLUMNS] = node.inputs[1].shape
        for name, number in zip((SCALAR, SCALAR_2), node.scalars, strict=False):
            line[name] = self._scalar(number)
        if node.inputs:
            first = node.inputs[0]
            line[INNER] = first.shape[0] if kind in ("multiply_tn", "cogram") else first.shape[1]
        if node.address is not None:
            line[KEY] = self._key(node.address)
            line[SLOT] = node.integers[0]
        work = None
        scratch = _scratch(node)
        if kind == "lower" and self._kept(node.inputs[0]):
            # The operation overwrites its input, which is needed later: it works on a copy.
            scratch += _count(node.inputs[0])
        if scratch:
            work = (self.rows.take(scratch), scratch)
            line[WORK] = work[0]
        if kind == "normal":
            line[COUNT] = self.normals
            self.normals += rows * columns
        elif kind == "wishart":
            line[COUNT] = node.integers[1]
        elif kind == "column_sums":
            line[COUNT] = node.inputs[0].shape[0]
        elif kind == "columns":
            line[COUNT] = node.integers[0]
        elif kind == "activated_gram":
            return self._emit_activated(node, line, work)
        elif kind == "concatenate":
            self._emit_parts(node, line)
            return None
        elif kind == "lower" and self._kept(node.inputs[0]):
            assert work is not None
            copy = list(line)
            copy[OP], copy[OUT] = CODE["scale"], work[0] + 1 + rows
            copy[OUT_COLUMNS] = copy[COLUMNS] = line[INNER]
            copy[SCALAR] = self._scalar(1.0)
            self.code.append(copy)
            line[A] = copy[OUT]
        self.code.append(line)
        return work

    def _emit_parts(self, node: Node, line: list[int]) -> None:
        column = 0
        for part, coefficient in zip(node.inputs, node.scalars, strict=True):
            copy = list(line)
            copy[A] = self.offset[id(part)]
            copy[OUT] += column
            copy[INNER] = part.shape[1]
            copy[COLUMNS] = part.shape[1]
            copy[SCALAR] = self._scalar(coefficient)
            if id(part) in self.inside and self.inside[id(part)][0] is node:
                copy[A] = copy[OUT]
                copy[INNER] = copy[OUT_COLUMNS]
                if not isinstance(coefficient, Scalar) and coefficient == 1.0:
                    column += part.shape[1]
                    continue
            self.code.append(copy)
            column += part.shape[1]

    def _emit_activated(
        self, node: Node, line: list[int], work: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Append the loop over columns, then the instructions of the activation that it calls."""
        assert work is not None
        assert node.inside is not None
        inside, result = node.inside
        _, count, copies = node.integers
        rows = node.shape[0]
        # Scratch rows: normals, then the values of the activation, its arguments first.
        start = work[0] + copies * node.inputs[0].shape[1] * HIDDEN_COLUMNS + 1
        places, _ = _places(inside, result)
        position = {key: start + rows * HIDDEN_COLUMNS * k for key, k in places.items()}
        line[COUNT], line[COPIES] = count, copies
        line[FIRST] = len(self.code) + 1
        self.code.append(line)
        for inner in needed([result], inside.nodes):
            if inner.kind == "input":
                continue
            own = [0] * 20
            own[OP], own[OUT] = CODE[inner.kind], position[id(inner)]
            own[ROWS], own[COLUMNS] = rows, HIDDEN_COLUMNS
            own[OUT_COLUMNS] = own[INNER] = HIDDEN_COLUMNS
            for name, x in zip((A, B), inner.inputs, strict=False):
                own[name] = position[id(x)]
            own[B_ROWS], own[B_COLUMNS] = rows, HIDDEN_COLUMNS
            for name, number in zip((SCALAR, SCALAR_2), inner.scalars, strict=False):
                own[name] = self._scalar(number)
            self.code.append(own)
        line[LAST] = len(self.code)
        line[B] = position[id(result)]
        return work


def _places(inside: Graph, result: Node) -> tuple[dict[int, int], int]:
    """Assign each value of an activation its own block of scratch.

    A loop that overwrites its argument would not be vectorised.
    """
    nodes = needed([result], inside.nodes)
    return {id(node): k for k, node in enumerate(nodes)}, len(nodes)


def _count(node: Node) -> int:
    """Return the rows of a value; an odd number of normals is drawn with one more."""
    size = node.shape[0] * node.shape[1]
    return size + size % 2 if node.kind in ("normal", "wishart") else size


def _scratch(node: Node) -> int:
    """Return the rows that an operation needs besides its value."""
    rows = node.shape[0]
    if node.kind == "softmax":
        return 2
    if node.kind in ("cholesky", "unit_rows"):
        return 1
    if node.kind == "lower":
        return 1 + rows
    if node.kind == "wishart":
        return rows * (rows - 1) // 2 + 1 + rows + 1 if node.lower else 0
    if node.inside is not None:
        _, blocks = _places(*node.inside)
        normals = node.integers[2] * node.inputs[0].shape[1] * HIDDEN_COLUMNS + 1
        return normals + blocks * rows * HIDDEN_COLUMNS
    return 0
