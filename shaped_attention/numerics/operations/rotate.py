"""Rotations of pairs of columns, as in rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Int
from shaped_attention.libraries import torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.operations.parts import constant
from shaped_attention.numerics.operations.registry import Here, M, operation, primitive, tensor


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


@primitive(trace=_traced, check=_check_turns)
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
    return tensor(torch.cat([x * cos - y * sin, y * cos + x * sin, rows[..., 2 * pairs :]], dim=-1))


def _rotate(e: Emitter, here: Here) -> None:
    (a, turns), (rows, columns), out = here.inputs, here.node.shape, here.out
    pairs = here.sizes(1)[1] // 2

    def row(i: Int, _: object) -> None:
        def pair(j: Int, _: object) -> None:
            x, y = a.load(e, i, j), a.load(e, i, e.add(j, pairs))
            cos, sin = turns.load(e, i, j), turns.load(e, i, e.add(j, pairs))
            out.store(e, e.fma(e.neg(y), sin, e.fmul(x, cos)), i, j)
            out.store(e, e.fma(x, sin, e.fmul(y, cos)), i, e.add(j, pairs))

        e.loop(0, pairs, 1, pair)
        e.loop(2 * pairs, columns, 1, lambda j, _: out.store(e, a.load(e, i, j), i, j))

    e.loop(0, rows, 1, row)


operation("rotate", emit=_rotate, growth=1.0)
