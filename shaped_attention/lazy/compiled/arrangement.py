"""Rules of operations that select entries, place them elsewhere, or repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from shaped_attention.lazy.compiled.translator import (
    RecordingError,
    Rule,
    Traced,
    Translator,
    dimension,
    shape_of,
)
from shaped_attention.numerics import primitives as of
from shaped_attention.numerics.graph import Matrix


def _same(t: Translator, result: Tensor, x: Any, *_: Any, **__: Any) -> Any:
    """Return the same entries, perhaps repeated, in the shape of the result."""
    return t.shaped(t.operand(x, result), result)


def _filled(number: float) -> Rule:
    def rule(t: Translator, result: Tensor, *_: Any, **__: Any) -> Matrix:
        return t.graph.constant(np.full(shape_of(result, t.samples), number))

    return rule


def _copied(t: Translator, result: Tensor, x: Any, y: Any, blocking: bool = False) -> Matrix:
    return t.shaped(t.matrix(y, result.dim()), result)


def _transpose(t: Translator, result: Tensor, x: Any, a: int, b: int) -> Matrix:
    if result.dim() != 3 or {a % 3, b % 3} != {1, 2}:
        raise RecordingError("a transposition of samples")
    return t.matrix(x, 3).mT


def _piece(matrix: Matrix, dim: int, start: int, stop: int) -> Matrix:
    """Return some columns (dim -1) or rows (dim -2)."""
    if dim == -1:
        return matrix if matrix.shape[1] == stop - start else of.columns(matrix, start, stop)
    return _piece(matrix.mT, -1, start, stop).mT


def _slice(
    t: Translator, result: Tensor, x: Any, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Matrix:  # fmt: skip
    matrix = t.matrix(x, result.dim())
    if matrix.shape == shape_of(result, t.samples):
        return matrix
    if step != 1:
        raise RecordingError("a slice with steps")
    place = dimension(dim, result.dim())
    size = matrix.shape[place]
    begin, stop, _ = slice(start, end).indices(size)
    return _piece(matrix, place, begin, stop)


def _select(t: Translator, result: Tensor, x: Any, dim: int, index: int) -> Matrix:
    matrix, dims = t.matrix(x, result.dim() + 1), result.dim() + 1
    place = dimension(dim, dims)
    index %= matrix.shape[place]
    return t.shaped(_piece(matrix, place, index, index + 1), result)


def _split(t: Translator, result: Sequence[Tensor], x: Any, sizes: Any, dim: int = 0) -> Any:
    if not result:
        return []
    matrix, place, start = t.matrix(x, result[0].dim()), dimension(dim, result[0].dim()), 0
    pieces = []
    for tensor in result:
        size = tensor.shape[place]
        pieces.append(_piece(matrix, place, start, start + size) if size else matrix)
        start += size
    return pieces


def _cat(t: Translator, result: Tensor, parts: Any, dim: int = 0) -> Matrix:
    place = dimension(dim, result.dim())
    kept = [x for x in parts if isinstance(x, Traced) or x.numel()]
    matrices = [t.matrix(x, result.dim()) for x in kept]
    if place == -1:
        return of.concatenate(matrices)
    return of.concatenate([x.mT for x in matrices]).mT


def _stack(t: Translator, result: Tensor, parts: Any, dim: int = 0) -> Matrix:
    place = dimension(dim, result.dim())
    rows = [t.matrix(x, result.dim() - 1) for x in parts]
    if place == -1 and result.dim() == 2:
        return of.concatenate(rows)
    stacked = of.concatenate([x.mT for x in rows])
    return stacked if place == -1 else stacked.mT


def _pad(t: Translator, result: Tensor, x: Any, pad: Sequence[int], value: float = 0.0) -> Matrix:
    if len(pad) != 2 or value:
        raise RecordingError("padding of rows")
    matrix = t.matrix(x, result.dim())
    # Negative numbers of columns are removed, as on torch's way back.
    before, after = pad
    matrix = _piece(matrix, -1, max(0, -before), matrix.shape[1] - max(0, -after))
    return _widened(t, matrix, -1, max(0, before), max(0, after))


def _slice_back(
    t: Translator, result: Tensor, g: Any, sizes: Any, dim: int, start: int, end: int, step: int
) -> Matrix:
    place = dimension(dim, result.dim())
    size = result.shape[place]
    begin, stop, _ = slice(start, end).indices(size)
    if step != 1:
        raise RecordingError("a slice with steps")
    return _widened(t, t.matrix(g, result.dim()), place, begin, size - stop)


def _select_back(t: Translator, result: Tensor, g: Any, sizes: Any, dim: int, index: int) -> Matrix:
    place = dimension(dim, result.dim())
    size = result.shape[place]
    index %= size
    matrix = t.matrix(g, result.dim() - 1)
    turned = matrix.mT if place == -1 and result.dim() == 3 else matrix
    return _widened(t, turned, place, index, size - 1 - index)


def _widened(t: Translator, matrix: Matrix, place: int, before: int, after: int) -> Matrix:
    """Add columns (place -1) or rows (-2) of zeros before and after a matrix."""
    if place == -2:
        return _widened(t, matrix.mT, -1, before, after).mT
    rows, parts = matrix.shape[0], [matrix]
    if before:
        parts.insert(0, t.zeros(rows, before))
    if after:
        parts.append(t.zeros(rows, after))
    return of.concatenate(parts)


def _diagonal(
    t: Translator, result: Tensor, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Matrix:
    if offset or {dim1 % 3, dim2 % 3} != {1, 2}:
        raise RecordingError("a diagonal over samples")
    return t.shaped(of.diagonal(t.matrix(x, 3)), result)


_SAME = (
    "view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "unsqueeze", "squeeze", "clone",
    "detach", "alias", "_to_copy", "contiguous",
)  # fmt: skip

RULES: dict[str, Rule] = dict.fromkeys(_SAME, _same) | {
    "copy_": _copied, "transpose": _transpose, "slice": _slice, "slice_backward": _slice_back,
    "select": _select, "select_backward": _select_back, "split": _split,
    "split_with_sizes": _split, "cat": _cat, "stack": _stack, "constant_pad_nd": _pad,
    "diagonal": _diagonal, "zeros_like": _filled(0.0), "ones_like": _filled(1.0),
}  # fmt: skip
"""The rules by the names of torch's operations."""
