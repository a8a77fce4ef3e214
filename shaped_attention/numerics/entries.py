"""Loops over the entries of one large matrix that NumPy would take in several passes."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.numerics.jit import kernel
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
def lower_part(a, signs, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of A, with its columns multiplied by signs."""
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = signs[j] * a[i, j]
        for j in range(i + 1, out.shape[0]):
            out[i, j] = 0.0


@kernel
def mirror(square):  # type: ignore[no-untyped-def]
    """Copy the lower triangle to the upper one, by blocks that fit into the cache."""
    size, block = square.shape[0], 32
    for first in range(0, size, block):
        for second in range(0, first + block, block):
            for i in range(first, min(first + block, size)):
                for j in range(second, min(second + block, i)):
                    square[j, i] = square[i, j]


@kernel
def symmetric(numbers, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle row by row, with sqrt 2 times the diagonal; then mirror it."""
    root = math.sqrt(2.0)
    k = 0
    for i in range(out.shape[0]):
        for j in range(i):
            out[i, j] = numbers[k]
            k += 1
        out[i, i] = root * numbers[k]
        k += 1
    mirror(out)


@kernel
def triangle(below, diagonal, out):  # type: ignore[no-untyped-def]
    """Write the lower triangular matrix with a given diagonal and, row by row, entries below it."""
    k = 0
    for i in range(out.shape[0]):
        for j in range(i):
            out[i, j] = below[k]
            k += 1
        out[i, i] = diagonal[i]
        for j in range(i + 1, out.shape[0]):
            out[i, j] = 0.0


@kernel
def arc_cosine(v, out):  # type: ignore[no-untyped-def]
    """Write the arc-cosine kernel of a covariance (see `primitives.arc_cosine_kernel`)."""
    for i in range(v.shape[0]):
        for j in range(i):
            scale = math.sqrt(v[i, i] * v[j, j])
            r = v[i, j] / scale if scale > 0.0 else 0.0
            r = max(-1.0, min(1.0, r))
            out[i, j] = scale * (math.sqrt(1.0 - r * r) + r * (math.pi - arccos(r)))
        out[i, i] = math.pi * v[i, i]
    mirror(out)
