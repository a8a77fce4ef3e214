"""Configuration of compilation."""

from __future__ import annotations

from functools import partial

import llvmlite.binding
import numpy as np
from numba.core import config

from shaped_attention.numerics.kernel_cache import compiled

LANES = 64
"""Paths in a tile. A path always sits in the same lane, so results do not depend on chunks.

Measured at 8, 16, 32, 64, 96 and 128: 64 was fastest for every kernel and 32 a third slower.
"""

STRIDE = LANES + 8
"""Entries from one row of a tile's buffer to the next; those beyond the lanes are not used.

Rows whose distance is a power of 2 would share a set of the first-level cache: products of 8 x 8
matrices are up to twice as fast with this one.
"""


def _has_wide_vectors() -> bool:
    """Return whether kernels are compiled for a processor with vectors of 512 bits."""
    features = vars(config).get("CPU_FEATURES")
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    return "+avx512f" in features.split(",")


WIDE = _has_wide_vectors()


# Contraction (fused multiply-add) is the only relaxation: lanes never mix, so nothing needs to be
# reassociated, and the rounding of a path is the same wherever it is computed.
_FASTMATH = {"contract", "nsz"}

kernel = partial(compiled, nogil=True, error_model="numpy", fastmath=_FASTMATH)
"""Compile a function on tiles; it releases the interpreter lock, so chunks run in parallel."""

unfused = partial(compiled, nogil=True, error_model="numpy")
"""Compile a function that rounds products before they are added, as NumPy does."""

compiled_once = np.int64
"""Turn a literal argument into a number: numba compiles a function again for each literal."""

scalar = partial(compiled, inline="always", error_model="numpy", fastmath=_FASTMATH)
"""Compile a function of numbers that is inlined into the loop over lanes that calls it."""


@kernel
def tile_buffer(rows):  # type: ignore[no-untyped-def]
    """Return an array (rows, STRIDE) that begins at a line of the cache.

    Vectors of 512 bits that cross a line take twice as long (measured on products of 8 x 8
    matrices).
    """
    flat = np.empty(rows * STRIDE + 8)
    start = np.int64(8 - (flat.ctypes.data >> 3) % 8)
    return flat[start : start + rows * STRIDE].reshape(rows, STRIDE)


@kernel
def piece(left):  # type: ignore[no-untyped-def]
    """Return the height or width of the next block when `left` rows or columns remain."""
    if left >= 4:
        return 4
    return 2 if left >= 2 else 1
