"""Parts of the random stream "sphere": what draws from it, by number."""

from __future__ import annotations

from enum import IntEnum


class SpherePart(IntEnum):
    """Parts of the stream "sphere", alongside `uniform_start`, the stream itself. Append only."""

    NOISY_CHAIN = 1
    NOISY_NETWORK = 2
    TOKENS = 11
    MATRICES = 12
    PARTICLES = 21
