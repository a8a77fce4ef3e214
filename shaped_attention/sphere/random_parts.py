"""Parts of the random stream "sphere", a number for each function that draws from it."""

from __future__ import annotations

from enum import IntEnum


class SpherePart(IntEnum):
    """Parts of the stream "sphere"; `uniform_start` uses the stream itself. Append only."""

    NOISY_CHAIN = 1
    NOISY_NETWORK = 2
    TOKENS = 11
    MATRICES = 12
    PARTICLES = 21
