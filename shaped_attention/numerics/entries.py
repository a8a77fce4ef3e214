"""Loops over the entries of stacks of matrices that NumPy would take in several passes."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.numerics.jit import kernel, unfused
from shaped_attention.numerics.tile_algebra import PIVOT
from shaped_attention.numerics.vector_products import inner_products
from shaped_attention.numerics.vectormath import (
    arccos,
    exp,
    log,
    normal_cdf,
    prefer_wide_vectors,
    softplus,
)


@kernel
def combine(a, b, s, t, out):  # type: ignore[no-untyped-def]
    """Write s a + t b."""
    for i in range(a.size):
        out[i] = s * a[i] + t * b[i]


@kernel
def leaky(x, s, t, out):  # type: ignore[no-untyped-def]
    """Write s x for x > 0 and t x otherwise."""
    for i in range(x.size):
        out[i] = (s if x[i] > 0.0 else t) * x[i]


@kernel
def sigmoids(x, out):  # type: ignore[no-untyped-def]
    """Write 1 / (1 + exp(-x))."""
    prefer_wide_vectors()
    for i in range(x.size):
        e = exp(-abs(x[i]))
        low = e / (1.0 + e)
        out[i] = 1.0 - low if x[i] >= 0.0 else low


@kernel
def softplus_values(x, out):  # type: ignore[no-untyped-def]
    """Write log(1 + exp(x))."""
    prefer_wide_vectors()
    for i in range(x.size):
        out[i] = softplus(x[i])


@kernel
def normal_cdfs(x, out):  # type: ignore[no-untyped-def]
    """Write the distribution function of the standard normal law."""
    prefer_wide_vectors()
    for i in range(x.size):
        out[i] = normal_cdf(x[i])


@kernel
def entropies(weights, out):  # type: ignore[no-untyped-def]
    """Write the entropy -sum p log p of each row of probabilities."""
    prefer_wide_vectors()
    terms = np.empty(weights.shape[1])
    for i in range(weights.shape[0]):
        row = weights[i]
        for j in range(terms.size):
            p = row[j]
            # The logarithm of a smaller double is not defined, and p log p is at rounding level.
            terms[j] = p * log(p if p > 1e-300 else 1.0)
        total = 0.0
        for j in range(terms.size):
            total -= terms[j]
        out[i] = total


@kernel
def softmax(logits, seen, scale, out):  # type: ignore[no-untyped-def]
    """Apply softmax to the rows of scale X, for X (samples, m, m), where `seen` is positive."""
    prefer_wide_vectors()
    samples, rows, columns = logits.shape
    for s in range(samples):
        for i in range(rows):
            x, z, allowed = logits[s, i], out[s, i], seen[i]
            top = -np.inf
            for j in range(columns):
                value = scale * x[j] if allowed[j] > 0.0 else -np.inf
                top = max(top, value)
            for j in range(columns):
                weight = exp(scale * x[j] - top)
                z[j] = weight if allowed[j] > 0.0 else 0.0
            total = 0.0
            for j in range(columns):
                total += z[j]
            total = 1.0 / total
            for j in range(columns):
                z[j] *= total


@unfused
def rotate(a, turns, out):  # type: ignore[no-untyped-def]
    """Rotate pairs of columns in each row of A (samples, m, c); see `primitives.rotate`."""
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


@kernel
def lower(a, out):  # type: ignore[no-untyped-def]
    """Write the lower triangular L with L L^T = A A^T, and overwrite A (see `tile_algebra.lower`).

    A has the shape (samples, m, c).
    """
    samples, rows, columns = a.shape
    flat, result = a.reshape(-1), out.reshape(-1)
    squares = np.empty(rows)
    for s in range(samples):
        start, first = s * rows * columns, s * rows * rows
        for i in range(rows):
            x = start + i * columns
            inner_products(squares, flat, flat, i, 1, x, columns, x, columns, 1, columns, 1)
        level = squares.copy()
        for j in range(rows):
            unit = a[s, j]
            x = start + j * columns
            inner_products(squares, flat, flat, j, 1, x, columns, x, columns, 1, columns, 1)
            # Tested as a difference, so that a non-finite pivot does not count as zero.
            zero = squares[j] - PIVOT * PIVOT * level[j] <= 0.0
            length = 0.0 if zero else math.sqrt(squares[j])
            factor = 0.0 if zero else 1.0 / length
            out[s, :j, j] = 0.0
            out[s, j, j] = length
            for c in range(columns):
                unit[c] *= factor
            inner_products(
                result, flat, flat, first + (j + 1) * rows + j, rows, x + columns, columns,
                x, columns, rows - j - 1, columns, 1,
            )  # fmt: skip
            for i in range(j + 1, rows):
                rest, part = a[s, i], out[s, i, j]
                for c in range(columns):
                    rest[c] -= part * unit[c]


@kernel
def lower_part(a, signs, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of A, with its columns multiplied by signs."""
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = signs[j] * a[i, j]
        for j in range(i + 1, out.shape[0]):
            out[i, j] = 0.0


@kernel
def mirror(square):  # type: ignore[no-untyped-def]
    """Copy the lower triangle of (samples, m, m) to the upper one, in blocks that fit the cache."""
    size, block = square.shape[1], 32
    for s in range(square.shape[0]):
        for first in range(0, size, block):
            for second in range(0, first + block, block):
                for i in range(first, min(first + block, size)):
                    for j in range(second, min(second + block, i)):
                        square[s, j, i] = square[s, i, j]


@kernel
def symmetric(numbers, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle row by row, with sqrt 2 times the diagonal; then mirror it."""
    root = math.sqrt(2.0)
    for s in range(out.shape[0]):
        k = 0
        for i in range(out.shape[1]):
            for j in range(i):
                out[s, i, j] = numbers[s, k]
                k += 1
            out[s, i, i] = root * numbers[s, k]
            k += 1
    mirror(out)


@kernel
def triangle(below, diagonal, out):  # type: ignore[no-untyped-def]
    """Write lower triangular matrices (samples, m, m).

    `diagonal` (m, samples) is on the diagonal, and `below` (samples, ...) row by row below it.
    """
    for s in range(out.shape[0]):
        k = 0
        for i in range(out.shape[1]):
            for j in range(i):
                out[s, i, j] = below[s, k]
                k += 1
            out[s, i, i] = diagonal[i, s]
            for j in range(i + 1, out.shape[1]):
                out[s, i, j] = 0.0


@kernel
def arc_cosine(v, out):  # type: ignore[no-untyped-def]
    """Write the arc-cosine kernel of a covariance (see `primitives.arc_cosine_kernel`)."""
    for s in range(v.shape[0]):
        for i in range(v.shape[1]):
            for j in range(i):
                scale = math.sqrt(v[s, i, i] * v[s, j, j])
                r = v[s, i, j] / scale if scale > 0.0 else 0.0
                r = max(-1.0, min(1.0, r))
                out[s, i, j] = scale * (math.sqrt(1.0 - r * r) + r * (math.pi - arccos(r)))
            out[s, i, i] = math.pi * v[s, i, i]
    mirror(out)
