"""The one place where compilation is configured."""

from __future__ import annotations

from numba import njit

LANES = 64
"""Paths in a tile. A path always sits in the same lane, so results do not depend on chunks.

Measured at 8, 16, 32, 64, 96 and 128: 64 was fastest for every kernel and 32 a third slower.
"""

# Contraction (fused multiply-add) is the only liberty that is taken: lanes never mix, so nothing
# needs to be reassociated, and a path's rounding is the same wherever it is computed.
_FASTMATH = {"contract", "nsz"}

kernel = njit(cache=True, nogil=True, error_model="numpy", fastmath=_FASTMATH)
"""Compile a function on tiles; it releases the interpreter lock, so chunks run on threads."""

scalar = njit(cache=True, inline="always", error_model="numpy", fastmath=_FASTMATH)
"""Compile a function of numbers that is inlined into the loop over lanes that calls it."""
