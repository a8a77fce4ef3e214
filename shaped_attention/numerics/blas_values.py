"""Values and operations of a program on large matrices, and the memory of the values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Node

Array = NDArray[np.float64]


class Memory:
    """Free arrays for reuse, by size; threads may share them."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """Return an uninitialised array."""
        size = math.prod(shape)
        try:
            flat = self._free[size].pop()
        except (KeyError, IndexError):
            flat = np.empty(size)
        return flat.reshape(shape)

    def give_back(self, array: Array) -> None:
        """Return an array that is no longer needed to the pool."""
        self._free.setdefault(array.size, []).append(array.reshape(-1))


@dataclass
class Place:
    """Context of a program: sample, step, memory, the normals if given, and the row of scalars."""

    sample: int
    step: int
    memory: Memory
    given: Array | None
    row: int


class Source(NamedTuple):
    """A value, or one member or several of a stack of values."""

    value: int
    member: int | NDArray[np.int64] | None = None

    def of(self, values: dict[int, Array]) -> Array:
        """Return the array."""
        whole = values[self.value]
        result: Array = whole if self.member is None else whole[self.member]
        return result


@dataclass
class Operation:
    """One or several nodes with the data needed to run them.

    Attributes
    ----------
    nodes
        Nodes of the graph to compute: one, or several of one kind, whose values are then stacked.
    inputs
        Values that are its arguments.
    output
        Number of the value; `ends` are those that are not needed afterwards.
    scalars
        Scalars of the nodes (layers or 1, count).
    key
        Key of their random numbers.
    starts
        Number of normals before those of each node.
    inside
        Activation of hidden units, a `blas_plan.Plan`.
    """

    nodes: list[Node]
    inputs: tuple[Source, ...]
    output: int
    ends: tuple[int, ...]
    scalars: Array
    key: Any
    starts: list[int]
    inside: Any

    @property
    def node(self) -> Node:
        """The first node; the others differ in their random numbers and inputs alone."""
        return self.nodes[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        stack = (len(self.nodes),) if len(self.nodes) > 1 else ()
        return (*stack, *self.node.shape)

    def numbers(self, step: int) -> list[float]:
        """Return the scalars of a step."""
        row: list[float] = self.scalars[step if len(self.scalars) > 1 else 0].tolist()
        return row
