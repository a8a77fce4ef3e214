"""The operations of a graph on large matrices: library routines, or loops over entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics import entries, lapack
from shaped_attention.numerics.blas_values import Memory, Operation, Place
from shaped_attention.numerics.threefry import fill_chi, fill_weights, path_words

Array = NDArray[np.float64]

COLUMNS = 256
"""Hidden units at once; fixed, since it determines the order of a sum."""

_FEWEST_TRIANGULAR = 32
"""Rows from which on a product that skips zeros is faster (measured)."""


def draw(operation: Operation, sample: int, step: int, row: int, out: Array) -> None:
    """Write the numbers of a normal node."""
    (slot, *_) = operation.node.integers
    fill_weights(out[None], operation.key, sample, step, slot, 0)
    (scale,) = operation.numbers(row)
    if scale != 1.0:
        out *= scale


def _normal(op: Operation, place: Place, out: Array) -> None:
    flat = out.reshape(-1)
    if place.given is None:
        draw(op, place.sample, place.step, place.row, flat)
    else:
        flat[:] = place.given[op.start : op.start + flat.size]


def _wishart(op: Operation, place: Place, out: Array) -> None:
    slot, dof = op.node.integers
    key, rows = op.key, len(out)
    if not op.node.lower:
        fill_weights(out.reshape(1, -1), key, place.sample, place.step, slot, 0)
        return
    below = np.empty((1, rows * (rows - 1) // 2))
    fill_weights(below, key, place.sample, place.step, slot, 0)
    chi = np.empty((rows, 1))
    path = path_words(place.sample, 1, place.step)
    fill_chi(chi, dof - np.arange(rows, dtype=np.float64), key, path, slot + 1)
    entries.triangle(below[0], chi[:, 0], out)


def _activated_part(op: Operation, place: Place, out: Array, factor: Array) -> None:
    """Write the lower triangle of the Gram matrix of the hidden units `first` to `last` - 1."""
    assert op.inside is not None
    memory = place.memory
    slot, first, last, copies = op.node.integers
    each = copies * factor.shape[1]
    turned = np.ascontiguousarray(factor.T)
    out.fill(0.0)
    for start in range(first, last, COLUMNS):
        here = min(COLUMNS, last - start)
        normals = memory.take((here, each))
        fill_weights(
            normals.reshape(1, -1), op.key, place.sample, place.step, slot, start * each // 2
        )  # fmt: skip
        columns = factor.shape[1]
        parts = [normals[:, k * columns : (k + 1) * columns] for k in range(copies)]
        hidden = [_hidden(op, memory, factor, turned, part) for part in parts]
        memory.give_back(normals)
        activated = op.inside.activate(hidden, place)
        lapack.add_cogram(activated, out)
        for array in hidden:
            memory.give_back(array)
        if not any(activated is array for array in hidden):
            memory.give_back(activated)


def _mirrored_sum(op: Operation, place: Place, out: Array, *parts: Array) -> None:
    """Write the symmetric matrix whose lower triangle is the sum of those of the parts."""
    np.copyto(out, parts[0])
    for part in parts[1:]:
        out += part
    entries.mirror(out)


def _hidden(op: Operation, memory: Memory, factor: Array, turned: Array, normals: Array) -> Array:
    """Return hidden units (columns, m) made from normals (columns, c)."""
    hidden = memory.take((len(normals), len(factor)))
    if op.node.inputs[0].lower and len(factor) >= _FEWEST_TRIANGULAR:
        hidden[...] = normals
        lapack.multiply_triangular(factor, hidden, left=False, transposed=True)
    else:
        np.matmul(normals, turned, out=hidden)
    return hidden


def _multiply(op: Operation, place: Place, out: Array, a: Array, b: Array) -> None:
    """Write A B, A B^T or A^T B; a large product with a triangular matrix costs half."""
    left, right = op.node.inputs
    kind = op.node.kind
    a_here = a.T if kind == "multiply_tn" else a
    b_here = b.T if kind == "multiply_nt" else b
    if left.lower and left.shape[0] >= _FEWEST_TRIANGULAR:
        out[...] = b_here
        lapack.multiply_triangular(a, out, left=True, transposed=kind == "multiply_tn")
    elif right.lower and right.shape[0] >= _FEWEST_TRIANGULAR:
        out[...] = a_here
        lapack.multiply_triangular(b, out, left=False, transposed=kind == "multiply_nt")
    else:
        np.matmul(a_here, b_here, out=out)


def _combine(op: Operation, place: Place, out: Array, a: Array, b: Array) -> None:
    s, t = op.numbers(place.row)
    if a.shape == b.shape == out.shape:
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
    out[...] = a[:, start : start + out.shape[-1]]


def _concatenate(op: Operation, place: Place, out: Array, *parts: Array) -> None:
    column = 0
    for part, number in zip(parts, op.numbers(place.row), strict=True):
        np.multiply(part, number, out=out[:, column : column + part.shape[-1]])
        column += part.shape[-1]


def _unit_rows(op: Operation, place: Place, out: Array, a: Array) -> None:
    square = np.einsum("ij,ij->i", a, a)
    np.multiply(a, np.where(square > 0.0, 1.0 / np.sqrt(square), 1.0)[:, None], out=out)


def _rotate(op: Operation, place: Place, out: Array, a: Array, turns: Array) -> None:
    """Rotate pairs of columns in each row; see `primitives.rotate`."""
    pairs = turns.shape[1] // 2
    cos, sin = turns[:, :pairs], turns[:, pairs:]
    x, y = a[:, :pairs], a[:, pairs : 2 * pairs]
    np.multiply(x, cos, out=out[:, :pairs])
    out[:, :pairs] -= y * sin
    np.multiply(y, cos, out=out[:, pairs : 2 * pairs])
    out[:, pairs : 2 * pairs] += x * sin
    out[:, 2 * pairs :] = a[:, 2 * pairs :]


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
    "activated_part": _activated_part,
    "mirrored_sum": _mirrored_sum,
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
    "rotate": _rotate,
    "softmax": _softmax,
    "symmetric": _written(lambda a, out: entries.symmetric(a.reshape(-1), out)),
    "lower": _written(lapack.lower_factor),
    "cholesky": _written(lapack.cholesky),
    "arc_cosine": _written(entries.arc_cosine),
    "sqrt": _written(np.sqrt),
    "exp": _written(np.exp),
    "tanh": _written(np.tanh),
    "normal_cdf": _written(lambda a, out: entries.normal_cdfs(a.reshape(-1), out.reshape(-1))),
    "sigmoid": _written(lambda a, out: entries.sigmoids(a.reshape(-1), out.reshape(-1))),
    "softplus": _written(lambda a, out: entries.softplus_values(a.reshape(-1), out.reshape(-1))),
    "leaky": _leaky,
}
