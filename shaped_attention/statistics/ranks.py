"""One draw within a law: the rank of each of its numbers among samples of the law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def ranks(draw: Array, law: Array) -> tuple[Array, Array]:
    """Return the ranks of numbers (k,) among samples (N, k) of their law, and p-values.

    Ranks are shares in (0, 1) of N + 1 places, in the middle of equal numbers. The p-values are
    exact and two-sided, at least 2 / (N + 1), and not corrected for the number k.
    """
    count = len(law) + 1
    below, above = (law < draw).sum(0), (law > draw).sum(0)
    equal = law.shape[0] - below - above
    rank = (below + 0.5 * equal + 0.5) / count
    tail = np.minimum(below, above) + equal + 1
    return rank, np.minimum(1.0, 2.0 * tail / count)
