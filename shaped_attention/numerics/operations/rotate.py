"""Rotations of pairs of columns, as in rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.libraries import torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.jit import LANES, kernel, unfused
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.parts import constant
from shaped_attention.numerics.operations.registry import M, linear, operation, primitive
from shaped_attention.numerics.operations.stacks import plain


def _traced(matrix: Matrix, turns: NDArray[np.float64]) -> Matrix:
    flat = matrix.plain()
    table = flat.graph.constant(turns)
    result = flat.graph.node("rotate", (flat.node, table.node), flat.shape)
    return Matrix(flat.graph, result.node, flat.coefficient)


def _check_turns(matrix: Any, turns: NDArray[np.float64]) -> None:
    rows, columns = tuple(matrix.shape)[-2:]
    if turns.shape[0] != rows or turns.shape[1] % 2 or turns.shape[1] > columns:
        raise ValueError(
            f"turns must be of shape ({rows}, 2 J) with 2 J <= {columns}; got {turns.shape}"
        )


@primitive(trace=_traced, rule=linear, check=_check_turns)
def rotate(matrix: M, turns: NDArray[np.float64]) -> M:
    """Rotate pairs of columns in each row.

    Columns j and j + J of row a become x c - y s and y c + x s, with c = turns[a, j] and
    s = turns[a, J + j], for j < J. `turns` has the shape (m, 2 J); columns from 2 J on are
    unchanged.
    """
    rows: Any = matrix
    pairs = turns.shape[1] // 2
    cos, sin = constant(turns[:, :pairs], rows), constant(turns[:, pairs:], rows)
    x, y = rows[..., :pairs], rows[..., pairs : 2 * pairs]
    result: Any = torch.cat([x * cos - y * sin, y * cos + x * sin, rows[..., 2 * pairs :]], dim=-1)
    return result


@kernel
def _tile(line, numbers, buf):  # type: ignore[no-untyped-def]
    out, a, turns, columns = line[at.OUT], line[at.A], line[at.B], line[at.COLUMNS]
    pairs = line[at.B_COLUMNS] // 2
    for i in range(line[at.ROWS]):
        for j in range(pairs):
            x, cos = a + i * columns + j, turns + 2 * i * pairs + j
            y, sin, z = x + pairs, cos + pairs, out + i * columns + j
            for p in range(LANES):
                buf[z, p] = buf[x, p] * buf[cos, p] - buf[y, p] * buf[sin, p]
            for p in range(LANES):
                buf[z + pairs, p] = buf[y, p] * buf[cos, p] + buf[x, p] * buf[sin, p]
        for j in range(2 * pairs, columns):
            for p in range(LANES):
                buf[out + i * columns + j, p] = buf[a + i * columns + j, p]


@unfused
def _stacks(a, turns, out):  # type: ignore[no-untyped-def]
    pairs = turns.shape[1] // 2
    for s in range(a.shape[0]):
        for i in range(a.shape[1]):
            x, y, z = a[s, i, :pairs], a[s, i, pairs : 2 * pairs], out[s, i]
            cos, sin = turns[i, :pairs], turns[i, pairs:]
            for j in range(pairs):
                z[j] = x[j] * cos[j] - y[j] * sin[j]
            for j in range(pairs):
                z[pairs + j] = y[j] * cos[j] + x[j] * sin[j]
            for j in range(2 * pairs, a.shape[2]):
                z[j] = a[s, i, j]


operation(
    "rotate", tile=_tile, growth=1.0, blas=plain(lambda a, turns, out: _stacks(a, turns[0], out))
)
