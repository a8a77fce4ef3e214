"""Products of the rows of small matrices, a block of entries at a time in vector registers.

A compiler keeps the sums of a plain triple loop in memory, and may not reorder the sum of an inner
product. Here up to 16 sums are vectors in registers while the inner index runs.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils

from shaped_attention.numerics.jit import intrinsic, kernel, piece, sizes
from shaped_attention.numerics.threefry import fill_weights
from shaped_attention.numerics.vectormath import prefer_wide_vectors

VECTOR = 8
"""Numbers in a vector: doubles fill one register of 512 bits, two of 256, or four of 128."""

SUMS = 16 * VECTOR
"""Doubles of the sums of a block."""

_BLOCK = 2**12
"""Numbers of a block of columns of weights, which are multiplied while in the cache."""


class Vectors:
    """Instructions on vectors from the entries of arrays on."""

    def __init__(
        self, context: Any, builder: Any, kinds: Any, arrays: Any, integer: Any, size: int = VECTOR
    ) -> None:
        self._builder, self._integer = builder, integer
        self._data = [
            cgutils.create_struct_proxy(kind)(context, builder, value).data
            for kind, value in zip(kinds, arrays, strict=True)
        ]
        # All arrays have entries of one type, in single or double precision.
        single = kinds[0].dtype == types.float32
        self._kind = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), size)
        self.zero = ir.Constant(self._kind, [0.0] * size)
        self._align = 4 if single else 8
        self._multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(self._kind, [self._kind] * 3),
            f"llvm.fmuladd.v{size}f{32 if single else 64}",
        )  # fmt: skip

    def entry(self, start: Any, *terms: tuple[Any, Any]) -> Any:
        """Return start plus the products of the pairs, which are numbers or values."""
        total = self._value(start)
        for x, y in terms:
            product = self._builder.mul(self._value(x), self._value(y))
            total = self._builder.add(total, product)
        return total

    def _value(self, x: Any) -> Any:
        return ir.Constant(self._integer, x) if isinstance(x, int) else x

    def _at(self, array: int, entry: Any) -> Any:
        place = self._builder.gep(self._data[array], [entry])
        return self._builder.bitcast(place, self._kind.as_pointer())

    def load(self, array: int, entry: Any) -> Any:
        """Return the vector from an entry on."""
        value = self._builder.load(self._at(array, entry))
        value.align = self._align
        return value

    def store(self, value: Any, array: int, entry: Any) -> None:
        """Write a vector from an entry on."""
        self._builder.store(value, self._at(array, entry)).align = self._align

    def sums(self, count: int) -> list[Any]:
        """Return the places of vectors of zeros."""
        return [cgutils.alloca_once_value(self._builder, self.zero) for _ in range(count)]

    def add_product(self, x: Any, y: Any, place: Any) -> None:
        """Add the product of two vectors to the one at a place."""
        total = self._builder.load(place)
        self._builder.store(self._builder.call(self._multiply_add, [x, y, total]), place)


@intrinsic
def _inner_products(  # type: ignore[no-untyped-def]
    typing, left, right, sums, a, a_row, b, b_row, high, wide, count, target, step
):  # fmt: skip
    """Add `count` vectors of row a + i a_row times those of row b + j b_row, lanes apart.

    The sums are the vectors from target + i step + j on of `sums`, for i < high and j < wide.
    """
    signature = types.void(left, right, sums, *([types.intp] * 9))

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        a, a_row, b, b_row, high_value, wide_value, count, target, step = arguments[3:]
        v = Vectors(context, builder, signature.args[:3], arguments[:3], a.type)

        def entry(i: int, j: int) -> Any:
            return v.entry(0, (v.entry(target, (step, i), (j, 1)), VECTOR))

        for high, wide in sizes(builder, high_value, wide_value):
            places = v.sums(high * wide)
            blocks = [(i, j) for i in range(high) for j in range(wide)]
            for place, (i, j) in zip(places, blocks, strict=True):
                builder.store(v.load(2, entry(i, j)), place)
            with cgutils.for_range(builder, count, intp=a.type) as loop:
                k = (loop.index, VECTOR)
                rows = [v.load(0, v.entry(a, (a_row, i), k)) for i in range(high)]
                for j in range(wide):
                    x = v.load(1, v.entry(b, (b_row, j), k))
                    for i in range(high):
                        v.add_product(rows[i], x, places[i * wide + j])
            for place, (i, j) in zip(places, blocks, strict=True):
                v.store(builder.load(place), 2, entry(i, j))
        return context.get_dummy_value()

    return signature, generate


@kernel
def add_inner_products(  # type: ignore[no-untyped-def]
    left, right, sums, a, a_row, b, b_row, high, wide, count, target, step
):  # fmt: skip
    """Add a block of inner products, lanes apart: see `_inner_products`."""
    prefer_wide_vectors()
    _inner_products(left, right, sums, a, a_row, b, b_row, high, wide, count, target, step)


@kernel
def inner_products(  # type: ignore[no-untyped-def]
    result, left, right, out, out_row, a, a_row, b, b_row, rows, inner, columns
):  # fmt: skip
    """Write the products of the rows of A (rows, inner) with those of B (columns, inner).

    Arrays are flat and of one type; the integers are entries and strides of `result`, `left` and
    `right`. The order of each sum depends only on `inner`.
    """
    vectors = inner // VECTOR
    sums = np.empty(SUMS, left.dtype)
    i = 0
    while i < rows:
        high = piece(rows - i)
        j = 0
        while j < columns:
            wide = piece(columns - j)
            sums[: high * wide * VECTOR] = 0.0
            x, y = a + i * a_row, b + j * b_row
            add_inner_products(left, right, sums, x, a_row, y, b_row, high, wide, vectors, 0, wide)
            for h in range(high):
                for w in range(wide):
                    place = (h * wide + w) * VECTOR
                    total = sums[place]
                    for p in range(1, VECTOR):
                        total += sums[place + p]
                    for k in range(vectors * VECTOR, inner):
                        total += left[x + h * a_row + k] * right[y + w * b_row + k]
                    result[out + (i + h) * out_row + j + w] = total
            j += wide
        i += high


@kernel
def multiply_weights(x, key, paths, slot, begin, end, out):  # type: ignore[no-untyped-def]
    """Write columns begin, ..., end - 1 (begin even) of X W for the samples of `paths`.

    The weight in row r and column c of a sample's Gaussian matrix W (fan_in, columns) is the normal
    number c fan_in + r of its slot. A column is contiguous, so the order of an inner product
    depends only on `fan_in`. No matrix is stored, which bounds the memory at any width.

    These are counter words (samples,). X (samples, rows, fan_in) and `out` (samples, rows, columns)
    are contiguous, in single or double precision; the numbers are made in double precision.
    """
    samples, rows, fan_in = x.shape
    columns = out.shape[2]
    block = max(4, _BLOCK // fan_in // 2 * 2)
    left, right, result = x.reshape(-1), np.empty(block * fan_in, x.dtype), out.reshape(-1)
    for s in range(samples):
        for start in range(begin, end, block):
            count = min(block, end - start)
            weights = right[: count * fan_in].reshape(1, count * fan_in)
            fill_weights(weights, key, paths[s : s + 1], slot, start * fan_in // 2)
            inner_products(
                result, left, right, s * rows * columns + start, columns, s * rows * fan_in,
                fan_in, 0, fan_in, rows, fan_in, count,
            )  # fmt: skip
