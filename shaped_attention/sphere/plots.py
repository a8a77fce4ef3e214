"""Figures of self-attention on the sphere."""

from __future__ import annotations

import seaborn as sns
import xarray as xr
from matplotlib.figure import Figure

from shaped_attention.plots import styled


@styled
def phase_panels(data: xr.Dataset, title: str) -> Figure:
    """P(two tokens are close) over time and beta, a panel for each dimension, with the curve."""
    dimensions = data["dimension"].values
    columns = min(3, len(dimensions))
    rows = -(-len(dimensions) // columns)
    size = (1.5 + 3.6 * columns, 0.8 + 2.9 * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    time, beta = data["time"].values, data["beta"].values
    shades = sns.color_palette("viridis", as_cmap=True)
    for k, axis in enumerate(axes.ravel()):
        if k >= len(dimensions):
            axis.set_visible(False)
            continue
        values = data["probability"].isel(dimension=k).values
        mesh = axis.pcolormesh(time, beta, values, cmap=shades, vmin=0.0, vmax=1.0, rasterized=True)
        axis.plot(data["curve"], beta, color="white", linewidth=2.5)
        axis.plot(
            data["curve"], beta, "--", color="black", linewidth=1.5, label="equiangular, from 0"
        )
        axis.set(xlim=(time[0], time[-1]), ylim=(beta[0], beta[-1]))
        axis.grid(visible=False)
        axis.set_title(f"d = {dimensions[k]}", fontsize="medium")
    for axis in axes[-1]:
        axis.set_xlabel("time")
    for axis in axes[:, 0]:
        axis.set_ylabel(r"$\beta$")
    axes[0, 0].legend(fontsize="x-small", loc="upper left")
    figure.colorbar(mesh, ax=axes, label=r"$P(\langle x_1, x_2\rangle \geq 1 - \delta)$")
    figure.suptitle(title, fontsize="medium")
    return figure
