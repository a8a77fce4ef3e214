"""Values and operations of a program on large matrices, and the memory of the values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
        Activation of hidden units, a `blas_plan.Plan`.
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
        row: list[float] = self.scalars[step if len(self.scalars) > 1 else 0].tolist()
        return row
