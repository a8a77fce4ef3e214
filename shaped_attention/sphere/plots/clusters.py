"""Figures of clusters on the sphere: metastable states in time, and energies."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from shaped_attention.figures.plots import COLORS, LINES, styled

_NAMES = {"SA": "SA", "USA": r"USA, time $\times\, e^{\beta}$", "repulsion": r"SA with $V = -I$"}


@styled
def metastability_strip(data: xr.Dataset, title: str) -> Figure:
    """Angles of the tokens of one realisation in time, and the number of clusters in all of them.

    A column for each beta. Below, the mean and the band from 5 to 95 % over realisations.

    Parameters
    ----------
    data
        From `metastability`, in dimension 2.
    title
        Title of the figure.

    Raises
    ------
    ValueError
        If there are no angles.
    """
    if "angle" not in data:
        raise ValueError("data has no angles; a result in dimension 2 is needed")
    shown = data.where(data["time"] > 0.0, drop=True)
    columns = data.sizes["beta"]
    figure = Figure(figsize=(0.9 + 4.6 * columns, 6.0), layout="constrained")
    axes = figure.subplots(2, columns, sharex=True, sharey="row", squeeze=False)
    time = shown["time"].values
    for column, beta in enumerate(shown["beta"].values):
        above, below = axes[:, column]
        own = shown.sel(beta=beta)
        # A line that crosses the angle pi is cut there.
        angle = np.unwrap(own["angle"].values, axis=0)
        for lap in (-2.0, 0.0, 2.0):
            above.plot(time, angle + lap * np.pi, color=COLORS[0], linewidth=0.8, alpha=0.8)
        above.set(xscale="log", ylim=(-np.pi, np.pi))
        above.set_yticks([-np.pi, 0.0, np.pi], [r"$-\pi$", "0", r"$\pi$"])
        above.set_title(rf"$\beta$ = {beta:g}", fontsize="medium")
        low, high = own["clusters"].quantile([0.05, 0.95], "sample").values
        below.fill_between(
            time, low, high, color=COLORS[1], alpha=0.2, label="5 to 95 %", linewidth=0
        )
        mean = own["clusters"].mean("sample")
        below.plot(time, mean, color=COLORS[1], label=f"mean of {data.sizes['sample']}")
        below.set(xlabel="time", yscale="log", xlim=(time[0], time[-1]))
        ticks = [2**k for k in range(1 + int(np.log2(data.sizes["token"])))]
        below.set_yticks(ticks, [str(tick) for tick in ticks])
        below.minorticks_off()
    axes[0, 0].set_ylabel("angle of each token")
    axes[1, 0].set_ylabel("number of clusters")
    axes[1, 0].legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


@styled
def energy_panels(data: xr.Dataset, title: str) -> Figure:
    """Energies in time over that of one cluster, a panel for each beta: mean and 5 to 95 %.

    The lines across are the extremes over all laws: one cluster and the uniform law.

    Parameters
    ----------
    data
        From `energy_curves`.
    title
        Title of the figure.
    """
    shown = data.where(data["time"] > 0.0, drop=True)
    columns = data.sizes["beta"]
    figure = Figure(figsize=(0.9 + 4.0 * columns, 4.0), layout="constrained")
    axes = figure.subplots(1, columns, sharex=True, sharey=True, squeeze=False)[0]
    time = shown["time"].values
    for axis, beta in zip(axes, shown["beta"].values, strict=True):
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
        axis.set(xscale="log", yscale="log", xlabel="time", xlim=(time[0], time[-1]))
        axis.set_title(rf"$\beta$ = {beta:g}", fontsize="medium")
    axes[0].set_ylabel(r"$E_\beta\;/\;(e^\beta / 2\beta)$")
    handles, entries = axes[0].get_legend_handles_labels()
    figure.legend(handles, entries, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(title, fontsize="medium")
    return figure
