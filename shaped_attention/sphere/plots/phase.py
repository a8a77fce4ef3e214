"""Phase diagrams: P(two tokens are close) over time and beta, by dimension or ensemble."""

from __future__ import annotations

from collections.abc import Sequence

import seaborn as sns
import xarray as xr

from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import Drawn, Panels, Target, styled

_ENSEMBLES = {
    "ginibre": r"$Q, K, V$ Ginibre",
    "wigner-psd": r"$Q^\top K$ Wigner, $V \succeq 0$",
    "ginibre-gradient": r"$Q, K$ Ginibre, $V = Q^\top K$",
    "wigner-gradient": r"$Q^\top K$ Wigner, $V = Q^\top K$",
}


@styled
def phase_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the data of `phase_diagram`: a panel for each dimension, with the equiangular curve."""
    names = [f"$d$ = {dimension}" for dimension in data["dimension"].values]
    panels = _panels(data, names, ax, columns=3)
    for axis in panels.axes:
        curve = (data["curve"], data["beta"])
        axis.plot(*curve, color="white", linewidth=2.5)
        axis.plot(*curve, "--", color="black", linewidth=1.5, label="equiangular, from 0")
    panels.axes[0].legend(fontsize="x-small", loc="upper left")
    return panels.finish(title)


@styled
def ensemble_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the data of `ensemble_phase`: a panel for each ensemble of matrices."""
    names = [_ENSEMBLES[str(name)] for name in data["ensemble"].values]
    return _panels(data, names, ax, columns=2).finish(title)


def _panels(data: xr.Dataset, names: Sequence[str], ax: Target, columns: int) -> Panels:
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    size = (1.5 + 3.6 * columns, 0.8 + 2.9 * rows)
    panels = Panels(ax, names, size, columns, sharex=True, sharey=True)
    time, beta = data["time"].values, data["beta"].values
    shades = sns.color_palette("viridis", as_cmap=True)
    for axis, name, values in zip(panels.axes, names, data["probability"].values, strict=True):
        mesh = axis.pcolormesh(time, beta, values, cmap=shades, vmin=0.0, vmax=1.0, rasterized=True)
        # The mesh ends half a cell beyond the last values; curves may continue.
        axis.margins(0.0)
        axis.autoscale_view()
        axis.autoscale(enable=False)
        axis.grid(visible=False)
        axis.set_title(name, fontsize="medium")
    for axis in panels.lowest:
        axis.set_xlabel("time $t$")
    for axis in panels.left:
        axis.set_ylabel(parameter_label("beta"))
    label = r"$P(\langle x_i, x_j\rangle \geq 1 - \delta)$"
    panels.colorbar(mesh, panels.axes, label=label)
    return panels
