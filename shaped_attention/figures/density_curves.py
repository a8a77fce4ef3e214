"""One density with its pointwise band, as every figure of the package draws it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from shaped_attention.statistics.density import (
    FEWEST,
    UNBOUNDED,
    Bins,
    Floats,
    Interval,
    atom,
    estimate_density,
    largest_atom,
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
    last: float | None = None,
    **line: Any,
) -> bool:
    """Draw the density from `estimate_density`: a line, and a light band of its intervals.

    Equal values have no density; a vertical line marks them. If more than 1 % of the samples share
    one value, the line's entry in the legend has their share, and the curve has the mass of the
    others. `last` is the last time, if the values are stopping times: only paths that have not
    stopped by then are such an atom. `line` has the colour, the line style and the label.

    Return whether there is a vertical line.
    """
    equal = atom(values)
    if equal is not None:
        axis.axvline(equal, **line)
        return True
    place = None
    shared = largest_atom(values, last)
    if shared is not None:
        place, share = shared
        others = values[values != place]
        drawn = len(others) >= FEWEST and atom(others) is None
        at = f"{place:.4g}" if last is None else f"$t$ = {place:.4g}"
        more = "" if drawn else ", no curve for the rest"
        label = f"{line['label']}: {100 * share:.3g} % at {at}{more}"
        axis.axvline(place, **line | {"label": label})
        if not drawn:
            return True
    found = estimate_density(
        values, bins=bins, bandwidth=bandwidth, support=support, window=window,
        confidence=level, without=place,
    )  # fmt: skip
    band = _BAND | {"color": line["color"]}
    if bins is None:
        axis.fill_between(found["value"], found["lower"], found["upper"], **band)
        axis.plot(found["value"], found["density"], **line)
        return shared is not None
    edges = np.append(found["left"].values, found["right"].values[-1])
    axis.stairs(found["upper"].values, edges, baseline=found["lower"].values, fill=True, **band)
    axis.stairs(found["density"].values, edges, **line)
    return shared is not None
