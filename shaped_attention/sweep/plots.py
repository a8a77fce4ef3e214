"""Figures of sweeps: heat maps over two axes, curves along one, distances between samplers."""

from __future__ import annotations

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shaped_attention.checks import argument_error, check_choice
from shaped_attention.figures.labels import (
    expectation_label,
    observable_label,
    parameter_label,
    sampler_label,
)
from shaped_attention.figures.panels import Drawn, Panels, Target, look, styled
from shaped_attention.sweep.reading import sweep_of


@styled
def heat_maps(
    values: xr.DataArray,
    title: str | None = None,
    label: str = "",
    limits: tuple[float, float] | None = None,
    *,
    ax: Target = None,
) -> Drawn:
    """Draw heat maps over two axes with their numbers, one per value of a further dimension.

    Parameters
    ----------
    values
        Numbers over two axes of a sweep and at most one further dimension (panels), such as
        ``summary["mean"].sel(observable="mean |rho|").isel(time=-1)``. The dimension of the panels
        comes first.
    title, label
        Title of the figure, and label of the colour bar.
    limits
        Limits of the colour scale; by default the range of the values.
    ax
        Axes to draw into, one per panel.

    Raises
    ------
    ValueError
        If `values` do not have two axes and at most one further dimension, or `ax` does not have
        one Axes per panel.
    """
    values = _ascending(values)
    if values.ndim not in (2, 3):
        needed = "over two axes, and at most one dimension of panels"
        raise argument_error("values", needed, values.dims)
    *panels_of, x, y = map(str, values.dims)
    across = panels_of[0] if panels_of else None
    names = _names(values, across)
    panels = Panels(ax, names, (1.2 + 4.8 * len(names), 4.2), titles=across is not None)
    low, high = limits or (float(values.min()), float(values.max()))
    for k, axis in enumerate(panels.axes):
        one = values if across is None else values.isel({across: k})
        numbers = one.transpose(y, x).values
        sns.heatmap(
            numbers[::-1], ax=axis, annot=numbers.size <= 150, fmt=".2g", annot_kws={"size": 7},
            xticklabels=_ticks(one[x]), yticklabels=_ticks(one[y])[::-1],
            vmin=low, vmax=high, cmap="viridis", cbar=False,
        )  # fmt: skip
        axis.set(xlabel="", ylabel="")
    panels.label(parameter_label(x), parameter_label(y))
    panels.colorbar(panels.axes[-1].collections[0], panels.axes, label=label)
    return panels.finish(title)


@styled
def small_multiples(
    values: xr.DataArray,
    title: str | None = None,
    label: str = "",
    error: xr.DataArray | None = None,
    *,
    ax: Target = None,
) -> Drawn:
    """Draw curves along the last axis: one panel per value of the other, one line per sampler.

    Parameters
    ----------
    values
        Numbers (sampler, axis) or (sampler, panels, axis).
    title, label
        Title of the figure, and label of the vertical axes.
    error
        Half widths of intervals, in the shape of `values`.
    ax
        Axes to draw into, one per panel.

    Raises
    ------
    ValueError
        If `values` have other dimensions, or `ax` does not have one Axes per panel.
    """
    if "sampler" not in values.dims or values.ndim not in (2, 3):
        raise argument_error("values", "over sampler and one or two axes", values.dims)
    error = None if error is None else _ascending(error.assign_coords(values.coords))
    values = _ascending(values)
    axes_names = [str(dim) for dim in values.dims if dim != "sampler"]
    x, across = axes_names[-1], axes_names[0] if len(axes_names) == 2 else None
    names = _names(values, across)
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    size = (1.0 + 3.2 * columns, 1.1 + 2.8 * rows)
    titles = across is not None
    panels = Panels(ax, names, size, columns, titles=titles, sharex=True, sharey=True)
    for k, axis in enumerate(panels.axes):
        where = {} if across is None else {across: k}
        _lines(axis, values.isel(where), None if error is None else error.isel(where), x)
    panels.label(parameter_label(x), label)
    return panels.finish(title, legend=True)


def sweep_figures(
    data: xr.Dataset, summary: xr.Dataset, distances: xr.Dataset | None, observable: str
) -> dict[str, Figure]:
    """Draw the figures that suit a sweep, by name, for one observable at the last time.

    With two axes, `mean` and `stopped` are heat maps with one panel per sampler, and `distance` is
    a heat map of the Kolmogorov-Smirnov distance. With one or two axes, `curves` shows the means
    with their intervals against the longer axis.

    Raises
    ------
    ValueError
        If the sweep has no axis or more than two, or does not keep the observable.
    """
    axes = list(sweep_of(data).axes)
    if len(axes) not in (1, 2):
        raise ValueError(f"the sweep has {len(axes)} axes; one or two can be drawn (select some)")
    check_choice("observable", observable, summary["observable"].values)
    mean_label = expectation_label(observable)
    at = f"$t$ = {float(summary['time'][-1]):.4g}" if "time" in summary.coords else "the last time"
    last = summary.isel(time=-1).sel(observable=observable)
    figures = {}
    if len(axes) == 2:
        figures["mean"] = heat_maps(last["mean"], f"{mean_label} at {at}", mean_label)
        stopped = summary["stopped"].isel(fraction=-1)
        title = f"fraction of paths stopped by {at}"
        figures["stopped"] = heat_maps(stopped, title, "fraction of paths")
        if distances is not None and observable in distances["kept"].values:
            one = distances["distance"].isel(time=-1).sel(kept=observable)
            margin = float(distances["margin"].max())
            first, second = (sampler_label(distances.attrs[k]) for k in ("first", "second"))
            title = (
                f"KS distance of {observable_label(observable)} at {at}, {first} and {second} "
                f"(known to ± {margin:.3f})"
            )
            # Unresolved distances stay in the lower half of the colour scale.
            limits = (0.0, max(2.0 * margin, float(one.max())))
            figures["distance"] = heat_maps(one, title, "KS distance", limits)
    ordered = sorted(axes, key=lambda name: summary.sizes[name])
    mean, half = (last[name].transpose("sampler", *ordered) for name in ("mean", "half_width"))
    figures["curves"] = small_multiples(mean, f"{mean_label} at {at}", mean_label, half)
    return figures


def _ascending(values: xr.DataArray) -> xr.DataArray:
    """Sort the numbers of every axis; an extension appends them in any order."""
    numbers = [dim for dim in values.dims if np.issubdtype(values[dim].dtype, np.number)]
    return values.sortby(numbers)


def _names(values: xr.DataArray, across: str | None) -> list[str]:
    """Return a name for each panel: the values of the dimension across panels."""
    if across is None:
        return [str(values.name or "values")]
    shown = values[across].values.tolist()
    if across == "sampler":
        return [sampler_label(value) for value in shown]
    return [f"{parameter_label(across)} = {value}" for value in _ticks(values[across])]


def _ticks(coordinate: xr.DataArray) -> list[str]:
    return [f"{x:.3g}" if isinstance(x, float) else str(x) for x in coordinate.values.tolist()]


def _lines(axis: Axes, values: xr.DataArray, error: xr.DataArray | None, x: str) -> None:
    positions = values[x].values
    numbers = np.issubdtype(positions.dtype, np.number)
    where = positions if numbers else np.arange(len(positions))
    for k, sampler in enumerate(values["sampler"].values):
        one = values.sel(sampler=sampler).values
        spread = None if error is None else error.sel(sampler=sampler).values
        axis.errorbar(
            where, one, yerr=spread, marker="o", markersize=4, capsize=2.0, **look(k),
            label=sampler_label(sampler),
        )  # fmt: skip
    if not numbers:
        axis.set_xticks(where, [str(p) for p in positions])
