"""One density with its pointwise band, as every figure of the package draws it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from shaped_attention.statistics.density_estimates import (
    UNBOUNDED,
    Bins,
    Floats,
    Interval,
    atom,
    estimate_density,
)

_BAND: dict[str, Any] = {"alpha": 0.2, "linewidth": 0}


def draw_density(
    axis: Axes,
    values: Floats,
    *,
    support: Interval = UNBOUNDED,
    window: Interval | None = None,
    bins: Bins | None = None,
    bandwidth: float | str | None = None,
    level: float = 0.95,
    **line: Any,
) -> None:
    """Draw the density from `estimate_density`: a line, and a light band of its intervals.

    Equal values have no density; a vertical line marks them. `line` has the colour, the line
    style and the label.
    """
    equal = atom(values)
    if equal is not None:
        axis.axvline(equal, **line)
        return
    found = estimate_density(
        values, bins=bins, bandwidth=bandwidth, support=support, window=window, level=level
    )
    band = _BAND | {"color": line["color"]}
    if bins is None:
        axis.fill_between(found["value"], found["lower"], found["upper"], **band)
        axis.plot(found["value"], found["density"], **line)
        return
    edges = np.append(found["left"].values, found["right"].values[-1])
    axis.stairs(found["upper"].values, edges, baseline=found["lower"].values, fill=True, **band)
    axis.stairs(found["density"].values, edges, **line)
