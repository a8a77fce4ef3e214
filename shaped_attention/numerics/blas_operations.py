"""The operations of a graph on stacks of matrices: library routines, or loops over entries.

A value is an array (samples, rows, columns), a constant one with a single sample. What is computed
for a sample does not depend on the others in its stack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics import entries, lapack
from shaped_attention.numerics.blas_values import Memory, Operation, Place
from shaped_attention.numerics.hidden_tiles import Activation
from shaped_attention.numerics.threefry import fill_chi, fill_weights

Array = NDArray[np.float64]

COLUMNS = 256
"""Hidden units at once; fixed, since it determines the order of a sum."""

FEWEST_LARGE_TOKENS = 96
"""Rows from which on library routines are faster than tiles and small kernels (measured)."""

_FEWEST_TRIANGULAR = 32
"""Rows from which on a product that skips zeros is faster (measured)."""


def is_large(rows: int) -> bool:
    """Return whether library routines are faster than kernels, for matrices of that many rows."""
    return rows >= FEWEST_LARGE_TOKENS


def draw(operation: Operation, paths: NDArray[np.uint64], row: int, out: Array) -> None:
    """Write the numbers of a normal node (samples, count)."""
    fill_weights(out, operation.key, paths, operation.node.integers[0], 0)
    (scale,) = operation.numbers(row)
    if scale != 1.0:
        out *= scale


def _normal(op: Operation, place: Place, out: Array) -> None:
    flat = out.reshape(len(out), -1)
    if place.given is None:
        draw(op, place.paths, place.row, flat)
    else:
        flat[:] = place.given[:, op.start : op.start + flat.shape[1]]


def _wishart(op: Operation, place: Place, out: Array) -> None:
    slot, dof = op.node.integers
    samples, rows, _ = out.shape
    if not op.node.lower:
        fill_weights(out.reshape(samples, -1), op.key, place.paths, slot, 0)
        return
    below, chi = np.empty((samples, rows * (rows - 1) // 2)), np.empty((rows, samples))
    fill_weights(below, op.key, place.paths, slot, 0)
    fill_chi(chi, dof - np.arange(rows, dtype=np.float64), op.key, place.paths, slot + 1)
    entries.triangle(below, chi, out)


def _activated_part(op: Operation, place: Place, out: Array, factor: Array) -> None:
    """Write the lower triangle of the Gram matrix of the hidden units `first` to `last` - 1."""
    slot, first, last, _ = op.node.integers
    if isinstance(op.inside, Activation):
        op.inside.add_gram(
            factor, op.node.inputs[0].lower, op.key, place.paths, slot, first, last, place.row, out
        )
        return
    for k, path in enumerate(place.paths):
        _large_part(op, place, out[k], factor[k], path)


def _large_part(op: Operation, place: Place, out: Array, factor: Array, path: np.uint64) -> None:
    """Do the same for one sample with many tokens."""
    memory = place.memory
    slot, first, last, copies = op.node.integers
    columns = factor.shape[1]
    each, paths = copies * columns, np.array([path])
    turned = np.ascontiguousarray(factor.T)
    out.fill(0.0)
    for start in range(first, last, COLUMNS):
        here = min(COLUMNS, last - start)
        normals = memory.take((here, each))
        fill_weights(normals.reshape(1, -1), op.key, paths, slot, start * each // 2)
        parts = [normals[:, k * columns : (k + 1) * columns] for k in range(copies)]
        hidden = [_hidden(op, memory, factor, turned, part) for part in parts]
        memory.give_back(normals)
        activated = op.inside.activate([array[None] for array in hidden], place)
        lapack.add_cogram(activated[0], out)
        for array in hidden:
            memory.give_back(array)
        if not any(np.shares_memory(activated, array) for array in hidden):
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
    a_here = a.mT if kind == "multiply_tn" else a
    b_here = b.mT if kind == "multiply_nt" else b
    if left.lower and left.shape[0] >= _FEWEST_TRIANGULAR:
        out[...] = b_here
        _each(partial(lapack.multiply_triangular, left=True, transposed=kind == "multiply_tn"))(
            a, out
        )
    elif right.lower and right.shape[0] >= _FEWEST_TRIANGULAR:
        out[...] = a_here
        _each(partial(lapack.multiply_triangular, left=False, transposed=kind == "multiply_nt"))(
            b, out
        )
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
    out[...] = a[..., start : start + out.shape[-1]]


def _concatenate(op: Operation, place: Place, out: Array, *parts: Array) -> None:
    column = 0
    for part, number in zip(parts, op.numbers(place.row), strict=True):
        np.multiply(part, number, out=out[..., column : column + part.shape[-1]])
        column += part.shape[-1]


def _unit_rows(op: Operation, place: Place, out: Array, a: Array) -> None:
    square = np.empty((*a.shape[:-1], 1))
    _row_squares(a, square)
    np.multiply(a, np.where(square > 0.0, 1.0 / np.sqrt(square), 1.0), out=out)


def _row_squares(a: Array, out: Array) -> None:
    rows = a.reshape(-1, a.shape[-1])
    np.einsum("ij,ij->i", rows, rows, out=out.reshape(-1))


def _softmax(op: Operation, place: Place, out: Array, logits: Array, seen: Array) -> None:
    (scale,) = op.numbers(place.row)
    if not is_large(out.shape[-2]):
        entries.softmax(logits, seen[0], scale, out)
        return
    np.multiply(logits, scale, out=out)
    if not seen.all():
        np.copyto(out, -np.inf, where=seen == 0.0)
    out -= out.max(axis=-1, keepdims=True)
    np.exp(out, out=out)
    out *= 1.0 / out.sum(axis=-1, keepdims=True)


def _lower(root: Array, out: Array) -> None:
    if is_large(out.shape[-2]):
        _each(lapack.lower_factor)(root, out)
    else:
        entries.lower(root.copy(), out)


def _each(function: Callable[[Array, Array], None]) -> Callable[[Array, Array], None]:
    """Return the function on stacks of a function ``f(value, out)`` of matrices."""

    def on_stacks(values: Array, out: Array) -> None:
        for k, here in enumerate(out):
            function(values[k if len(values) > 1 else 0], here)

    return on_stacks


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
    "gram": _written(lambda a, out: np.matmul(a, a.mT, out=out)),
    "cogram": _written(lambda a, out: np.matmul(a.mT, a, out=out)),
    "combine": _combine,
    "times": _written(np.multiply),
    "over": _written(np.divide),
    "scale": lambda op, place, out, a: np.multiply(a, op.numbers(place.row)[0], out=out),
    "shift": _shift,
    "transpose": _written(lambda a, out: np.copyto(out, a.mT)),
    "reshape": _written(lambda a, out: np.copyto(out, a.reshape(len(a), *out.shape[1:]))),
    "columns": _columns,
    "concatenate": _concatenate,
    "row_sums": _written(lambda a, out: a.sum(axis=-1, keepdims=True, out=out)),
    "column_sums": _written(lambda a, out: a.sum(axis=-2, keepdims=True, out=out)),
    "row_squares": _written(_row_squares),
    "diagonal": _written(lambda a, out: np.copyto(out[..., 0], np.diagonal(a, 0, -2, -1))),
    "unit_rows": _unit_rows,
    "rotate": _written(lambda a, turns, out: entries.rotate(a, turns[0], out)),
    "softmax": _softmax,
    "symmetric": _written(lambda a, out: entries.symmetric(a.reshape(len(a), -1), out)),
    "lower": _written(_lower),
    "cholesky": _written(_each(lapack.cholesky)),
    "arc_cosine": _written(entries.arc_cosine),
    "sqrt": _written(np.sqrt),
    "exp": _written(np.exp),
    "tanh": _written(np.tanh),
    "normal_cdf": _written(lambda a, out: entries.normal_cdfs(a.reshape(-1), out.reshape(-1))),
    "sigmoid": _written(lambda a, out: entries.sigmoids(a.reshape(-1), out.reshape(-1))),
    "softplus": _written(lambda a, out: entries.softplus_values(a.reshape(-1), out.reshape(-1))),
    "leaky": _leaky,
}
