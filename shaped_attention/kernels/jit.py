"""The one place where compilation is configured."""

from __future__ import annotations

import hashlib
from pathlib import Path

from numba import njit

LANES = 64
"""Paths in a tile. A path always sits in the same lane, so results do not depend on chunks.

Measured at 8, 16, 32, 64, 96 and 128: 64 was fastest for every kernel and 32 a third slower.
"""


def _drop_stale_kernels() -> None:
    """Delete cached kernels that were compiled from other sources than today's.

    Numba's cache notices a change of a kernel's own file, but not of the files whose functions it
    inlines, and would run a mixture of old and new code. A stamp names the sources of the cache.
    """
    folder = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    cache = folder / "__pycache__"
    stamp = cache / f"kernels-{hashlib.sha256(sources).hexdigest()[:16]}.stamp"
    if stamp.exists():
        return
    try:
        cache.mkdir(exist_ok=True)
        for pattern in ("*.nbi", "*.nbc", "kernels-*.stamp"):
            for old in cache.glob(pattern):
                old.unlink(missing_ok=True)
        stamp.touch()
    except OSError:
        # A folder that cannot be written holds no cache of ours: numba then keeps it elsewhere.
        return


_drop_stale_kernels()

# Contraction (fused multiply-add) is the only liberty that is taken: lanes never mix, so nothing
# needs to be reassociated, and a path's rounding is the same wherever it is computed.
_FASTMATH = {"contract", "nsz"}

kernel = njit(cache=True, nogil=True, error_model="numpy", fastmath=_FASTMATH)
"""Compile a function on tiles; it releases the interpreter lock, so chunks run on threads."""

scalar = njit(cache=True, inline="always", error_model="numpy", fastmath=_FASTMATH)
"""Compile a function of numbers that is inlined into the loop over lanes that calls it."""
