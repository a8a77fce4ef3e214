"""Laws of the entries of a matrix, and what is measured of the entries.

The sample standard deviation shows a wrong scale, and the largest entry a law with other tails. The
logarithm of the former has the standard error sqrt((kurtosis - 1) / 4N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc
from torch import Tensor

Array = NDArray[np.float64]

_ROOT = math.sqrt(2.0)
_CHUNK = 2**17
"""Entries that are measured at once, in float64."""


@dataclass(frozen=True)
class EntryLaw:
    """Independent entries: normal, cut at `cut` standard deviations of the law before the cut.

    `std` is the standard deviation that is left; 0 if all entries equal `mean`.
    """

    std: float
    cut: float = math.inf
    mean: float = 0.0

    @cached_property
    def _inside(self) -> tuple[float, float]:
        """Variance and fourth moment of a standard normal law that is cut."""
        cut = self.cut
        if math.isinf(cut):
            return 1.0, 3.0
        edge = (
            2.0 * cut * math.exp(-0.5 * cut**2) / math.sqrt(2.0 * math.pi) / float(erf(cut / _ROOT))
        )
        return 1.0 - edge, 3.0 * (1.0 - edge) - cut**2 * edge

    @property
    def kurtosis(self) -> float:
        """Fourth moment of an entry divided by the square of its variance."""
        variance, fourth = self._inside
        return fourth / variance**2

    def above(self, most: float) -> float:
        """Return the probability that an entry is larger than so many standard deviations."""
        most *= math.sqrt(self._inside[0])
        tail = float(erfc(most / _ROOT) - erfc(self.cut / _ROOT))
        return max(0.0, tail) / float(erf(self.cut / _ROOT))

    def __str__(self) -> str:
        return "normal" if math.isinf(self.cut) else f"normal, cut at {self.cut:g} std"


class Entries(NamedTuple):
    """What is measured of the entries of a matrix.

    Their number, mean, variance and kurtosis; the largest distance from the mean in standard
    deviations; the first ones.
    """

    number: int
    mean: float
    variance: float
    kurtosis: float
    most: float
    first: Array

    @property
    def std(self) -> float:
        """Standard deviation of the entries."""
        return math.sqrt(self.variance)

    @property
    def broken(self) -> str:
        """What makes all statistics meaningless, in words; empty if nothing does."""
        if not math.isfinite(self.variance):
            return "entries that are not finite, or close to the largest number"
        return "" if self.variance > 0.0 else f"all entries are {self.mean:g}"


def measured(entries: Tensor, keep: int) -> Entries:
    """Measure the entries of a matrix, and keep the first of them."""
    number, parts = entries.numel(), entries.flatten().split(_CHUNK)
    mean = math.fsum(float(part.double().sum()) for part in parts) / number
    two, four, most = 0.0, 0.0, 0.0
    for part in parts:
        square = (part.double() - mean).square()
        two += float(square.sum())
        four += float(square.square().sum())
        most = max(most, float(square.max()))
    variance = two / max(1, number - 1)
    first = parts[0][:keep].double().cpu().numpy()
    if not 0.0 < variance < math.inf:
        return Entries(number, mean, variance, 0.0, 0.0, first)
    return Entries(
        number, mean, variance, four / number / variance**2, math.sqrt(most / variance), first
    )


def in_words(entries: Entries) -> str:
    """Return the law that entries are most like, by their kurtosis and the largest of them."""
    if entries.broken:
        return entries.broken
    known = {f"normal, cut at {c} std": EntryLaw(1.0, c).kurtosis for c in (2, 3)}
    known |= {"normal": 3.0, "uniform": 1.8}
    return min(known, key=lambda name: abs(known[name] - entries.kurtosis))
