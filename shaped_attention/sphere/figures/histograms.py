"""Figure of the cosines in a trained model: a histogram for each layer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy.stats import beta

from shaped_attention.figures.panels import COLORS, Drawn, Panels, Target, styled

_COLUMNS = 4
_POINTS = 801


@styled
def inner_product_histograms(
    data: xr.Dataset, title: str | None = None, *, ax: Target = None
) -> Drawn:
    """Draw the histogram of the cosines of each layer, with their mean; data of `inner_products`.

    The dashed line is the law of independent uniform tokens on S^{d-1}, with density proportional
    to (1 - c^2)^{(d-3)/2}: (1 + c) / 2 is Beta((d - 1) / 2, (d - 1) / 2). All panels share one
    scale, on which both fit.
    """
    if not isinstance(data, xr.Dataset) or not {"density", "mean", "close"} <= set(data):
        raise ValueError("data must be a Dataset made by inner_products")
    layers = data["layer"].values
    columns = min(_COLUMNS, len(layers))
    rows = -(-len(layers) // columns)
    size = (1.0 + 2.6 * columns, 1.3 + 2.2 * rows)
    names = [f"layer {layer}" for layer in layers]
    panels = Panels(ax, names, size, columns, sharex=True, sharey=True)
    width = 2.0 / data.sizes["cosine"]
    edges = np.append(data["cosine"].values - width / 2, 1.0)
    grid = np.linspace(-1.0, 1.0, _POINTS)[1:-1]
    shape = (data.attrs["features"] - 1) / 2.0
    uniform = beta.pdf((1.0 + grid) / 2.0, shape, shape) / 2.0 if shape > 0.0 else 0.0 * grid
    tallest = float(data["density"].max())
    if shape > 1.0:  # else its density has no maximum
        tallest = max(tallest, float(uniform.max()))
    for axis, layer in zip(panels.axes, layers, strict=True):
        panel = data.sel(layer=layer)
        mean, close = float(panel["mean"]), float(panel["close"])
        axis.stairs(
            panel["density"].values, edges, fill=True, color=COLORS[0], alpha=0.6, label="tokens"
        )
        axis.axvline(mean, color=COLORS[4], linewidth=1.5, label="mean")
        if shape > 0.0:
            axis.plot(
                grid, uniform, "--", color="black", linewidth=0.9,
                label=f"independent, uniform on the sphere, $d$ = {data.attrs['features']}",
            )  # fmt: skip
        axis.set_title(f"layer {layer}", fontsize="small")
        text = f"mean {mean:.2f}\nclose {100 * close:.1f} %"
        axis.text(0.96, 0.94, text, transform=axis.transAxes, ha="right", va="top", fontsize=8)
        axis.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])
        axis.set(xlim=(-1.0, 1.0), ylim=(0.0, 1.06 * tallest))
    # On a panel above a missing one the label would push the rows apart.
    complete = panels.lowest if ax is not None else panels.axes[(rows - 1) * columns :]
    for axis in complete:
        axis.set_xlabel(r"$\langle x_i, x_j\rangle / (|x_i|\,|x_j|)$")
    for axis in panels.left:
        axis.set_ylabel("density")
    note = f"close: cosine at least {1.0 - data.attrs['delta']:g}"
    return panels.finish(title, note=note, legend=True, columns=3)
