"""Values and operations of a program run by library routines, and the memory of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.scalars import Depths, Number, value

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
    """Context of a program: counter words of its samples, memory, the normals if given, and row.

    `paths` (samples,) are as in `threefry`; `row` is that of the scalars.
    """

    paths: NDArray[np.uint64]
    memory: Memory
    given: Array | None
    row: int


@dataclass
class Operation:
    """A node with the data needed to run it.

    Attributes
    ----------
    node
        Node of the graph to compute.
    inputs
        Numbers of the values that are its arguments.
    output
        Number of the value; `ends` are those that are not needed afterwards.
    scalars
        Scalars of the node (layers or 1, count).
    key
        Key of its random numbers.
    start
        Number of normals before its own.
    inside
        Activation of hidden units: a `blas_plan.Plan`, or a `hidden_tiles.Activation` for few
        tokens.
    """

    node: Node
    inputs: tuple[int, ...]
    output: int
    ends: tuple[int, ...]
    scalars: Array
    key: Any
    start: int
    inside: Any

    def numbers(self, step: int) -> list[float]:
        """Return the scalars of a step."""
        return row_of(self.scalars, step).tolist()


def row_of(table: Array, step: int) -> Array:
    """Return the scalars of a step; a table with one row has those of all steps."""
    row: Array = table[step if len(table) > 1 else 0]
    return row


def table_of(numbers: Sequence[Number], depths: Depths) -> Array:
    """Return scalars (steps, count), or (1, count) if they are those of all steps."""
    columns = [np.broadcast_to(value(x, depths), depths.shape) for x in numbers]
    table = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
    return table[:1] if (table == table[0]).all() else table
