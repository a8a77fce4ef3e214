"""Panels of a figure, new or given as `ax`, and how densities are drawn in them.

Every plotting function has the argument `ax`. Without it, the function draws a new Figure in the
package's style and returns it. The style is seaborn's; colour-blind readers can tell the colours
apart, and so can readers of a grey print, because the lightness of the colours differs and each has
a line style. If a new figure has several panels, they are lettered (a), (b), and so on. With `ax`,
the function draws into these Axes in their own style, leaves the rest of the figure alone, and
returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from string import ascii_lowercase
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from shaped_attention.checks import argument_error
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

P = ParamSpec("P")
R = TypeVar("R")

Target = Axes | Sequence[Axes] | NDArray[Any] | None
"""Type of `ax`: one Axes for one panel, a sequence with one Axes per panel, or None."""

Drawn = Figure | Any
"""Type of what a plotting function returns: a new Figure, or the `ax` that was given."""

LINES = ("-", "--", ":", "-.")
_DISTINCT = "#0f5fa8", "#f2a21e", "#5a0f4a", "#14a37f", "#c8501e", "#93d0f5", "#141414"
_MORE = "#999933", "#332288", "#b4b4b4"
"""Distinct in colour; in grey print, only the line style tells them from the first seven."""
COLORS = sns.color_palette([*_DISTINCT, *_MORE])


def look(index: int) -> dict[str, Any]:
    """Return the colour and the line style of one of several curves, by its number."""
    return {"color": COLORS[index % len(COLORS)], "linestyle": LINES[index % len(LINES)]}


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Draw in the package's style, and leave matplotlib's settings as they were.

    Axes that are given as `ax` keep their style.
    """

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("ax") is not None:
            return function(*args, **kwargs)
        with (
            mpl.rc_context({"figure.dpi": 120}),
            sns.axes_style("whitegrid", {"grid.linestyle": ":"}),
            sns.plotting_context("notebook", font_scale=0.95),
        ):
            return function(*args, **kwargs)

    return draw


class Panels:
    """Panels of a drawing in rows, new or given.

    Parameters
    ----------
    ax
        The caller's argument.
    names
        What each panel shows, for the error message if the number of Axes is wrong.
    size
        Size of a new figure, in inches.
    columns
        Number of columns of a new figure; by default all panels are in one row.
    subplots
        Further arguments of `Figure.subplots`, such as `sharey`.

    Raises
    ------
    ValueError
        If `ax` does not have one Axes per name.
    """

    def __init__(
        self,
        ax: Target,
        names: Sequence[str],
        size: tuple[float, float],
        columns: int | None = None,
        **subplots: Any,
    ) -> None:
        self.given = ax
        count = len(names)
        self._columns = min(columns or count, count)
        self.axes = self._new(size, count, subplots) if ax is None else _checked(ax, names)
        self.figure: Any = self.axes[0].figure

    def _new(self, size: tuple[float, float], count: int, subplots: dict[str, Any]) -> list[Axes]:
        # A bare Figure, not pyplot: nothing is kept open and no display is needed.
        figure = Figure(figsize=size, layout="constrained")
        rows = -(-count // self._columns)
        every = figure.subplots(rows, self._columns, squeeze=False, **subplots).ravel()
        for axis in every[count:]:
            axis.set_visible(False)
        for axis in every[max(0, count - self._columns) : count]:
            # Above a missing panel, shared axes would have no numbers.
            axis.tick_params(labelbottom=True)
        for letter, axis in zip(ascii_lowercase, every[:count] if count > 1 else (), strict=False):
            axis.set_title(f"({letter})", loc="left", fontsize="medium")
        return list(every[:count])

    @property
    def left(self) -> list[Axes]:
        """Panels that name the vertical axis: those of the first column, or all given ones."""
        return self.axes if self.given is not None else self.axes[:: self._columns]

    @property
    def lowest(self) -> list[Axes]:
        """Panels that name the horizontal axis: the last of each column, or all given ones."""
        return self.axes if self.given is not None else self.axes[-self._columns :]

    def label(self, x: str, y: str) -> None:
        """Name the horizontal axes of the lowest panels, and the vertical ones on the left."""
        for axis in self.lowest:
            axis.set_xlabel(x)
        for axis in self.left:
            axis.set_ylabel(y)

    def finish(
        self, title: str | None, *, note: str = "", legend: bool = False, columns: int | None = None
    ) -> Drawn:
        """Write the title, a note and a shared legend; return the Figure or the given Axes.

        On given Axes, title and legend go on the first of them; the note has no room there.
        """
        entries: dict[str, Any] = {}
        for axis in self.axes if legend else ():
            handles, names = axis.get_legend_handles_labels()
            entries |= {name: handle for handle, name in zip(handles, names, strict=True)}
        if self.given is not None:
            first = self.axes[0]
            if title:
                first.set_title("\n".join(filter(None, (title, first.get_title()))))
            if entries:
                first.legend(entries.values(), entries.keys(), fontsize="small")
            return self.given
        if entries:
            self.figure.legend(
                entries.values(), entries.keys(), loc="outside lower center",
                ncols=columns or len(entries), frameon=False,
            )  # fmt: skip
        text = "\n".join(filter(None, (title, note)))
        if text:
            self.figure.suptitle(text, fontsize="medium")
        return self.figure


def _checked(ax: Any, names: Sequence[str]) -> list[Axes]:
    axes = [ax] if isinstance(ax, Axes) else list(np.asarray(ax, dtype=object).ravel())
    if not all(isinstance(axis, Axes) for axis in axes):
        raise argument_error("ax", "matplotlib Axes", ax)
    if len(axes) != len(names):
        raise ValueError(f"ax must have one Axes for each of {', '.join(names)}; got {len(axes)}")
    return axes


_BAND: dict[str, Any] = {"alpha": 0.2, "linewidth": 0}


def draw_density(
    axis: Axes,
    values: Floats,
    *,
    support: Interval = UNBOUNDED,
    window: Interval | None = None,
    bins: Bins | None = None,
    bandwidth: float | None = None,
    confidence: float = 0.95,
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
    estimate = estimate_density(
        values, bins=bins, bandwidth=bandwidth, support=support, window=window,
        confidence=confidence, without=place,
    )  # fmt: skip
    band = _BAND | {"color": line["color"]}
    if bins is None:
        axis.fill_between(estimate["value"], estimate["lower"], estimate["upper"], **band)
        axis.plot(estimate["value"], estimate["density"], **line)
        return shared is not None
    edges = np.append(estimate["left"].values, estimate["right"].values[-1])
    axis.stairs(
        estimate["upper"].values, edges, baseline=estimate["lower"].values, fill=True, **band
    )
    axis.stairs(estimate["density"].values, edges, **line)
    return shared is not None
