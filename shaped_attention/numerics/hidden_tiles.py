"""Gram matrices of the hidden units of each path: a tile with a hidden unit in each lane.

For few tokens, everything that a tile of hidden units needs fits into the cache: its normals, its
products with the factor, the values of the activation and the sums. Separate passes by library
routines would write and read most of it once more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.blas_values import row_of, table_of
from shaped_attention.numerics.graph import Graph, Matrix, Node
from shaped_attention.numerics.jit import LANES, STRIDE, kernel, tile_buffer
from shaped_attention.numerics.products import piece
from shaped_attention.numerics.program import assemble
from shaped_attention.numerics.scalars import Depths
from shaped_attention.numerics.threefry import counter, normal_pair, threefry
from shaped_attention.numerics.tile_interpreter import simple
from shaped_attention.numerics.vector_products import VECTOR, add_inner_products, combinations
from shaped_attention.numerics.vectormath import prefer_wide_vectors

Array = NDArray[np.float64]


@kernel
def _draw(tile, start, each, key, path, slot, unit):  # type: ignore[no-untyped-def]
    """Write the normals of the hidden units from `unit` on, `each` a unit, into rows.

    Hidden unit u has the normals from u `each` on. If that number is odd, the first of a pair may
    be that of the unit before.
    """
    prefer_wide_vectors()
    k0, k1 = key[0], key[1]
    for k in range((each + 1) // 2):
        for p in range(LANES):
            c0, _ = counter(slot, (unit + p) * each // 2 + k, 0, 0)
            x0, x1 = threefry(k0, k1, c0, path)
            tile[start + 2 * k, p], tile[start + 2 * k + 1, p] = normal_pair(x0, x1)
    if each % 2 == 1:
        for p in range(LANES):
            if (unit + p) % 2 == 1:
                for j in range(each):
                    tile[start + j, p] = tile[start + j + 1, p]


@kernel
def _add_gram(buf, sums, rows, a):  # type: ignore[no-untyped-def]
    """Add the lower half of the Gram matrix of the rows from entry `a` on, lanes apart."""
    vectors = LANES // VECTOR
    i = 0
    while i < rows:
        high = piece(rows - i)
        j = 0
        while j <= i:
            wide = piece(rows - j)
            add_inner_products(
                buf, buf, sums, a + i * STRIDE, STRIDE, a + j * STRIDE, STRIDE, high, wide, vectors,
                i * rows + j, rows,
            )  # fmt: skip
            j += wide
        i += high


@kernel
def _hidden_gram(  # type: ignore[no-untyped-def]
    code, numbers, rows, arguments, result, factor, lower, key, path, slot, first, last, out
):  # fmt: skip
    """Write the lower half of the sum of s(h) s(h)^T over hidden units h = F g.

    Parameters
    ----------
    code, numbers, rows
        Program of s on columns (m, 1), its scalars, and the rows of its buffer; its arguments come
        first.
    arguments, result
        First rows of its arguments and of its result.
    factor, lower
        F (m, columns), and whether it is lower triangular.
    key, path, slot
        Key and counter words of the normals (see `threefry`).
    first, last
        Hidden units first, ..., last - 1.
    out
        The sum (m, m).
    """
    tokens, columns = factor.shape
    entries = factor.reshape(-1)
    copies = len(arguments)
    each = copies * columns
    # Values of the activation take the place of the normals, which are not needed any more.
    normals = copies * tokens
    tile = tile_buffer(max(rows, normals + each + 1))
    buf = tile.reshape(-1)
    sums = np.zeros(tokens * tokens * VECTOR)
    for unit in range(first, last, LANES):
        _draw(tile, normals, each, key, path, slot, unit)
        for k in range(copies):
            combinations(
                buf, entries, buf, arguments[k] * STRIDE, STRIDE, 0, columns, 1,
                (normals + k * columns) * STRIDE, STRIDE, tokens, columns, LANES, False, lower,
            )  # fmt: skip
        for k in range(code.shape[0]):
            simple(code[k], numbers, tile)
        for p in range(last - unit, LANES):
            for i in range(tokens):
                tile[result + i, p] = 0.0
        _add_gram(buf, sums, tokens, result * STRIDE)
    for i in range(tokens):
        for j in range(i + 1):
            total = 0.0
            for p in range(VECTOR):
                total += sums[(i * tokens + j) * VECTOR + p]
            out[i, j] = total
        for j in range(i + 1, tokens):
            out[i, j] = 0.0


@kernel
def _hidden_grams(  # type: ignore[no-untyped-def]
    code, numbers, rows, arguments, result, factors, lower, key, paths, slot, first, last, out
):  # fmt: skip
    """Do the same for the factors (samples, m, columns) of several paths."""
    for s in range(factors.shape[0]):
        _hidden_gram(
            code, numbers, rows, arguments, result, factors[s], lower, key, paths[s], slot, first,
            last, out[s],
        )  # fmt: skip


class Activation:
    """The program of an activation, for few tokens.

    Parameters
    ----------
    inside
        Trace and result of the activation, as in `graph.Node`.
    depths
        Relative depths of the steps, at which scalars are evaluated.
    """

    def __init__(self, inside: tuple[Graph, Node], depths: Depths) -> None:
        graph, result = inside
        arguments = [Matrix(graph, x) for x in graph.nodes if x.kind == "input"]
        self._program = assemble(graph, arguments, [Matrix(graph, result)])
        self._table = table_of(self._program.scalars or [0.0], depths)
        self._arguments = np.array([start for start, _ in self._program.inputs])

    def add_gram(
        self, factors: Array, lower: bool, key: NDArray[np.uint64], paths: NDArray[np.uint64],
        slot: int, first: int, last: int, row: int, out: Array,
    ) -> None:  # fmt: skip
        """Write the lower half of the sum over some hidden units, for each path.

        The arguments are those of `_hidden_gram`; `row` is that of the scalars.
        """
        program = self._program
        _hidden_grams(
            program.code, row_of(self._table, row), program.rows, self._arguments,
            program.outputs[0][0], factors, lower, key, paths, slot, first, last, out,
        )  # fmt: skip
