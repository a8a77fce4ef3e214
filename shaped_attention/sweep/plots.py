"""Figures of sweeps: heat maps over two axes, curves along one, distances between samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from shaped_attention.checks import argument_error, check_choice
from shaped_attention.figures.labels import (
    expectation_label,
    observable_label,
    parameter_label,
    sampler_label,
)
from shaped_attention.figures.panels import UNRESOLVED, Drawn, Panels, Target, look, styled
from shaped_attention.sweep.reading import sweep_of


@styled
def heat_maps(
    values: xr.DataArray,
    title: str | None = None,
    label: str = "",
    limits: tuple[float, float] | None = None,
    *,
    bound: xr.DataArray | None = None,
    logarithmic: bool = False,
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
    bound
        Upper bounds in the shape of `values`, where the samples do not resolve the value, and NaN
        elsewhere: these cells are grey, with their bound.
    logarithmic
        Whether colours are those of the logarithm; zeros are then blank.
    ax
        Axes to draw into, one per panel.

    Raises
    ------
    ValueError
        If `values` do not have two axes and at most one further dimension, or `ax` does not have
        one Axes per panel.
    """
    shown = values if bound is None else values.where(bound.isnull())
    shown = _ascending(shown.where(shown > 0.0) if logarithmic else shown)
    values = _ascending(values if bound is None else bound.fillna(values))
    if values.ndim not in (2, 3):
        needed = "over two axes, and at most one dimension of panels"
        raise argument_error("values", needed, values.dims)
    *panels_of, x, y = map(str, values.dims)
    across = panels_of[0] if panels_of else None
    names = _names(values, across)
    panels = Panels(ax, names, (1.2 + 4.8 * len(names), 4.2), titles=across is not None)
    low, high = limits or (float(shown.min()), float(shown.max()))
    if logarithmic and not low < high:  # no value, or a single one
        low, high = (0.5 * high, high) if high > 0.0 else (0.5, 1.0)
    colours = LogNorm(low, high) if logarithmic else Normalize(low, high)
    for k, axis in enumerate(panels.axes):
        where = {} if across is None else {across: k}
        numbers, coloured = (
            part.isel(where).transpose(y, x).values[::-1] for part in (values, shown)
        )
        sns.heatmap(
            numbers, ax=axis, annot=numbers.size <= 150, fmt=".2g", annot_kws={"size": 7},
            xticklabels=_ticks(values[x]), yticklabels=_ticks(values[y])[::-1],
            norm=colours, vmin=low, vmax=high, cmap="viridis", cbar=False,
            mask=np.isnan(coloured),
        )  # fmt: skip
        axis.set_facecolor("white" if bound is None else UNRESOLVED)
        axis.grid(visible=False)
        for row, column in np.argwhere(np.isnan(coloured) & (bound is not None)):
            text = f"≤ {numbers[row, column]:.2g}"
            axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7)
        axis.set(xlabel="", ylabel="")
    panels.label(parameter_label(x), parameter_label(y))
    if not shown.isnull().all():
        panels.colorbar(panels.axes[-1].collections[0], panels.axes, label=label)
    return panels.finish(title)


def _of_samplers(
    values: xr.DataArray, error: xr.DataArray | None, dimensions: set[int], axes: str
) -> tuple[xr.DataArray, xr.DataArray | None]:
    """Both with ascending axes; ValueError unless over sampler and as many axes as asked."""
    if "sampler" not in values.dims or values.ndim not in dimensions:
        raise argument_error("values", f"over sampler and {axes}", values.dims)
    spread = None if error is None else _ascending(error.assign_coords(values.coords))
    return _ascending(values), spread


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
    values, error = _of_samplers(values, error, {2, 3}, "one or two axes")
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


@styled
def ordered_curves(
    values: xr.DataArray,
    title: str | None = None,
    label: str = "",
    error: xr.DataArray | None = None,
    *,
    ax: Target = None,
) -> Drawn:
    """Draw curves along the last axis in one panel: a shade for each value of the other.

    Parameters
    ----------
    values
        Numbers (sampler, shades, axis). The SDE is drawn as lines, and other samplers as markers
        with intervals.
    title, label, error
        As for `small_multiples`.
    ax
        Axes to draw into.

    Raises
    ------
    ValueError
        If `values` have other dimensions or an axis without numbers, or `ax` is not one Axes.
    """
    values, error = _of_samplers(values, error, {3}, "two axes")
    values = values.transpose("sampler", ...)
    _, shade, x = map(str, values.dims)
    if not np.issubdtype(values[x].dtype, np.number):
        raise argument_error("values", "over an axis of numbers", values[x].values.tolist())
    panels = Panels(ax, ["curves"], (7.0, 4.6))
    (axis,), at, names = panels.axes, values[x].values, _names(values, shade)
    colours = sns.color_palette("viridis", len(names))
    for m, sampler in enumerate(values["sampler"].values.tolist()):
        line: dict[str, Any] = {"linewidth": 1.2}
        if sampler != "sde":
            line = {"linestyle": "", "marker": "osD^v"[m % 5], "markersize": 4.0, "capsize": 2.0}
        for k, (name, colour) in enumerate(zip(names, colours, strict=True)):
            where = {"sampler": m, shade: k}
            spread = None if error is None or sampler == "sde" else error.isel(where).values
            axis.errorbar(
                at, values.isel(where).values, spread, color=colour, label=None if m else name,
                **line,
            )  # fmt: skip
        axis.errorbar([], [], color="0.3", label=sampler_label(sampler), **line)
    axis.set(xlabel=parameter_label(x), ylabel=label)
    axis.legend(fontsize="x-small")
    return panels.finish(title, note="bars: intervals of the means")


def sweep_figures(
    data: xr.Dataset, summary: xr.Dataset, distances: xr.Dataset | None, observable: str
) -> dict[str, Figure]:
    """Draw the figures that suit a sweep, by name, for one observable at the last time.

    With two axes, `mean` and `stopped` are heat maps with one panel per sampler, and `distance` is
    a heat map of the Kolmogorov-Smirnov distance, in which cells that are within the margin of 0
    are grey. `curves` shows the means with their intervals; of two axes, against the one with which
    they vary most.

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
    varies = {x: float((last["mean"].max(x) - last["mean"].min(x)).mean()) for x in axes}
    ordered = sorted(axes, key=varies.__getitem__)
    mean, half = (last[name].transpose("sampler", *ordered) for name in ("mean", "half_width"))
    ranges = ", ".join(f"{varies[x]:.2g} with {parameter_label(x)}" for x in reversed(ordered))
    title = f"{mean_label} at {at} varies by {ranges}"
    if len(axes) == 1:
        return {"curves": small_multiples(mean, title, mean_label, half)}
    numbers = np.issubdtype(mean[ordered[-1]].dtype, np.number)
    draw = ordered_curves if numbers else small_multiples
    off = float((mean.max("sampler") - mean.min("sampler")).max())
    agreement = f": the samplers are at most {off:.2g} apart" if mean.sizes["sampler"] > 1 else ""
    stopped = 100.0 * summary["stopped"].isel(fraction=-1)
    most = f"At most {float(stopped.max()):.2g} % of paths have stopped by {at}"
    figures = {
        "mean": heat_maps(last["mean"], f"{mean_label} at {at}{agreement}", mean_label),
        "stopped": heat_maps(
            stopped, f"{most}; blank: none", "% of paths, log scale", logarithmic=True
        ),
    }
    if distances is not None and observable in distances["kept"].values:
        figures["distance"] = _distance_map(distances, observable, at)
    return figures | {"curves": draw(mean, title, mean_label, half)}


def _distance_map(distances: xr.Dataset, observable: str, at: str) -> Figure:
    """Draw the distances that are larger than their margin, and bounds of the others."""
    one, margin = distances["distance"].isel(time=-1).sel(kept=observable), distances["margin"]
    first, second = (sampler_label(distances.attrs[k]) for k in ("first", "second"))
    resolved = one > margin
    title = (
        f"The samples tell {first} and {second} apart in {int(resolved.sum())} of {one.size} cells"
        f"\nKS distance of {observable_label(observable)} at {at}; grey: not resolved, 95 % bound"
    )
    limits = (0.0, max(2.0 * float(margin.max()), float(one.max())))
    bound = (one + margin).where(~resolved)
    figure: Figure = heat_maps(one, title, "KS distance", limits, bound=bound)
    return figure


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
