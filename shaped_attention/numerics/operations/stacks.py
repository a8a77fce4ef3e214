"""Stacks of matrices, on which operations run by library routines or loops over entries.

A value, a constant included, is an array (samples, rows, columns). What is computed for a sample
does not depend on the others in its stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.jit import kernel

Array = NDArray[np.float64]

FEWEST_LARGE_TOKENS = 96
"""Least rows at which library routines are faster than tiles and small kernels (measured)."""


def is_large(rows: int) -> bool:
    """Return whether library routines are faster than kernels, for matrices of that many rows."""
    return rows >= FEWEST_LARGE_TOKENS


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
    normals: Array | None
    row: int


@dataclass
class Step:
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
        Activation of hidden units: a `plan.Plan`, or a `hidden.Activation` for few tokens.
    """

    node: Node
    inputs: tuple[int, ...]
    output: int
    ends: tuple[int, ...]
    scalars: Array
    key: Any
    start: int
    inside: Any

    def numbers(self, place: Place) -> list[float]:
        """Return the scalars of the node."""
        return row_of(self.scalars, place.row).tolist()


def row_of(table: Array, step: int) -> Array:
    """Return the scalars of a step; a table with one row has those of all steps."""
    return table[step if len(table) > 1 else 0]


def plain(function: Callable[..., Any]) -> Callable[..., None]:
    """Return the operation without parameters of a function ``f(*values, out)``."""
    return lambda step, place, out, *values: function(*values, out)


def flat(function: Callable[[Array, Array], Any]) -> Callable[..., None]:
    """Return the operation of a function ``f(entries, out)`` of single entries."""
    return lambda step, place, out, x: function(x.reshape(-1), out.reshape(-1))


def each(function: Callable[[Array, Array], None]) -> Callable[[Array, Array], None]:
    """Return the function on stacks of a function ``f(value, out)`` of matrices."""

    def on_stacks(values: Array, out: Array) -> None:
        for k, here in enumerate(out):
            function(values[k if len(values) > 1 else 0], here)

    return on_stacks


@kernel
def mirror(square):  # type: ignore[no-untyped-def]
    """Copy the lower triangle of (samples, m, m) to the upper one, in blocks that fit the cache."""
    size, block = square.shape[1], 32
    for s in range(square.shape[0]):
        for first in range(0, size, block):
            for second in range(0, first + block, block):
                for i in range(first, min(first + block, size)):
                    for j in range(second, min(second + block, i)):
                        square[s, j, i] = square[s, i, j]
