"""Assembly of a trace into a program: instructions on rows of one buffer, and its layout.

The value of each operation occupies rows of a buffer (rows, STRIDE), which are reused after its
last use. A value that becomes a part of a larger matrix is written there directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Graph, Matrix, Node, needed
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.hidden import HIDDEN_COLUMNS, first_block, places
from shaped_attention.numerics.operations.registry import OPERATIONS, code_of
from shaped_attention.numerics.scalars import Number, is_one, name_of


@dataclass
class Program:
    """Instructions for a step, and their data.

    Attributes
    ----------
    code
        Instructions (count, fields); `operations.registry` names the fields.
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
        self.scalars: list[Number] = []
        self.places: dict[Hashable, int] = {}
        self.addresses: list[Hashable] = []
        self.code: list[list[int]] = []
        self.normals = 0
        self.uses = Counter(id(x) for node in nodes for x in node.inputs)
        self.uses.update(id(node) for node in results)
        self.last: dict[int, int] = {}
        for k, node in enumerate(nodes):
            for x in node.inputs:
                self.last[id(x)] = k
        self.last.update((id(node), len(nodes)) for node in results)
        # Parts that are written directly into the larger matrix.
        self.inside: dict[int, tuple[Node, int]] = {}
        for node in nodes:
            if node.kind == "concatenate":
                column = 0
                for part in node.inputs:
                    known = OPERATIONS.get(part.kind)
                    if known and known.in_place and self.uses[id(part)] == 1:
                        self.inside[id(part)] = (node, column)
                    column += part.shape[1]

    def program(self) -> Program:
        pinned = {id(x) for x in self.inputs}
        constants = []
        for node in self.inputs:
            self.offset[id(node)] = self.rows.take(_count(node))
        for node in self.nodes:
            if node.data is not None:
                self.offset[id(node)] = self.rows.take(_count(node))
                pinned.add(id(node))
                constants.append((self.offset[id(node)], node.data))
        alive: dict[int, tuple[int, int]] = {}
        ends: dict[int, list[int]] = {}
        for k, node in enumerate(self.nodes):
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
        return Program(
            np.array(self.code, dtype=np.int64).reshape(-1, at.SIZE),
            max(1, self.rows.size),
            [(self.offset[id(x)], x.shape) for x in self.inputs],
            [(self.offset[id(x)], x.shape) for x in self.results],
            constants,
            self.scalars,
            self.addresses,
            self.normals,
            self.nodes,
            self.results,
        )

    def _take(
        self, node: Node, alive: dict[int, tuple[int, int]], ends: dict[int, list[int]]
    ) -> None:
        count = _count(node)
        self.offset[id(node)] = self.rows.take(count)
        alive[id(node)] = (self.offset[id(node)], count)
        ends.setdefault(self.last.get(id(node), len(self.nodes)), []).append(id(node))

    def _scalar(self, number: Number) -> int:
        place = self.places.setdefault(name_of(number), len(self.scalars))
        if place == len(self.scalars):
            self.scalars.append(number)
        return place

    def _key(self, address: Hashable) -> int:
        if address not in self.addresses:
            self.addresses.append(address)
        return self.addresses.index(address)

    def _line(self, node: Node, offset: dict[int, int], size: int) -> list[int]:
        """Return an instruction on values at given rows, with `size` columns in each row."""
        line = [0] * at.SIZE
        line[at.OP], line[at.FLAG] = code_of(node.kind), OPERATIONS[node.kind].flag
        line[at.OUT], line[at.OUT_COLUMNS] = offset[id(node)], size
        line[at.ROWS], line[at.COLUMNS] = node.shape
        a = (at.A, at.A_LOWER, at.A_ROWS, at.A_COLUMNS)
        b = (at.B, at.B_LOWER, at.B_ROWS, at.B_COLUMNS)
        for (start, lower, rows, columns), x in zip((a, b), node.inputs, strict=False):
            line[start], line[lower] = offset[id(x)], int(x.lower)
            line[rows], line[columns] = x.shape
        for name, number in zip((at.SCALAR, at.SCALAR_2), node.scalars, strict=False):
            line[name] = self._scalar(number)
        for name, integer in zip((at.SLOT, at.COUNT, at.COPIES), node.integers, strict=False):
            line[name] = integer
        return line

    def _emit(self, node: Node) -> tuple[int, int] | None:
        """Append the instructions of a node; return the rows of its scratch."""
        faces, whole = OPERATIONS[node.kind], self.inside.get(id(node))
        line = self._line(node, self.offset, whole[0].shape[1] if whole else node.shape[1])
        if node.address is not None:
            line[at.KEY] = self._key(node.address)
        if node.kind == "concatenate":
            self._emit_parts(node, line)
            return None
        scratch, first = faces.scratch(node), node.inputs[0] if node.inputs else node
        # An operation must not overwrite an input that is needed later.
        kept = self.uses[id(first)] > 1 or first.kind in ("input", "constant")
        copied = faces.overwrites and kept
        work = None
        if scratch or copied:
            rows = scratch + (_count(node.inputs[0]) if copied else 0)
            work = (self.rows.take(rows), rows)
            line[at.WORK] = work[0]
        if node.kind == "normal":
            line[at.START] = self.normals
            self.normals += node.shape[0] * node.shape[1]
        if copied:
            # The input is needed later: the operation overwrites a copy.
            assert work is not None
            copy = list(line)
            copy[at.OP], copy[at.FLAG] = code_of("scale"), OPERATIONS["scale"].flag
            copy[at.OUT] = line[at.A] = work[0] + scratch
            copy[at.A] = self.offset[id(node.inputs[0])]
            copy[at.ROWS], copy[at.COLUMNS] = node.inputs[0].shape
            copy[at.OUT_COLUMNS] = copy[at.COLUMNS]
            copy[at.SCALAR] = self._scalar(1.0)
            self.code.append(copy)
        if node.inside is not None:
            assert work is not None
            self._emit_activated(node, line, work[0] + first_block(node))
        else:
            self.code.append(line)
        return work

    def _emit_parts(self, node: Node, line: list[int]) -> None:
        column = 0
        for part, coefficient in zip(node.inputs, node.scalars, strict=True):
            copy = list(line)
            copy[at.A] = self.offset[id(part)]
            copy[at.OUT] += column
            copy[at.A_COLUMNS] = copy[at.COLUMNS] = part.shape[1]
            copy[at.SCALAR] = self._scalar(coefficient)
            if id(part) in self.inside and self.inside[id(part)][0] is node:
                copy[at.A] = copy[at.OUT]
                copy[at.A_COLUMNS] = copy[at.OUT_COLUMNS]
                if is_one(coefficient):
                    column += part.shape[1]
                    continue
            self.code.append(copy)
            column += part.shape[1]

    def _emit_activated(self, node: Node, line: list[int], start: int) -> None:
        """Append the loop over columns, then the instructions of the activation that it calls.

        The values of the activation have scratch rows from `start` on, its arguments first.
        """
        assert node.inside is not None
        inside, result = node.inside
        rows = node.shape[0]
        position = {
            key: start + rows * HIDDEN_COLUMNS * k for key, k in places(inside, result).items()
        }
        line[at.FIRST] = len(self.code) + 1
        self.code.append(line)
        for inner in needed([result], inside.nodes):
            if inner.kind != "input":
                inner_line = self._line(inner, position, HIDDEN_COLUMNS)
                for column in (at.COLUMNS, at.A_COLUMNS, at.B_COLUMNS):
                    inner_line[column] = HIDDEN_COLUMNS
                self.code.append(inner_line)
        line[at.LAST] = len(self.code)
        line[at.B] = position[id(result)]


def _count(node: Node) -> int:
    """Return the rows of a value; an odd number of normals is drawn with one more."""
    size = node.shape[0] * node.shape[1]
    return size + size % 2 if node.kind in ("normal", "wishart") else size
