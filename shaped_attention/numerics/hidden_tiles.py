"""Gram matrices of the hidden units of one path: a tile with a hidden unit in each lane.

For few tokens, everything that a tile of hidden units needs fits into the cache: its normals, its
products with the factor, the values of the activation and the sums. Separate passes by library
routines would write and read most of it once more.
"""

from __future__ import annotations

import numpy as np

from shaped_attention.numerics.jit import LANES, STRIDE, kernel, tile_buffer
from shaped_attention.numerics.products import piece
from shaped_attention.numerics.threefry import counter, normal_pair, threefry
from shaped_attention.numerics.tile_interpreter import simple
from shaped_attention.numerics.vector_products import VECTOR, add_inner_products, combinations
from shaped_attention.numerics.vectormath import prefer_wide_vectors


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
def hidden_gram(  # type: ignore[no-untyped-def]
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
