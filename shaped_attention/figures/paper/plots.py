"""Drawings of the data of `original`, `beyond` and `shaped_attention.statistics.stopping`."""

from __future__ import annotations

import numpy as np
import seaborn as sns
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.figures.labels import LAYER, TIME, observable_label, parameter_label
from shaped_attention.figures.panels import (
    COLORS,
    OF_DENSITIES,
    OF_SAMPLES,
    Drawn,
    Panels,
    Target,
    look,
    styled,
)
from shaped_attention.statistics.density import Floats
from shaped_attention.statistics.proportions import fraction_bounds, quantile_bounds

_RHO = observable_label("rho[0,1]")
_GAMMA, _TAU0 = parameter_label("gamma"), parameter_label("tau0")


@styled
def layer_curves(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the mean (for V: the median) and the 5-95 % band against the layer, by variable."""
    shown = [name for name in ("correlation", "covariance") if name in data]
    panels = Panels(ax, shown, (5.5 * len(shown), 4.2))
    for axis, name in zip(panels.axes, shown, strict=True):
        for k, model in enumerate(data["model"].values):
            low, median, high, mean = data[name].sel(model=model).values.T
            # A mean of covariances is carried by the few paths that explode.
            middle = median if name == "covariance" else mean
            layers = data["layer"].values
            axis.fill_between(layers, low, high, color=look(k)["color"], alpha=0.15, linewidth=0)
            axis.plot(layers, middle, label=str(model), **look(k))
        middle_name = "median" if name == "covariance" else "mean"
        axis.set(xlabel=LAYER, ylabel=data[name].attrs.get("long_name", name))
        axis.set_title(middle_name, fontsize="small")
        if name == "covariance":
            # Without the identity, V decays like lambda^(2 l); the axis does not follow it down.
            axis.set(yscale="log", ylim=(1e-6, None))
    return panels.finish(title, note=OF_SAMPLES, legend=True)


@styled
def stopping_maps(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw how many paths have left over (gamma, tau_0), and when the first tenth has.

    Chain and SDE side by side, with 95 % intervals: of Clopper and Pearson for the share of paths,
    and of order statistics for the 10th percentile of the exit time. Cells where no path has left,
    or less than a tenth, are blank.
    """
    samplers = data["sampler"].values
    shown = [(kind, sampler) for kind in ("share", "time") for sampler in samplers]
    horizon = float(data.attrs["horizon"])
    kinds = {"share": f"% of paths out by $t$ = {horizon:g}", "time": "time at which 10 % are out"}
    names = [f"{sampler}: {kinds[kind]}" for kind, sampler in shown]
    panels = Panels(ax, names, (12.5, 8.4), len(samplers), titles=True, sharex=True, sharey=True)
    for axis, (kind, sampler) in zip(panels.axes, shown, strict=True):
        times = data["exit_time"].sel(sampler=sampler).transpose("tau0", "gamma", "sample").values
        estimate = _share_out if kind == "share" else _tenth_out
        values, written = estimate(np.sort(times[::-1], axis=-1), horizon)
        sns.heatmap(
            values, ax=axis, vmin=0.0, vmax=100.0 if kind == "share" else horizon,
            cmap="viridis_r" if kind == "share" else "viridis", mask=np.isnan(values),
            cbar=False, annot=written, fmt="", annot_kws={"size": 6},
            xticklabels=[f"{g:g}" for g in data["gamma"].values],
            yticklabels=[f"{t:g}" for t in data["tau0"].values[::-1]],
        )  # fmt: skip
    panels.label(_GAMMA, _TAU0)
    for k, kind in enumerate(kinds):
        row = panels.axes[k * len(samplers) : (k + 1) * len(samplers)]
        panels.colorbar(row[0].collections[0], row, label=kinds[kind])
    return panels.finish(title, note="below each number its 95 % interval; blank: too few paths")


def _share_out(times: Floats, horizon: float) -> tuple[Floats, NDArray[np.str_]]:
    """Return the percentage of paths that are out by the horizon, and its text, by cell."""
    count = times.shape[-1]
    out = (times < horizon).sum(axis=-1)
    low, high = (100.0 * bound for bound in fraction_bounds(out, count, 0.95))
    share = 100.0 * out / count
    text = [
        f"{s:.0f}\n{a:.0f}–{b:.0f}" for s, a, b in zip(share.flat, low.flat, high.flat, strict=True)
    ]
    return np.where(out == 0, np.nan, share), np.reshape(text, share.shape)


def _tenth_out(times: Floats, horizon: float) -> tuple[Floats, NDArray[np.str_]]:
    """Return the time at which a tenth of the paths is out, and its text, by cell.

    `times` (..., sample) are sorted; the interval is that of `quantile_bounds`.
    """
    middle = np.quantile(times, 0.1, axis=-1)
    low, high = quantile_bounds(times, 0.1, 0.95)
    low = np.maximum(low, 0.0)
    ends = np.where(high < horizon, np.char.mod("%.2f", high), "")
    text = [
        f"{m:.2f}\n{a:.2f}–{b}" for m, a, b in zip(middle.flat, low.flat, ends.flat, strict=True)
    ]
    return np.where(middle < horizon, middle, np.nan), np.reshape(text, middle.shape)


@styled
def eigenvalue_paths(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the largest eigenvalue against time: paths thin, the median thick; chain and SDE."""
    gammas = data["gamma"].values
    shown = [(row, gamma) for row in range(data.sizes["sampler"]) for gamma in gammas]
    names = [rf"{data['sampler'].values[row]}, {_GAMMA} = {gamma:g}" for row, gamma in shown]
    size = (4.0 * len(gammas), 6.8)
    panels = Panels(ax, names, size, len(gammas), titles=True, sharex=True, sharey=True)
    for axis, (row, gamma) in zip(panels.axes, shown, strict=True):
        paths = data["largest"].isel(sampler=row).sel(gamma=gamma)
        axis.plot(data["time"], paths, color=COLORS[row], linewidth=0.4, alpha=0.4, rasterized=True)
        axis.plot(data["time"], paths.median("sample"), color="black", label="median")
        axis.axhline(1e4, color="0.3", linestyle=":", label="$10^4$")
        axis.set(yscale="log")
    panels.label(TIME, "largest eigenvalue of $V$")
    return panels.finish(title, legend=True)


@styled
def explosion_probabilities(
    data: xr.Dataset, title: str | None = None, *, ax: Target = None
) -> Drawn:
    """Draw the probability that the radius has been reached against time, with 95 % bands."""
    panels = Panels(ax, ("probability",), (6.5, 4.4))
    (axis,) = panels.axes
    colors = [*sns.color_palette("viridis", data.sizes["curve"] - 1), "black"]
    time = data["time"].values
    for color, name in zip(colors, data["curve"].values, strict=True):
        curve, dash = data.sel(curve=name), "--" if color == "black" else "-"
        axis.fill_between(time, curve["lower"], curve["upper"], color=color, alpha=0.2, linewidth=0)
        axis.plot(time, curve["probability"], dash, color=color, label=name)
    axis.set(xlabel=TIME, ylabel="probability of having reached the radius")
    axis.set_ylim(bottom=0.0)
    axis.legend(fontsize="small")
    return panels.finish(title, note=OF_DENSITIES)
