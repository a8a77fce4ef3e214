"""Figures of clusters on the sphere: metastable states over time, and energies."""

from __future__ import annotations

import numpy as np
import xarray as xr

from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled

_BETA = parameter_label("beta")
_NAMES = {"SA": "SA", "USA": r"USA, time $\times\, e^{\beta}$", "repulsion": r"SA with $V = -I$"}


@styled
def metastability_strip(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the tokens' angles in one realisation and the number of clusters in all, over time.

    There is a column of two panels for each beta. The lower panel shows the mean and the 5-95 %
    band over realisations.

    Parameters
    ----------
    data
        From `metastability`, in dimension 2.
    title
        Title of the figure.
    ax
        Axes to draw into, one for each panel.

    Raises
    ------
    ValueError
        If `data` has no angles.
    """
    if "angle" not in data:
        raise ValueError("data has no angles; a result in dimension 2 is needed")
    shown = data.where(data["time"] > 0.0, drop=True)
    columns = data.sizes["beta"]
    betas = [rf"{_BETA} = {beta:g}" for beta in shown["beta"].values]
    names = [f"{what}, {beta}" for what in ("angles", "clusters") for beta in betas]
    size = (0.9 + 4.6 * columns, 6.0)
    panels = Panels(ax, names, size, columns, sharex=True, sharey="row")
    time = shown["time"].values
    for column, beta in enumerate(shown["beta"].values):
        above, below = panels.axes[column], panels.axes[columns + column]
        own = shown.sel(beta=beta)
        # A line that crosses the angle pi is cut there.
        angle = np.unwrap(own["angle"].values, axis=0)
        for lap in (-2.0, 0.0, 2.0):
            above.plot(time, angle + lap * np.pi, color=COLORS[0], linewidth=0.8, alpha=0.8)
        above.set(xscale="log", ylim=(-np.pi, np.pi))
        above.set_yticks([-np.pi, 0.0, np.pi], [r"$-\pi$", "0", r"$\pi$"])
        above.set_title(betas[column], fontsize="medium")
        low, high = own["clusters"].quantile([0.05, 0.95], "sample").values
        below.fill_between(
            time, low, high, color=COLORS[1], alpha=0.2, label="5 to 95 %", linewidth=0
        )
        mean = own["clusters"].mean("sample")
        below.plot(time, mean, color=COLORS[1], label=f"mean of {data.sizes['sample']}")
        below.set(yscale="log", xlim=(time[0], time[-1]))
        ticks = [2**k for k in range(1 + int(np.log2(data.sizes["token"])))]
        below.set_yticks(ticks, [str(tick) for tick in ticks])
        below.minorticks_off()
    for axis in panels.lowest:
        axis.set_xlabel("time $t$")
    for axis in panels.left:
        angles = panels.axes.index(axis) < columns
        axis.set_ylabel("angle of each token" if angles else "number of clusters")
    panels.axes[columns].legend(fontsize="small")
    return panels.finish(title)


@styled
def energy_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the energy relative to that of one cluster over time, a panel for each beta.

    Lines are means, shaded areas 5-95 % bands. The horizontal lines are the extremes over all laws:
    one cluster and the uniform law.

    Parameters
    ----------
    data
        From `energy_curves`.
    title
        Title of the figure.
    ax
        Axes to draw into, one for each panel.
    """
    shown = data.where(data["time"] > 0.0, drop=True)
    columns = data.sizes["beta"]
    names = [rf"{_BETA} = {beta:g}" for beta in shown["beta"].values]
    panels = Panels(ax, names, (0.9 + 4.0 * columns, 4.0), sharex=True, sharey=True)
    time = shown["time"].values
    for axis, name, beta in zip(panels.axes, names, shown["beta"].values, strict=True):
        largest = float(data["dirac"].sel(beta=beta))
        for k, kind in enumerate(shown["kind"].values):
            energy = shown["energy"].sel(beta=beta, kind=kind) / largest
            low, high = energy.quantile([0.05, 0.95], "sample").values
            axis.fill_between(time, low, high, color=COLORS[k], alpha=0.2, linewidth=0)
            axis.plot(
                time, energy.mean("sample"), color=COLORS[k], linestyle=LINES[k],
                label=_NAMES[str(kind)],
            )  # fmt: skip
        axis.axhline(1.0, color="black", linewidth=1.0, label="one cluster")
        smallest = float(data["uniform"].sel(beta=beta)) / largest
        axis.axhline(smallest, color="0.5", linewidth=1.0, label="uniform law")
        axis.set(xscale="log", yscale="log", xlabel="time $t$", xlim=(time[0], time[-1]))
        axis.set_title(name, fontsize="medium")
    for axis in panels.left:
        axis.set_ylabel(r"$E_\beta\;/\;(e^\beta / 2\beta)$")
    return panels.finish(title, legend=True, columns=5)
