"""Figure of a trained model's cosines: their histogram in every layer, as small panels."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.stats import beta

from shaped_attention.figures.plots import COLORS, styled

_COLUMNS = 4
_POINTS = 801


@styled
def inner_product_histograms(data: xr.Dataset, title: str) -> Figure:
    """Histogram of the cosines of each layer, with their mean.

    Parameters
    ----------
    data
        From `inner_products`.
    title
        Title of the figure.

    Returns
    -------
    Panels with common axes. Dashed is the law of independent uniform tokens on S^{d-1}, whose
    density is proportional to (1 - c^2)^{(d-3)/2}: (1 + c) / 2 is Beta((d - 1) / 2, (d - 1) / 2).
    It may be taller than the panels, which the histograms fill.

    Raises
    ------
    ValueError
        If `data` is no such Dataset.
    """
    if not isinstance(data, xr.Dataset) or not {"density", "mean", "close"} <= set(data):
        raise ValueError("data: a Dataset made by inner_products is needed")
    layers = data["layer"].values
    columns = min(_COLUMNS, len(layers))
    rows = -(-len(layers) // columns)
    size = (1.0 + 2.6 * columns, 1.3 + 2.2 * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    width = 2.0 / data.sizes["cosine"]
    edges = np.append(data["cosine"].values - width / 2, 1.0)
    grid = np.linspace(-1.0, 1.0, _POINTS)[1:-1]
    shape = (data.attrs["features"] - 1) / 2.0
    for axis, layer in zip(axes.ravel(), layers, strict=False):
        panel = data.sel(layer=layer)
        mean, close = float(panel["mean"]), float(panel["close"])
        axis.stairs(
            panel["density"].values, edges, fill=True, color=COLORS[0], alpha=0.6, label="tokens"
        )
        axis.axvline(mean, color=COLORS[3], linewidth=1.5, label="mean")
        if shape > 0.0:
            axis.plot(
                grid, beta.pdf((1.0 + grid) / 2.0, shape, shape) / 2.0, "--", color="black",
                linewidth=0.9, label=f"uniform on the sphere, d = {data.attrs['features']}",
            )  # fmt: skip
        axis.set_title(
            f"layer {layer}: mean {mean:.2f}, close {100 * close:.1f} %", fontsize="small"
        )
        axis.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])
    tallest = float(data["density"].max())
    axes[0, 0].set(xlim=(-1.0, 1.0), ylim=(0.0, 1.1 * tallest))
    for axis in axes.ravel()[len(layers) :]:
        axis.set_visible(False)
    for column in range(columns):
        lowest = axes[(len(layers) - 1 - column) // columns, column]
        lowest.tick_params(labelbottom=True)
        # On a panel above a missing one the label would push the rows apart.
        if axes[-1, column].get_visible():
            lowest.set_xlabel(r"$\langle x_i, x_j\rangle / (|x_i|\,|x_j|)$")
    for axis in axes[:, 0]:
        axis.set_ylabel("density")
    handles, entries = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, entries, loc="outside lower center", ncols=3, frameon=False)
    close_from = 1.0 - data.attrs["delta"]
    figure.suptitle(f"{title}\nclose: cosine at least {close_from:g}", fontsize="medium")
    return figure
