"""Constants, and matrices whose entries are those of others in another place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, copy, entries
from shaped_attention.compiler.text import Int
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix, Node
from shaped_attention.numerics.operations.registry import (
    Alone,
    Here,
    M,
    check_square,
    operation,
    primitive,
    tensor,
)


def _check_constant(array: Any, like: Any) -> None:
    if np.ndim(array) < 2 or (np.ndim(array) > 2 and not isinstance(like, Tensor)):
        raise ValueError(f"array must be a matrix (r, c); got shape {np.shape(array)}")


@primitive(
    trace=lambda array, like: like.graph.constant(array),
    check=_check_constant,
)
def constant(array: NDArray[np.float64], like: M) -> M:
    """Return a matrix of given entries (r, c), with the type, dtype and device of `like`."""
    # With a batch: a product with a single matrix would be one large product, whose bits depend on
    # the number of paths.
    other = tensor(like)
    matrix = torch.tensor(array, dtype=other.dtype, device=other.device)
    whole = matrix.expand(*other.shape[:-2], *matrix.shape) if matrix.ndim == 2 else matrix
    return tensor(whole)


def _traced_parts(parts: Sequence[Matrix]) -> Matrix:
    if len(parts) == 1:
        return parts[0]
    # No pending coefficients: a part without another use is then written in place.
    nodes = [part.plain() for part in parts]
    return parts[0].graph.node(
        "concatenate",
        [part.node for part in nodes],
        (parts[0].shape[0], sum(part.shape[1] for part in nodes)),
        [part.coefficient for part in nodes],
    )


def _check_parts(parts: Sequence[Any]) -> None:
    rows = [tuple(part.shape)[-2] for part in parts]
    if len(set(rows)) > 1:
        raise ValueError(f"parts must have the same number of rows; got {rows}")


@primitive(trace=_traced_parts, check=_check_parts)
def concatenate(parts: Sequence[M]) -> M:
    """Place matrices with the same number of rows next to each other."""
    if len(parts) == 1:
        return parts[0]
    tensors = [tensor(part) for part in parts]
    batch = np.broadcast_shapes(*(part.shape[:-2] for part in tensors))
    return tensor(torch.cat([part.expand(*batch, *part.shape[-2:]) for part in tensors], dim=-1))


def _traced_columns(matrix: Matrix, start: int, stop: int) -> Matrix:
    return matrix.plain().linear("columns", lambda rows, _: (rows, stop - start), (start,))


def _check_columns(matrix: Any, start: int, stop: int) -> None:
    count = tuple(matrix.shape)[-1]
    if not 0 <= start <= stop <= count:
        raise ValueError(
            f"columns start, ..., stop - 1 must be some of 0, ..., {count - 1}; got start={start}, "
            f"stop={stop}"
        )


@primitive(trace=_traced_columns, check=_check_columns)
def columns(matrix: M, start: int, stop: int) -> M:
    """Return the columns start, ..., stop - 1."""
    return tensor(matrix)[..., start:stop]


def _traced_diagonal(matrix: Matrix) -> Matrix:
    # That of the transpose is the same.
    return Matrix(matrix.graph, matrix.node, matrix.coefficient).linear(
        "diagonal", lambda rows, _: (rows, 1)
    )


@primitive(trace=_traced_diagonal, check=check_square)
def diagonal(matrix: M) -> M:
    """Return the diagonal of a square matrix as a column (m, 1)."""
    return tensor(matrix).diagonal(dim1=-2, dim2=-1)[..., None]


def _moved(view: Callable[[Here], View]) -> Callable[[Emitter, Here], None]:
    """Return the emission of entries in another place."""
    return lambda e, here: copy(e, here.out, view(here), here.node.shape)


def _concatenate(e: Emitter, here: Here) -> None:
    """Emit s A for each part; `step` has written those in place that have no other use."""
    column, rows = 0, here.node.shape[0]
    for k, (a, s) in enumerate(zip(here.inputs, here.scalars, strict=True)):
        wide, out = here.sizes(k)[1], here.out.columns(column)
        column += wide
        if a == out and s == 1.0:
            continue

        def put(i: Int, j: Int, a: Any = a, s: Any = s, out: View = out) -> None:
            out.store(e, e.fmul(s, a.load(e, i, j)), i, j)

        entries(e, (rows, wide), put)


def _columns_alone(node: Node) -> Alone:
    start = node.integers[0]
    return lambda call, out, a: np.copyto(out, a[:, start : start + out.shape[1]])


def _check_half(numbers: Any, size: int) -> None:
    expected, shape = (1, size * (size + 1) // 2), tuple(numbers.shape)[-2:]
    if shape != expected:
        raise ValueError(f"numbers must be of shape {expected}; got {shape}")


@primitive(
    trace=lambda numbers, size: numbers.plain().linear("symmetric", lambda *_: (size, size)),
    check=_check_half,
)
def symmetric_noise(numbers: M, size: int) -> M:
    """Return the symmetric (size, size) matrix whose lower triangle, row by row, is `numbers`.

    The diagonal is multiplied by sqrt 2: independent normals give the noise with variance 1 off the
    diagonal and 2 on it. `numbers` has the shape (1, size (size + 1) / 2).
    """
    row: Any = numbers
    i, j = torch.tril_indices(size, size, device=row.device)
    lower_half = row.new_zeros(*row.shape[:-2], size, size)
    lower_half[..., i, j] = row[..., 0, :]
    weight = row.new_ones(size, size)
    weight.fill_diagonal_(0.5**0.5)
    weighted: Any = lower_half * weight
    return weighted + weighted.mT


def _symmetric(e: Emitter, here: Here) -> None:
    (a,), out = here.inputs, here.out

    def row(i: Int, _: object) -> None:
        if isinstance(i, int):
            start: Int = i * (i + 1) // 2
        else:
            start = e.new(f"lshr i64 {e.mul(i, e.add(i, 1))}, 1")

        def entry(j: Int, _: object) -> None:
            x = a.load(e, 0, e.add(start, j))
            out.store(e, x, i, j)
            out.store(e, x, j, i)

        e.loop(0, i, 1, entry, may_be_empty=True)
        out.store(e, e.fmul(math.sqrt(2.0), a.load(e, 0, e.add(start, i))), i, i)

    e.loop(0, here.node.shape[0], 1, row)


operation("transpose", emit=_moved(lambda here: here.inputs[0].mT), growth=1.0)
operation("reshape", emit=_moved(lambda here: here.inputs[0].reshaped(here.node.shape)), growth=1.0)
operation(
    "columns", emit=_moved(lambda here: here.inputs[0].columns(here.node.integers[0])),
    routine=_columns_alone, growth=1.0,
)  # fmt: skip
operation("concatenate", emit=_concatenate, growth=max)
operation("diagonal", emit=_moved(lambda here: here.inputs[0].diagonal()), growth=1.0)
operation("symmetric", emit=_symmetric, growth=1.0)
