"""Laws of the entries of a matrix, and what is measured of the entries.

The sample standard deviation tells scales apart best: its logarithm has the standard error
sqrt((kurtosis - 1) / 4N). The largest entry tells a normal law from one that is cut, and the
kurtosis any two laws with enough entries. Means and moments are those of entries minus their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

_CHUNK = 2**22
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
    def moments(self) -> tuple[float, float, float]:
        """Moments 4, 6 and 8 of an entry divided by its standard deviation."""
        if math.isinf(self.cut):
            return 3.0, 15.0, 105.0
        from scipy.stats import truncnorm

        law = truncnorm(-self.cut, self.cut)
        four, six, eight = (float(law.moment(k) / law.moment(2) ** (k / 2)) for k in (4, 6, 8))
        return four, six, eight

    @cached_property
    def bound(self) -> float:
        """The largest entry, in standard deviations."""
        from scipy.stats import truncnorm

        cut = self.cut
        return cut if math.isinf(cut) else cut / float(truncnorm.std(-cut, cut))

    def __str__(self) -> str:
        return "normal" if math.isinf(self.cut) else f"normal, cut at {self.cut:g} std"


class Entries(NamedTuple):
    """What is measured of the entries of a matrix (R, C).

    Mean, variance and kurtosis; the largest distance from the mean, in standard deviations; mean
    squares of the entries in each row and in each column, divided by the variance; the first ones.
    """

    count: int
    mean: float
    variance: float
    kurtosis: float
    most: float
    rows: Array
    columns: Array
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


def measured(matrix: Tensor, keep: int) -> Entries:
    """Measure the entries of a matrix, and keep some of them."""
    count, width = matrix.numel(), matrix.shape[1]
    parts = matrix.split(max(1, _CHUNK // width))
    mean = math.fsum(float(part.double().sum()) for part in parts) / count
    four, most, rows, columns = 0.0, 0.0, [], np.zeros(width)
    for part in parts:
        x = part.double() - mean
        square = x.square()
        rows.append(square.mean(1).cpu().numpy())
        columns += square.sum(0).cpu().numpy() / matrix.shape[0]
        four += float(square.square().sum()) / count
        most = max(most, float(square.max()))
    by_row = np.concatenate(rows)
    variance = float(by_row.mean()) * count / max(1, count - 1)
    first = matrix.flatten()[:keep].double().cpu().numpy()
    if not 0.0 < variance < math.inf:
        return Entries(count, mean, variance, 0.0, 0.0, by_row, columns, first)
    return Entries(
        count, mean, variance, four / variance**2, math.sqrt(most / variance), by_row / variance,
        columns / variance, first,
    )  # fmt: skip


def in_words(entries: Entries) -> str:
    """Return the law that entries are most like, by their kurtosis and the largest of them."""
    if entries.broken:
        return entries.broken
    known = {f"normal, cut at {c} std": EntryLaw(1.0, c).moments[0] for c in (2.0, 3.0)}
    known |= {"normal": 3.0, "uniform": 1.8}
    return min(known, key=lambda name: abs(known[name] - entries.kurtosis))
