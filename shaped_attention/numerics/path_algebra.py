"""Small-matrix algebra of one path: the entries of a matrix are consecutive, row by row.

All matrices lie in one flat array, and a matrix is the number of its first entry. The functions are
those of `tile_algebra`, where the entries of 64 paths are consecutive.
"""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.numerics import operation_codes as codes
from shaped_attention.numerics.jit import kernel, scalar
from shaped_attention.numerics.tile_algebra import PIVOT
from shaped_attention.numerics.vector_products import combinations, inner_products
from shaped_attention.numerics.vectormath import (
    arccos,
    exp,
    normal_cdf,
    prefer_wide_vectors,
    softplus,
    tanh,
    whole_exp,
)


@scalar
def part(buf, start, count):  # type: ignore[no-untyped-def]
    """Return a part of the array: an index into it cannot be negative, so loops are vectorised."""
    return buf[start : start + count]


@kernel
def multiply(  # type: ignore[no-untyped-def]
    buf, out, out_columns, a, b, rows, inner, columns, turned_a, turned_b, a_lower
):  # fmt: skip
    """Write A B, A^T B or A B^T; `a_lower` skips the zeros of a triangular A, transposed or not."""
    if turned_b:
        inner_products(buf, buf, buf, out, out_columns, a, inner, b, inner, rows, inner, columns)
    else:
        combinations(
            buf, buf, buf, out, out_columns, a, 1 if turned_a else inner, rows if turned_a else 1,
            b, columns, rows, inner, columns, a_lower and turned_a, a_lower and not turned_a,
        )  # fmt: skip


@kernel
def gram(buf, out, a, rows, inner, turned):  # type: ignore[no-untyped-def]
    """Write A A^T for A (rows, inner), or A^T A for A (inner, rows)."""
    if turned:
        combinations(buf, buf, buf, out, rows, a, 1, rows, a, rows, rows, inner, rows, False, False)
    else:
        inner_products(buf, buf, buf, out, rows, a, inner, a, inner, rows, inner, rows)


@kernel
def combine(buf, out, out_columns, a, b, rows, columns, b_rows, b_columns, s, t):  # type: ignore[no-untyped-def]
    """Write s A + t B, where B may be a single row, column or entry."""
    for i in range(rows):
        x, z = part(buf, a + i * columns, columns), part(buf, out + i * out_columns, columns)
        y = part(buf, b + (i * b_columns if b_rows > 1 else 0), b_columns)
        if b_columns == columns:
            for j in range(columns):
                z[j] = s * x[j] + t * y[j]
        else:
            added = t * y[0]
            for j in range(columns):
                z[j] = s * x[j] + added


@kernel
def times(buf, out, a, b, rows, columns, b_rows, b_columns, dividing):  # type: ignore[no-untyped-def]
    """Write A B entry by entry, or A / B, where B may be a single row, column or entry."""
    for i in range(rows):
        x, z = part(buf, a + i * columns, columns), part(buf, out + i * columns, columns)
        y = part(buf, b + (i * b_columns if b_rows > 1 else 0), b_columns)
        if b_columns < columns:
            one = y[0]
            for j in range(columns):
                z[j] = x[j] / one if dividing else x[j] * one
        elif dividing:
            for j in range(columns):
                z[j] = x[j] / y[j]
        else:
            for j in range(columns):
                z[j] = x[j] * y[j]


@kernel
def place(buf, out, out_columns, a, a_columns, rows, columns, s):  # type: ignore[no-untyped-def]
    """Write s times a part of A, whose rows have `a_columns` entries, into a part of the output."""
    for i in range(rows):
        x, z = part(buf, a + i * a_columns, columns), part(buf, out + i * out_columns, columns)
        for j in range(columns):
            z[j] = s * x[j]


@kernel
def shift(buf, out, a, count, s, t):  # type: ignore[no-untyped-def]
    """Write s A + t, entry by entry."""
    x, z = part(buf, a, count), part(buf, out, count)
    for i in range(count):
        z[i] = s * x[i] + t


@kernel
def transpose(buf, out, a, rows, columns):  # type: ignore[no-untyped-def]
    """Write A^T (rows, columns)."""
    for i in range(rows):
        for j in range(columns):
            buf[out + i * columns + j] = buf[a + j * rows + i]


@kernel
def sums(buf, out, a, count, terms, step, following):  # type: ignore[no-untyped-def]
    """Sum `terms` entries, `following` apart, from entry a + i step on, for i < count."""
    for i in range(count):
        total = 0.0
        for j in range(terms):
            total += buf[a + i * step + j * following]
        buf[out + i] = total


@kernel
def row_squares(buf, out, a, rows, columns):  # type: ignore[no-untyped-def]
    """Sum the squares of each row."""
    for i in range(rows):
        x = a + i * columns
        inner_products(buf, buf, buf, out + i, 1, x, columns, x, columns, 1, columns, 1)


@kernel
def unit_rows(buf, out, a, rows, columns):  # type: ignore[no-untyped-def]
    """Divide each row of A by its length; a row of zeros is unchanged."""
    for i in range(rows):
        x, z = a + i * columns, out + i * columns
        row_squares(buf, z, x, 1, columns)
        square = buf[z]
        factor = 1.0 / math.sqrt(square) if square > 0.0 else 1.0
        place(buf, z, columns, x, columns, 1, columns, factor)


@kernel
def rotate(buf, out, a, turns, rows, columns, pairs):  # type: ignore[no-untyped-def]
    """Rotate pairs of columns in each row; see `primitives.rotate`."""
    for i in range(rows):
        start, end, table = a + i * columns, out + i * columns, turns + 2 * i * pairs
        x, y = part(buf, start, pairs), part(buf, start + pairs, pairs)
        cos, sin = part(buf, table, pairs), part(buf, table + pairs, pairs)
        first, second = part(buf, end, pairs), part(buf, end + pairs, pairs)
        for j in range(pairs):
            first[j] = x[j] * cos[j] - y[j] * sin[j]
            second[j] = y[j] * cos[j] + x[j] * sin[j]
        for j in range(2 * pairs, columns):
            buf[end + j] = buf[start + j]


@kernel
def symmetric(buf, out, a, size):  # type: ignore[no-untyped-def]
    """Write the symmetric matrix with the lower triangle A, row by row, and sqrt 2 A_ii."""
    entry = a
    for i in range(size):
        for j in range(i + 1):
            value = (math.sqrt(2.0) if i == j else 1.0) * buf[entry]
            buf[out + i * size + j] = value
            buf[out + j * size + i] = value
            entry += 1


@kernel
def softmax(buf, out, a, seen, rows, columns, s):  # type: ignore[no-untyped-def]
    """Apply softmax to the rows of s A where `seen` is positive; 0 elsewhere."""
    prefer_wide_vectors()
    for i in range(rows):
        x, z = part(buf, a + i * columns, columns), part(buf, out + i * columns, columns)
        allowed = part(buf, seen + i * columns, columns)
        top = -np.inf
        for j in range(columns):
            value = s * x[j] if allowed[j] > 0.0 else -np.inf
            top = max(top, value)
        for j in range(columns):
            weight = exp(s * x[j] - top)
            z[j] = weight if allowed[j] > 0.0 else 0.0
        total = 0.0
        for j in range(columns):
            total += z[j]
        total = 1.0 / total
        for j in range(columns):
            z[j] *= total


@kernel
def lower(buf, out, a, rows, columns, work):  # type: ignore[no-untyped-def]
    """Write the lower triangular L with L L^T = A A^T, and overwrite A (see `tile_algebra.lower`).

    `work` has one entry of scratch for each row of A, and one more.
    """
    original = work + 1
    row_squares(buf, original, a, rows, columns)
    for j in range(rows):
        unit = a + j * columns
        row_squares(buf, work, unit, 1, columns)
        square = buf[work]
        # Tested as a difference, so that a non-finite pivot does not count as zero.
        zero = square - PIVOT * PIVOT * buf[original + j] <= 0.0
        length = 0.0 if zero else math.sqrt(square)
        factor = 0.0 if zero else 1.0 / length
        buf[out + j * rows + j] = length
        place(buf, unit, columns, unit, columns, 1, columns, factor)
        for i in range(j):
            buf[out + i * rows + j] = 0.0
        below, rest = out + (j + 1) * rows + j, unit + columns
        inner_products(
            buf, buf, buf, below, rows, rest, columns, unit, columns, rows - j - 1, columns, 1
        )
        for i in range(rows - j - 1):
            x = rest + i * columns
            combine(buf, x, columns, x, unit, 1, columns, 1, columns, 1.0, -buf[below + i * rows])


@kernel
def cholesky(buf, out, a, rows):  # type: ignore[no-untyped-def]
    """Write the lower triangular L with L L^T = A (see `tile_algebra.cholesky`)."""
    for i in range(rows):
        for j in range(i + 1):
            value = buf[a + i * rows + j]
            for k in range(j):
                value -= buf[out + i * rows + k] * buf[out + j * rows + k]
            if i > j:
                pivot = buf[out + j * rows + j]
                buf[out + i * rows + j] = value / pivot if pivot != 0.0 else 0.0
            else:
                zero = value - PIVOT * buf[a + j * rows + j] <= 0.0
                buf[out + j * rows + j] = 0.0 if zero else math.sqrt(value)
        for j in range(i + 1, rows):
            buf[out + i * rows + j] = 0.0


@kernel
def arc_cosine(buf, out, a, rows):  # type: ignore[no-untyped-def]
    """Write the arc-cosine kernel of a covariance (see `primitives.arc_cosine_kernel`)."""
    for i in range(rows):
        buf[out + i * rows + i] = math.pi * buf[a + i * rows + i]
        for j in range(i):
            scale = math.sqrt(buf[a + i * rows + i] * buf[a + j * rows + j])
            r = buf[a + i * rows + j] / scale if scale > 0.0 else 0.0
            r = max(-1.0, min(1.0, r))
            value = scale * (math.sqrt(1.0 - r * r) + r * (math.pi - arccos(r)))
            buf[out + i * rows + j] = value
            buf[out + j * rows + i] = value


@kernel
def elementwise(buf, out, a, count, function, s, t):  # type: ignore[no-untyped-def]
    """Apply a function, named by the code of its operation, to `count` entries."""
    prefer_wide_vectors()
    x, z = part(buf, a, count), part(buf, out, count)
    if function == codes.SQRT:
        for i in range(count):
            z[i] = math.sqrt(x[i])
    elif function == codes.EXP:
        for i in range(count):
            z[i] = whole_exp(x[i])
    elif function == codes.TANH:
        for i in range(count):
            z[i] = tanh(x[i])
    elif function == codes.NORMAL_CDF:
        for i in range(count):
            z[i] = normal_cdf(x[i])
    elif function == codes.SIGMOID:
        for i in range(count):
            e = exp(-abs(x[i]))
            low = e / (1.0 + e)
            z[i] = 1.0 - low if x[i] >= 0.0 else low
    elif function == codes.SOFTPLUS:
        for i in range(count):
            z[i] = softplus(x[i])
    elif function == codes.LEAKY:
        for i in range(count):
            z[i] = (s if x[i] > 0.0 else t) * x[i]
    else:
        raise ValueError("unknown operation in a program")
