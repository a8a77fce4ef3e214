"""Figures of sweeps: heat maps over two axes, curves along one, distances between samplers."""

from __future__ import annotations

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shaped_attention.checks import check_choice
from shaped_attention.figures.plots import COLORS, LINES, styled
from shaped_attention.sweep.reading import sweep_of


@styled
def heat_maps(
    values: xr.DataArray, title: str, label: str = "", limits: tuple[float, float] | None = None
) -> Figure:
    """A heat map over two axes, with the numbers written in, for each value of the others.

    Parameters
    ----------
    values
        Numbers over two axes of a sweep and at most one further dimension (panels), such as
        ``summary["mean"].sel(observable="mean |rho|").isel(time=-1)``; the two axes come last but
        for the panels.
    title, label
        Of the figure and the colour bar.
    limits
        Of the colours; by default those of the values.

    Raises
    ------
    ValueError
        If there are not two axes, or more than one further dimension.
    """
    panels, x, y = _dimensions(values, 2)
    count = 1 if panels is None else values.sizes[panels]
    figure = Figure(figsize=(1.2 + 4.8 * count, 4.2), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    low, high = limits or (float(values.min()), float(values.max()))
    for k, axis in enumerate(axes):
        one = values if panels is None else values.isel({panels: k})
        numbers = one.transpose(y, x).values
        sns.heatmap(
            numbers[::-1], ax=axis, annot=numbers.size <= 150, fmt=".2g", annot_kws={"size": 7},
            xticklabels=_ticks(one[x]), yticklabels=_ticks(one[y])[::-1],
            vmin=low, vmax=high, cmap="viridis", cbar=k == count - 1, cbar_kws={"label": label},
        )  # fmt: skip
        axis.set(xlabel=x, ylabel=y if k == 0 else "")
        if panels is not None:
            axis.set_title(f"{one[panels].item()}", fontsize="medium")
    figure.suptitle(title, fontsize="medium")
    return figure


@styled
def small_multiples(
    values: xr.DataArray, title: str, label: str = "", error: xr.DataArray | None = None
) -> Figure:
    """Curves along the last axis: a panel for each value of the axis before, a line per sampler.

    Parameters
    ----------
    values
        Numbers (sampler, axis) or (sampler, panels, axis).
    title, label
        Of the figure and the vertical axes.
    error
        Half widths of intervals, of the shape of `values`.

    Raises
    ------
    ValueError
        If the dimensions are others.
    """
    if "sampler" not in values.dims or values.ndim not in (2, 3):
        raise ValueError(f"values have {values.dims}; sampler and one or two axes are needed")
    axes_names = [str(dim) for dim in values.dims if dim != "sampler"]
    x, panels = axes_names[-1], axes_names[0] if len(axes_names) == 2 else None
    count = 1 if panels is None else values.sizes[panels]
    columns = min(count, 4)
    rows = -(-count // columns)
    size = (1.0 + 3.2 * columns, 0.8 + 2.8 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for k, axis in enumerate(grid.ravel()):
        if k >= count:
            axis.set_visible(False)
            continue
        where = {} if panels is None else {panels: k}
        _lines(axis, values.isel(where), None if error is None else error.isel(where), x)
        if panels is not None:
            axis.set_title(f"{panels} = {values[panels].values[k]}", fontsize="medium")
    for column in range(columns):
        # The lowest panel of a column may not be in the last row.
        lowest = grid[(count - 1 - column) // columns, column]
        lowest.set_xlabel(x)
        lowest.tick_params(labelbottom=True)
    for axis in grid[:, 0]:
        axis.set_ylabel(label)
    grid[0, 0].legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def sweep_figures(
    data: xr.Dataset, summary: xr.Dataset, distances: xr.Dataset | None, observable: str
) -> dict[str, Figure]:
    """The figures that suit a sweep, by name: of the last time, for one observable.

    With two axes `mean` and `stopped` are heat maps with a panel for each sampler and `distance`
    one of the Kolmogorov-Smirnov distance; with one or two axes `curves` has the means with their
    intervals, the longer axis being the horizontal one.

    Raises
    ------
    ValueError
        If the sweep has no axis or more than two, or does not keep the observable.
    """
    axes = list(sweep_of(data).axes)
    if len(axes) not in (1, 2):
        raise ValueError(f"the sweep has {len(axes)} axes; one or two can be drawn (select some)")
    check_choice("observable", observable, summary["observable"].values)
    last = summary.isel(time=-1).sel(observable=observable)
    figures = {}
    if len(axes) == 2:
        figures["mean"] = heat_maps(last["mean"], f"E {observable}", observable)
        stopped = summary["stopped"].isel(fraction=-1)
        figures["stopped"] = heat_maps(stopped, "fraction of paths stopped", "fraction")
        if distances is not None and observable in distances["kept"].values:
            one = distances["distance"].isel(time=-1).sel(kept=observable)
            margin = float(distances["margin"].max())
            title = (
                f"KS distance of {observable}, {distances.attrs['first']} and "
                f"{distances.attrs['second']} (known to ± {margin:.3f})"
            )
            # What is not resolved has one end of the colours.
            limits = (0.0, max(2.0 * margin, float(one.max())))
            figures["distance"] = heat_maps(one, title, "distance", limits)
    ordered = sorted(axes, key=lambda name: summary.sizes[name])
    mean, half = (last[name].transpose("sampler", *ordered) for name in ("mean", "half_width"))
    figures["curves"] = small_multiples(mean, f"E {observable}", observable, half)
    return figures


def _dimensions(values: xr.DataArray, axes: int) -> tuple[str | None, str, str]:
    dims = [str(dim) for dim in values.dims]
    if len(dims) not in (axes, axes + 1):
        raise ValueError(
            f"values have the dimensions {tuple(dims)}; two axes and panels are needed"
        )
    panels = dims[0] if len(dims) == axes + 1 else None
    return panels, dims[-2], dims[-1]


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
            where, one, yerr=spread, marker="o", markersize=4, color=COLORS[k], capsize=2.0,
            linestyle=LINES[k % len(LINES)], label=str(sampler),
        )  # fmt: skip
    if not numbers:
        axis.set_xticks(where, [str(p) for p in positions])
