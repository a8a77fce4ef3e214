"""Gram matrices of activated hidden units, made a few units at a time.

For few tokens and many samples, a tile has a path in each lane. For few samples it has a unit
in each lane: its normals, its products with the factor, the values of the activation and the sums
fit into the cache, which separate passes by library routines would leave. For many tokens these are
faster.
"""

from __future__ import annotations

import numpy as np

from shaped_attention.numerics import lapack
from shaped_attention.numerics.graph import Graph, Node, needed
from shaped_attention.numerics.jit import (
    LANES,
    STRIDE,
    compiled_once,
    kernel,
    piece,
    scalar,
    tile_buffer,
)
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations import simple
from shaped_attention.numerics.operations.products import (
    FEWEST_TRIANGULAR,
    mirror,
    multiply,
)
from shaped_attention.numerics.operations.registry import operation
from shaped_attention.numerics.operations.stacks import Array, Memory, Place, Step, is_large
from shaped_attention.numerics.operations.stacks import mirror as mirror_stacks
from shaped_attention.numerics.threefry import (
    counter,
    fill_normals,
    fill_weights,
    normal_pair,
    threefry,
)
from shaped_attention.numerics.vector_products import VECTOR, add_inner_products, combinations
from shaped_attention.numerics.vectormath import prefer_wide_vectors

HIDDEN_COLUMNS = 8
"""Hidden units of a path that are drawn at once on tiles; even, to keep pairs together."""

COLUMNS = 256
"""The same by library routines; fixed, since it determines the order of a sum."""


def places(inside: Graph, result: Node) -> dict[int, int]:
    """Assign each value of an activation its own block of scratch, arguments first.

    A loop that overwrites its argument would not be vectorised.
    """
    return {id(node): k for k, node in enumerate(needed([result], inside.nodes))}


def first_block(node: Node) -> int:
    """Return the scratch rows before the blocks: those of the normals of all columns."""
    return node.integers[2] * node.inputs[0].shape[1] * HIDDEN_COLUMNS + 1


def _scratch(node: Node) -> int:
    assert node.inside is not None
    return first_block(node) + len(places(*node.inside)) * node.shape[0] * HIDDEN_COLUMNS


@scalar
def activated_gram(code, place, numbers, key, buf, paths):  # type: ignore[no-untyped-def]
    """Sum s(h) s(h)^T over columns h = F g; the instructions that follow are those of s.

    If s has several arguments, the columns of all of them are made from consecutive normals.
    """
    line = code[place]
    out, factor, rows, inner = line[at.OUT], line[at.A], line[at.ROWS], line[at.A_COLUMNS]
    normals, copies = line[at.WORK], line[at.COPIES]
    each = copies * inner
    hidden = normals + each * HIDDEN_COLUMNS + 1
    result, count = line[at.B], line[at.COUNT]
    one, width = compiled_once(1), compiled_once(HIDDEN_COLUMNS)
    yes, no = rows > 0, rows < 0  # literals would compile other versions of `multiply`
    for i in range(rows * rows):
        for p in range(LANES):
            buf[out + i, p] = 0.0
    for start in range(0, count, HIDDEN_COLUMNS):
        here = min(HIDDEN_COLUMNS, count - start)
        fill_normals(
            buf[normals : normals + each * HIDDEN_COLUMNS + 1], here * each, 1.0, key, paths,
            line[at.SLOT], start * each // 2,
        )  # fmt: skip
        for copy in range(copies):
            multiply(
                buf, hidden + copy * rows * HIDDEN_COLUMNS, width, factor, inner, one,
                normals + copy * inner, each, one, rows, inner, here,
                no, line[at.A_LOWER] > 0, no, no, no, no,
            )  # fmt: skip
        for k in range(line[at.FIRST], line[at.LAST]):
            simple(code[k], numbers, buf)
        multiply(
            buf, out, rows, result, width, one, result, width, one, rows, here, rows,
            no, no, no, no, yes, yes,
        )  # fmt: skip
    mirror(buf, out, rows)


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
def hidden_grams(  # type: ignore[no-untyped-def]
    code, numbers, rows, arguments, result, factors, lower, key, paths, slot, first, last, out
):  # fmt: skip
    """Write the lower half of the sum of s(h) s(h)^T over hidden units h = F g, first to last - 1.

    `code` is the program of s on columns (m, 1), with the first rows of its arguments and of its
    result; F are the `factors` (samples, m, columns) of several paths.
    """
    samples, tokens, columns = factors.shape
    entries = factors.reshape(-1)
    copies = len(arguments)
    each = copies * columns
    # Values of the activation take the place of the normals, which are not needed any more.
    normals = copies * tokens
    tile = tile_buffer(max(rows, normals + each + 1))
    buf = tile.reshape(-1)
    sums = np.empty(tokens * tokens * VECTOR)
    for s in range(samples):
        sums[:] = 0.0
        for unit in range(first, last, LANES):
            _draw(tile, normals, each, key, paths[s], slot, unit)
            for k in range(copies):
                combinations(
                    buf, entries, buf, arguments[k] * STRIDE, STRIDE, s * tokens * columns, columns,
                    1, (normals + k * columns) * STRIDE, STRIDE, tokens, columns, LANES, lower,
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
                out[s, i, j] = total
            for j in range(i + 1, tokens):
                out[s, i, j] = 0.0


def _part_of_stacks(step: Step, place: Place, out: Array, factor: Array) -> None:
    """Write the lower triangle of the Gram matrix of the hidden units `first` to `last` - 1."""
    if not is_large(step.node.shape[0]):
        step.inside.write_gram(step, place, factor, out)
        return
    for k, path in enumerate(place.paths):
        _large_part(step, place, out[k], factor[k], path)


def _large_part(step: Step, place: Place, out: Array, factor: Array, path: np.uint64) -> None:
    """Do the same for one sample with many tokens."""
    memory = place.memory
    slot, first, last, copies = step.node.integers
    columns = factor.shape[1]
    each, paths = copies * columns, np.array([path])
    turned = np.ascontiguousarray(factor.T)
    out.fill(0.0)
    for start in range(first, last, COLUMNS):
        here = min(COLUMNS, last - start)
        normals = memory.take((here, each))
        fill_weights(normals.reshape(1, -1), step.key, paths, slot, start * each // 2)
        parts = [normals[:, k * columns : (k + 1) * columns] for k in range(copies)]
        hidden = [_hidden(step, memory, factor, turned, part) for part in parts]
        memory.give_back(normals)
        activated = step.inside.activate([array[None] for array in hidden], place)
        lapack.add_cogram(activated[0], out)
        for array in hidden:
            memory.give_back(array)
        if not any(np.shares_memory(activated, array) for array in hidden):
            memory.give_back(activated)


def _hidden(step: Step, memory: Memory, factor: Array, turned: Array, normals: Array) -> Array:
    """Return hidden units (columns, m) made from normals (columns, c)."""
    hidden = memory.take((len(normals), len(factor)))
    if step.node.inputs[0].lower and len(factor) >= FEWEST_TRIANGULAR:
        hidden[...] = normals
        lapack.multiply_triangular(factor, hidden, left=False, transposed=True)
    else:
        np.matmul(normals, turned, out=hidden)
    return hidden


def _sum_of_parts(step: Step, place: Place, out: Array, *parts: Array) -> None:
    """Write the symmetric matrix whose lower triangle is the sum of those of the parts."""
    np.copyto(out, parts[0])
    for part in parts[1:]:
        out += part
    mirror_stacks(out)


# The parts of hidden units that threads share (`plan`) are nodes of their own.
operation("activated_gram", tile=None, blas=_part_of_stacks, growth=2.0, scratch=_scratch)
operation("sum_of_parts", tile=None, blas=_sum_of_parts, growth=max)
