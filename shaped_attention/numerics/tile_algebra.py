"""Small-matrix algebra on tiles: one operation on all lanes at once.

A tile is an array (rows, STRIDE): each path has a lane, each entry of a matrix a row, and a matrix
(r, c) occupies r c consecutive rows from an offset on. Every loop over lanes is a sequence of
vector instructions. Sums run in the order of their index, even in unrolled loops, so the rounding
of a path does not depend on its neighbours. Products are in `products`.
"""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.numerics import operation_codes as codes
from shaped_attention.numerics.jit import LANES, compiled_once, kernel
from shaped_attention.numerics.products import multiply
from shaped_attention.numerics.vectormath import (
    arccos,
    exp,
    normal_cdf,
    prefer_wide_vectors,
    softplus,
    tanh,
    whole_exp,
)

PIVOT_EPSILONS = 64.0
"""A pivot below this many rounding units of its row counts as zero, in every executor."""
PIVOT = PIVOT_EPSILONS * float(np.finfo(np.float64).eps)


@kernel
def combine(buf, out, out_columns, a, b, rows, columns, b_rows, b_columns, s, t):  # type: ignore[no-untyped-def]
    """Write s A + t B, where B may be a single row, column or entry."""
    for i in range(rows):
        for j in range(columns):
            x = a + i * columns + j
            y = b + (i * b_columns if b_rows > 1 else 0) + (j if b_columns > 1 else 0)
            for p in range(LANES):
                buf[out + i * out_columns + j, p] = s * buf[x, p] + t * buf[y, p]


@kernel
def times(buf, out, a, b, rows, columns, b_rows, b_columns, dividing):  # type: ignore[no-untyped-def]
    """Write A B entry by entry, or A / B, where B may be a single row, column or entry."""
    for i in range(rows):
        for j in range(columns):
            x = a + i * columns + j
            y = b + (i * b_columns if b_rows > 1 else 0) + (j if b_columns > 1 else 0)
            z = out + i * columns + j
            if dividing:
                for p in range(LANES):
                    buf[z, p] = buf[x, p] / buf[y, p]
            else:
                for p in range(LANES):
                    buf[z, p] = buf[x, p] * buf[y, p]


@kernel
def place(buf, out, out_columns, a, a_columns, rows, columns, s):  # type: ignore[no-untyped-def]
    """Write s times a part of A, whose rows have `a_columns` entries, into a part of the output."""
    for i in range(rows):
        for j in range(columns):
            x, y = a + i * a_columns + j, out + i * out_columns + j
            for p in range(LANES):
                buf[y, p] = s * buf[x, p]


@kernel
def shift(buf, out, a, count, s, t):  # type: ignore[no-untyped-def]
    """Write s A + t, entry by entry."""
    for i in range(count):
        for p in range(LANES):
            buf[out + i, p] = s * buf[a + i, p] + t


@kernel
def transpose(buf, out, a, rows, columns):  # type: ignore[no-untyped-def]
    """Write A^T (rows, columns)."""
    for i in range(rows):
        for j in range(columns):
            for p in range(LANES):
                buf[out + i * columns + j, p] = buf[a + j * rows + i, p]


@kernel
def row_sums(buf, out, a, rows, columns, step, following):  # type: ignore[no-untyped-def]
    """Sum `columns` entries, `following` rows apart, from row a + i step on."""
    for i in range(rows):
        y = out + i
        for p in range(LANES):
            buf[y, p] = 0.0
        j = 0
        while j + 3 < columns:
            x = a + i * step + j * following
            for p in range(LANES):
                total = buf[y, p] + buf[x, p]
                total += buf[x + following, p]
                total += buf[x + 2 * following, p]
                buf[y, p] = total + buf[x + 3 * following, p]
            j += 4
        while j < columns:
            x = a + i * step + j * following
            for p in range(LANES):
                buf[y, p] += buf[x, p]
            j += 1


@kernel
def row_squares(buf, out, a, rows, columns):  # type: ignore[no-untyped-def]
    """Sum the squares of each row."""
    for i in range(rows):
        y = out + i
        for p in range(LANES):
            buf[y, p] = 0.0
        j = 0
        while j + 3 < columns:
            x = a + i * columns + j
            for p in range(LANES):
                total = buf[y, p] + buf[x, p] * buf[x, p]
                total += buf[x + 1, p] * buf[x + 1, p]
                total += buf[x + 2, p] * buf[x + 2, p]
                buf[y, p] = total + buf[x + 3, p] * buf[x + 3, p]
            j += 4
        while j < columns:
            x = a + i * columns + j
            for p in range(LANES):
                buf[y, p] += buf[x, p] * buf[x, p]
            j += 1


@kernel
def unit_rows(buf, out, a, rows, columns, work):  # type: ignore[no-untyped-def]
    """Divide each row of A by its length; a row of zeros is unchanged."""
    for i in range(rows):
        row_squares(buf, work, a + i * columns, compiled_once(1), columns)
        for p in range(LANES):
            square = buf[work, p]
            buf[work, p] = 1.0 / math.sqrt(square) if square > 0.0 else 1.0
        for j in range(columns):
            for p in range(LANES):
                buf[out + i * columns + j, p] = buf[a + i * columns + j, p] * buf[work, p]


@kernel
def rotate(buf, out, a, turns, rows, columns, pairs):  # type: ignore[no-untyped-def]
    """Rotate pairs of columns in each row; see `primitives.rotate`."""
    for i in range(rows):
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


@kernel
def symmetric(buf, out, a, size):  # type: ignore[no-untyped-def]
    """Write the symmetric matrix with the lower triangle A, row by row, and sqrt 2 A_ii."""
    row = a
    for i in range(size):
        for j in range(i + 1):
            weight = math.sqrt(2.0) if i == j else 1.0
            for p in range(LANES):
                buf[out + i * size + j, p] = weight * buf[row, p]
                buf[out + j * size + i, p] = weight * buf[row, p]
            row += 1


@kernel
def softmax(buf, out, a, seen, rows, columns, s, work):  # type: ignore[no-untyped-def]
    """Apply softmax to the rows of s A where `seen` is positive; 0 elsewhere.

    `seen` is a constant, so lane 0 represents all; `work` is the first of two scratch rows.
    """
    top, total = work, work + 1
    for i in range(rows):
        for p in range(LANES):
            buf[top, p] = -np.inf
            buf[total, p] = 0.0
        for j in range(columns):
            if buf[seen + i * columns + j, 0] > 0.0:
                for p in range(LANES):
                    buf[top, p] = max(buf[top, p], s * buf[a + i * columns + j, p])
        for j in range(columns):
            y = out + i * columns + j
            if buf[seen + i * columns + j, 0] > 0.0:
                for p in range(LANES):
                    weight = exp(s * buf[a + i * columns + j, p] - buf[top, p])
                    buf[y, p] = weight
                    buf[total, p] += weight
        for p in range(LANES):
            buf[total, p] = 1.0 / buf[total, p]
        for j in range(columns):
            y = out + i * columns + j
            if buf[seen + i * columns + j, 0] > 0.0:
                for p in range(LANES):
                    buf[y, p] *= buf[total, p]
            else:
                for p in range(LANES):
                    buf[y, p] = 0.0


@kernel
def lower(buf, out, a, rows, columns, work):  # type: ignore[no-untyped-def]
    """Write the lower triangular L with L L^T = A A^T, columns >= rows, and overwrite A.

    Modified Gram-Schmidt on the rows of A: small singular values keep the relative accuracy that
    forming A A^T would lose. If the part of a row orthogonal to the previous rows is at rounding
    level, the column is zero. `work` has one row of scratch and one for each row of A.
    """
    original, one, no = work + 1, compiled_once(1), rows < 0
    row_squares(buf, original, a, rows, columns)
    for j in range(rows):
        row_squares(buf, work, a + j * columns, one, columns)
        for p in range(LANES):
            square = buf[work, p]
            # Tested as a difference, so that a non-finite pivot does not count as zero.
            zero = square - PIVOT * PIVOT * buf[original + j, p] <= 0.0
            length = 0.0 if zero else math.sqrt(square)
            buf[out + j * rows + j, p] = length
            buf[work, p] = 0.0 if zero else 1.0 / length
        for c in range(columns):
            for p in range(LANES):
                buf[a + j * columns + c, p] *= buf[work, p]
        for i in range(j):
            for p in range(LANES):
                buf[out + i * rows + j, p] = 0.0
        multiply(
            buf, out + (j + 1) * rows + j, rows, a + (j + 1) * columns, columns, one,
            a + j * columns, one, one, rows - j - 1, columns, one, no, no, no, no,
        )  # fmt: skip
        for i in range(j + 1, rows):
            y = out + i * rows + j
            for c in range(columns):
                for p in range(LANES):
                    buf[a + i * columns + c, p] -= buf[y, p] * buf[a + j * columns + c, p]


@kernel
def cholesky(buf, out, a, rows, work):  # type: ignore[no-untyped-def]
    """Write the lower triangular L with L L^T = A for positive semidefinite A.

    A pivot at rounding level counts as a zero eigenvalue and has a zero column, so singular
    matrices are allowed (Higham, *Accuracy and Stability*, 2002, section 10.3).
    """
    for j in range(rows):
        for i in range(j, rows):
            y = out + i * rows + j
            for p in range(LANES):
                buf[y, p] = buf[a + i * rows + j, p]
            for k in range(j):
                for p in range(LANES):
                    buf[y, p] -= buf[out + i * rows + k, p] * buf[out + j * rows + k, p]
        pivot = out + j * rows + j
        for p in range(LANES):
            zero = buf[pivot, p] - PIVOT * buf[a + j * rows + j, p] <= 0.0
            root = 0.0 if zero else math.sqrt(buf[pivot, p])
            buf[work, p] = 0.0 if zero else 1.0 / root
            buf[pivot, p] = root
        for i in range(j + 1, rows):
            for p in range(LANES):
                buf[out + i * rows + j, p] *= buf[work, p]
        for i in range(j):
            for p in range(LANES):
                buf[out + i * rows + j, p] = 0.0


@kernel
def arc_cosine(buf, out, a, rows):  # type: ignore[no-untyped-def]
    """Write the arc-cosine kernel of a covariance (see `primitives.arc_cosine_kernel`)."""
    for i in range(rows):
        for p in range(LANES):
            buf[out + i * rows + i, p] = math.pi * buf[a + i * rows + i, p]
        for j in range(i):
            for p in range(LANES):
                scale = math.sqrt(buf[a + i * rows + i, p] * buf[a + j * rows + j, p])
                r = buf[a + i * rows + j, p] / scale if scale > 0.0 else 0.0
                r = max(-1.0, min(1.0, r))
                value = scale * (math.sqrt(1.0 - r * r) + r * (math.pi - arccos(r)))
                buf[out + i * rows + j, p] = value
                buf[out + j * rows + i, p] = value


@kernel
def elementwise(buf, out, a, count, function, s, t):  # type: ignore[no-untyped-def]
    """Apply a function, named by the code of its operation, to `count` rows."""
    prefer_wide_vectors()
    for i in range(count):
        x, y = a + i, out + i
        if function == codes.SQRT:
            for p in range(LANES):
                buf[y, p] = math.sqrt(buf[x, p])
        elif function == codes.EXP:
            for p in range(LANES):
                buf[y, p] = whole_exp(buf[x, p])
        elif function == codes.TANH:
            for p in range(LANES):
                buf[y, p] = tanh(buf[x, p])
        elif function == codes.NORMAL_CDF:
            for p in range(LANES):
                buf[y, p] = normal_cdf(buf[x, p])
        elif function == codes.SIGMOID:
            for p in range(LANES):
                e = exp(-abs(buf[x, p]))
                low = e / (1.0 + e)
                buf[y, p] = 1.0 - low if buf[x, p] >= 0.0 else low
        elif function == codes.SOFTPLUS:
            for p in range(LANES):
                buf[y, p] = softplus(buf[x, p])
        elif function == codes.LEAKY:
            for p in range(LANES):
                buf[y, p] = (s if buf[x, p] > 0.0 else t) * buf[x, p]
        else:
            raise ValueError("unknown operation in a program")
