"""Products with Gaussian weight matrices that are generated a few columns at a time.

The weight in row r and column c of a sample's matrix W (fan_in, columns) is the normal number
c fan_in + r of its slot. A column is contiguous, so an entry of X W is an inner product of two rows
whose order depends on `fan_in` alone: neither the other samples nor the threads that share the
columns change it. No matrix is stored, which bounds the memory at any width.
"""

from __future__ import annotations

import numpy as np

from shaped_attention.numerics.jit import kernel
from shaped_attention.numerics.threefry import fill_weights
from shaped_attention.numerics.vector_products import inner_products

_BLOCK = 2**12
"""Numbers of a block of columns, which are multiplied while they are in the cache."""


@kernel
def multiply_weights(x, key, paths, slot, begin, end, out):  # type: ignore[no-untyped-def]
    """Write columns begin, ..., end - 1 (begin even) of X W for the samples of `paths`.

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
