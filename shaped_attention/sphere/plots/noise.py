"""Figure of clustering with and without noise, from `clustering_with_noise`."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled


@styled
def noise_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw both measures over time: a column for each dimension, and one for the shaped chain.

    Lines are means, shaded areas the 10-90 % bands over samples for the first and the last sigma,
    and points explicit networks with two standard errors. The thin black line is the flow without
    noise.

    Raises
    ------
    ValueError
        If `data` is not from `clustering_with_noise`.
    """
    missing = {"mean", "network", "shaped_mean"} - set(data.data_vars)
    if missing:
        raise ValueError(
            f"data has no {sorted(missing)}; a Dataset from clustering_with_noise is needed"
        )
    dimensions = data["dimension"].values
    columns = len(dimensions) + 1
    measures = data["measure"].to_numpy()
    tops = [rf"attracting, $d$ = {d}" for d in dimensions]
    tops.append(f"shaped chain, $n$ = {data.attrs['shaped_width']}")
    names = [f"{measure}: {top}" for measure in measures for top in tops]
    size = (1.0 + 3.7 * columns, 6.4)
    panels = Panels(ax, names, size, columns, sharex="col", sharey="row")
    axes = np.array(panels.axes, dtype=object).reshape(len(measures), columns)
    for row, measure in enumerate(measures):
        of_measure = data.sel(measure=measure)
        for column in range(len(dimensions)):
            _noise_curves(axes[row, column], of_measure.isel(dimension=column))
        _shaped_curve(axes[row, -1], of_measure)
    for axis, top in zip(axes[0], tops, strict=True):
        axis.set_title(top, fontsize="medium")
        axis.set_ylim(-0.35, 1.05)
    for axis in axes[1]:
        axis.set_ylim(-0.05, 1.05)
    for axis in panels.left:
        axis.set_ylabel(measures[panels.axes.index(axis) // columns])
    for axis in panels.lowest:
        shaped = panels.axes.index(axis) % columns == columns - 1
        axis.set_xlabel(r"time $\gamma^2 \ell / n$" if shaped else "time $t$")
    return panels.finish(title, legend=True, columns=4)


def _noise_curves(axis: Axes, data: xr.Dataset) -> None:
    time, marks = data["time"].values, data["mark_time"].values
    for k, sigma in enumerate(data["sigma"].values):
        curve, color = data.isel(sigma=k), COLORS[k % len(COLORS)]
        # Four overlapping bands are hard to distinguish: only the first and the last are drawn.
        if k in (0, data.sizes["sigma"] - 1):
            axis.fill_between(
                time, curve["low"], curve["high"], color=color, alpha=0.15, linewidth=0.8
            )
        axis.plot(
            time, curve["mean"], LINES[k % len(LINES)], color=color,
            label=rf"chain, $\sigma$ = {sigma:g}",
        )  # fmt: skip
        # Without noise the networks are deterministic.
        if sigma > 0.0:
            axis.errorbar(
                marks, curve["network"], 2.0 * curve["network_error"], color=color, fmt="o",
                markersize=4.0, capsize=2.0, label=rf"networks, $\sigma$ = {sigma:g}",
            )  # fmt: skip
    axis.plot(time, data["flow"], color="black", linewidth=0.8, label="flow without noise")


def _shaped_curve(axis: Axes, data: xr.Dataset) -> None:
    time, color = data["shaped_time"].values, COLORS[len(data["sigma"]) % len(COLORS)]
    axis.fill_between(
        time, data["shaped_low"], data["shaped_high"], color=color, alpha=0.15, linewidth=0.0
    )
    axis.plot(time, data["shaped_mean"], color=color)
