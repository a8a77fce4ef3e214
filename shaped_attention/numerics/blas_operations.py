"""The operations of a graph on large matrices: library routines, or loops over entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from shaped_attention.numerics import entries, lapack
from shaped_attention.numerics.graph import Node, Shape
from shaped_attention.numerics.threefry import fill_chi, fill_weights, path_words

Array = NDArray[np.float64]

COLUMNS = 256
"""Number of hidden units at once; fixed, since it determines the order of a sum."""


class Memory:
    """Free arrays for reuse, by size."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def take(self, shape: Shape) -> Array:
        """Return an uninitialised array."""
        size = shape[0] * shape[1]
        free = self._free.get(size)
        flat = free.pop() if free else np.empty(size)
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
    inputs, output
        Numbers of the values; `ends` are those that are not needed afterwards.
    scalars
        Scalars of the node (layers or 1, count).
    key
        Key of its random numbers.
    start
        Number of normals before its own, for a normal node.
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


def draw(operation: Operation, sample: int, step: int, row: int, out: Array) -> None:
    """Write the numbers of a normal node."""
    fill_weights(out[None], operation.key, sample, step, operation.node.integers[0], 0)
    (scale,) = operation.numbers(row)
    if scale != 1.0:
        out *= scale


def _normal(op: Operation, place: Place, out: Array) -> None:
    flat = out.reshape(-1)
    if place.given is None:
        draw(op, place.sample, place.step, place.row, flat)
    else:
        flat[:] = place.given[op.start : op.start + out.size]


def _wishart(op: Operation, place: Place, out: Array) -> None:
    slot, dof = op.node.integers
    rows = len(out)
    if not op.node.lower:
        fill_weights(out.reshape(1, -1), op.key, place.sample, place.step, slot, 0)
        return
    below = np.empty((1, rows * (rows - 1) // 2))
    fill_weights(below, op.key, place.sample, place.step, slot, 0)
    chi = np.empty((rows, 1))
    path = path_words(place.sample, 1, place.step)
    fill_chi(chi, dof - np.arange(rows, dtype=np.float64), op.key, path, slot + 1)
    entries.triangle(below[0], chi[:, 0], out)


def _activated_gram(op: Operation, place: Place, out: Array, factor: Array) -> None:
    assert op.inside is not None
    memory = place.memory
    slot, count, copies = op.node.integers
    each = copies * factor.shape[1]
    out.fill(0.0)
    for start in range(0, count, COLUMNS):
        here = min(COLUMNS, count - start)
        normals = memory.take((here, each))
        fill_weights(
            normals.reshape(1, -1), op.key, place.sample, place.step, slot, start * each // 2
        )  # fmt: skip
        hidden = [_hidden(op, memory, factor, part) for part in np.split(normals, copies, axis=1)]
        memory.give_back(normals)
        activated = op.inside.activate(hidden, place)
        lapack.add_cogram(activated, out)
        for array in hidden:
            memory.give_back(array)
        if not any(activated is array for array in hidden):
            memory.give_back(activated)
    entries.mirror(out)


def _hidden(op: Operation, memory: Memory, factor: Array, normals: Array) -> Array:
    """Return hidden units (columns, m) made from normals (columns, c)."""
    hidden = memory.take((len(normals), len(factor)))
    if op.node.inputs[0].lower:
        hidden[...] = normals
        lapack.multiply_triangular(factor, hidden, left=False, transposed=True)
    else:
        np.matmul(normals, factor.T, out=hidden)
    return hidden


def _multiply(op: Operation, place: Place, out: Array, a: Array, b: Array) -> None:
    """Write A B, A B^T or A^T B; a product with a triangular matrix costs half."""
    left, right = op.node.inputs
    kind = op.node.kind
    a_here = a.T if kind == "multiply_tn" else a
    b_here = b.T if kind == "multiply_nt" else b
    if left.lower and left.shape[0] > 1:
        out[...] = b_here
        lapack.multiply_triangular(a, out, left=True, transposed=kind == "multiply_tn")
    elif right.lower and right.shape[0] > 1:
        out[...] = a_here
        lapack.multiply_triangular(b, out, left=False, transposed=kind == "multiply_nt")
    else:
        np.matmul(a_here, b_here, out=out)


def _combine(op: Operation, place: Place, out: Array, a: Array, b: Array) -> None:
    s, t = op.numbers(place.row)
    if a.shape == b.shape:
        entries.combine(a.reshape(-1), b.reshape(-1), s, t, out.reshape(-1))
    else:
        np.multiply(a, s, out=out)
        out += t * b


def _shift(op: Operation, place: Place, out: Array, a: Array) -> None:
    s, t = op.numbers(place.row)
    np.multiply(a, s, out=out)
    out += t


def _columns(op: Operation, place: Place, out: Array, a: Array) -> None:
    (start,) = op.node.integers
    out[...] = a[:, start : start + out.shape[1]]


def _concatenate(op: Operation, place: Place, out: Array, *parts: Array) -> None:
    column = 0
    for part, number in zip(parts, op.numbers(place.row), strict=True):
        np.multiply(part, number, out=out[:, column : column + part.shape[1]])
        column += part.shape[1]


def _unit_rows(op: Operation, place: Place, out: Array, a: Array) -> None:
    square = np.einsum("ij,ij->i", a, a)
    np.multiply(a, np.where(square > 0.0, 1.0 / np.sqrt(square), 1.0)[:, None], out=out)


def _softmax(op: Operation, place: Place, out: Array, logits: Array, seen: Array) -> None:
    (scale,) = op.numbers(place.row)
    np.multiply(logits, scale, out=out)
    if not seen.all():
        np.copyto(out, -np.inf, where=seen == 0.0)
    out -= out.max(axis=1, keepdims=True)
    np.exp(out, out=out)
    out *= 1.0 / out.sum(axis=1, keepdims=True)


def _leaky(op: Operation, place: Place, out: Array, a: Array) -> None:
    entries.leaky(a.reshape(-1), *op.numbers(place.row), out.reshape(-1))


def _written(function: Callable[..., Any]) -> Callable[..., None]:
    """Return the operation without parameters of a function ``f(*values, out)``."""
    return lambda op, place, out, *values: function(*values, out)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "normal": _normal,
    "wishart": _wishart,
    "activated_gram": _activated_gram,
    "multiply_nn": _multiply,
    "multiply_nt": _multiply,
    "multiply_tn": _multiply,
    "gram": _written(lambda a, out: np.matmul(a, a.T, out=out)),
    "cogram": _written(lambda a, out: np.matmul(a.T, a, out=out)),
    "combine": _combine,
    "times": _written(np.multiply),
    "over": _written(np.divide),
    "scale": lambda op, place, out, a: np.multiply(a, op.numbers(place.row)[0], out=out),
    "shift": _shift,
    "transpose": _written(lambda a, out: np.copyto(out, a.T)),
    "reshape": _written(lambda a, out: np.copyto(out, a.reshape(out.shape))),
    "columns": _columns,
    "concatenate": _concatenate,
    "row_sums": _written(lambda a, out: a.sum(axis=1, keepdims=True, out=out)),
    "column_sums": _written(lambda a, out: a.sum(axis=0, keepdims=True, out=out)),
    "row_squares": _written(lambda a, out: np.einsum("ij,ij->i", a, a, out=out[:, 0])),
    "diagonal": _written(lambda a, out: np.copyto(out[:, 0], np.diagonal(a))),
    "unit_rows": _unit_rows,
    "softmax": _softmax,
    "symmetric": _written(lambda a, out: entries.symmetric(a.reshape(-1), out)),
    "lower": _written(lapack.lower_factor),
    "cholesky": _written(lapack.cholesky),
    "arc_cosine": _written(entries.arc_cosine),
    "sqrt": _written(np.sqrt),
    "exp": _written(np.exp),
    "tanh": _written(np.tanh),
    "normal_cdf": _written(ndtr),
    "sigmoid": _written(expit),
    "softplus": _written(lambda a, out: np.logaddexp(0.0, a, out=out)),
    "leaky": _leaky,
}
