"""Phase diagrams: P(two tokens are close) over time and beta, a panel for each start or law."""

from __future__ import annotations

from collections.abc import Sequence

import seaborn as sns
import xarray as xr
from matplotlib.figure import Figure

from shaped_attention.figures.plots import styled

_ENSEMBLES = {
    "ginibre": r"$Q, K, V$ Ginibre",
    "wigner-psd": r"$Q^\top K$ Wigner, $V \succeq 0$",
    "ginibre-gradient": r"$Q, K$ Ginibre, $V = Q^\top K$",
    "wigner-gradient": r"$Q^\top K$ Wigner, $V = Q^\top K$",
}


@styled
def phase_panels(data: xr.Dataset, title: str) -> Figure:
    """The data of `phase_diagram`: a panel for each dimension, with the equiangular curve."""
    names = [f"d = {dimension}" for dimension in data["dimension"].values]
    figure = _panels(data, names, title, columns=3)
    for axis in figure.axes[: len(names)]:
        curve = (data["curve"], data["beta"])
        axis.plot(*curve, color="white", linewidth=2.5)
        axis.plot(*curve, "--", color="black", linewidth=1.5, label="equiangular, from 0")
    figure.axes[0].legend(fontsize="x-small", loc="upper left")
    return figure


@styled
def ensemble_panels(data: xr.Dataset, title: str) -> Figure:
    """The data of `ensemble_phase`: a panel for each ensemble of matrices."""
    names = [_ENSEMBLES[str(name)] for name in data["ensemble"].values]
    return _panels(data, names, title, columns=2)


def _panels(data: xr.Dataset, names: Sequence[str], title: str, columns: int) -> Figure:
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(1.5 + 3.6 * columns, 0.8 + 2.9 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    time, beta = data["time"].values, data["beta"].values
    shades = sns.color_palette("viridis", as_cmap=True)
    for axis in axes.ravel()[len(names) :]:
        axis.set_visible(False)
    shown = zip(axes.ravel(), names, data["probability"].values, strict=False)
    for axis, name, values in shown:
        mesh = axis.pcolormesh(time, beta, values, cmap=shades, vmin=0.0, vmax=1.0, rasterized=True)
        # The mesh ends half a cell beyond the last values; curves may go on.
        axis.margins(0.0)
        axis.autoscale_view()
        axis.autoscale(enable=False)
        axis.grid(visible=False)
        axis.set_title(name, fontsize="medium")
    for axis in axes[-1]:
        axis.set_xlabel("time")
    for axis in axes[:, 0]:
        axis.set_ylabel(r"$\beta$")
    figure.colorbar(mesh, ax=axes, label=r"$P(\langle x_i, x_j\rangle \geq 1 - \delta)$")
    figure.suptitle(title, fontsize="medium")
    return figure
