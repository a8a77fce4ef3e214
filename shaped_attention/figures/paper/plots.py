"""Drawings of the data of `original`, `beyond` and `shaped_attention.statistics.stopping`."""

from __future__ import annotations

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatterSciNotation, NullLocator

from shaped_attention.figures.labels import LAYER, TIME, observable_label, parameter_label
from shaped_attention.figures.panels import (
    COLORS,
    LINES,
    Drawn,
    Panels,
    Target,
    draw_density,
    look,
    styled,
)
from shaped_attention.statistics.density import UNBOUNDED, Floats, Interval

_CORRELATIONS: Interval = (-1.0, 1.0)
_RHO = observable_label("rho[0,1]")
_BANDS = "bands: pointwise 95 % intervals"
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
        axis.set_title(f"{middle_name}, and 5–95 % band", fontsize="small")
        if name == "covariance":
            # Without the identity, V decays like lambda^(2 l); the axis does not follow it down.
            axis.set(yscale="log", ylim=(1e-6, None))
    return panels.finish(title, legend=True)


@styled
def density_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw densities of rho_01 and V_01: chain solid, SDE dashed; a colour for each model."""
    panels = Panels(ax, ("rho[0,1]", "V[0,1]"), (11.0, 4.6))
    rho, covariance = panels.axes
    # Quantiles further out are carried by the paths that explode.
    quarter, half, more = np.quantile(data["covariance"], [0.25, 0.5, 0.75])
    window = (half - 4.0 * (half - quarter), half + 6.0 * (more - half))
    _densities(rho, data["rho"], _CORRELATIONS, _CORRELATIONS, "{model}, {sampler}")
    _densities(covariance, data["covariance"], window, UNBOUNDED, "{model}, {sampler}")
    rho.set_xlabel(_RHO)
    covariance.set_xlabel("$V_{0,1}$")
    return panels.finish(title, note=_BANDS, legend=True, columns=min(4, 2 * data.sizes["model"]))


@styled
def density_and_percentile(
    data: xr.Dataset, title: str | None = None, *, ax: Target = None
) -> Drawn:
    """Draw densities of rho_01 for each gamma, and the 95th percentile of |rho_01| by gamma."""
    panels = Panels(ax, ("rho[0,1]", "percentile"), (11.0, 4.2))
    left, right = panels.axes
    label = rf"{_GAMMA} = {{model}}, {{sampler}}"
    _densities(left, data["rho"], _CORRELATIONS, _CORRELATIONS, label)
    left.set_xlabel(_RHO)
    left.legend(fontsize="x-small")
    for line, sampler in zip(LINES, data["sampler"].values, strict=False):
        percentile = np.quantile(np.abs(data["rho"].sel(sampler=sampler)), 0.95, axis=-1)
        right.plot(data["gamma"], percentile, line, marker="o", color="0.2", label=str(sampler))
    right.set(xlabel=_GAMMA, ylabel=r"95th percentile of $|\rho_{0,1}|$")
    right.legend(fontsize="small")
    return panels.finish(title, note=_BANDS)


@styled
def stopping_maps(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw medians and 10th percentiles of the exit time over (gamma, tau_0), chain and SDE.

    Exit times are capped at the horizon; a quantile there is written as a lower bound.
    """
    levels = ((0.5, "median"), (0.1, "10th percentile"))
    shown = [(sampler, level) for level in levels for sampler in data["sampler"].values]
    names = [f"{sampler}, {name}" for sampler, (_, name) in shown]
    columns = data.sizes["sampler"]
    panels = Panels(ax, names, (11.0, 7.5), columns, titles=True, sharex=True, sharey=True)
    horizon = float(data.attrs["horizon"])
    for axis, (sampler, (level, _)) in zip(panels.axes, shown, strict=True):
        values = np.quantile(data["exit_time"].sel(sampler=sampler), level, axis=-1).T[::-1]
        written = np.where(values < horizon, np.char.mod("%.2f", values), f"≥ {horizon:g}")
        sns.heatmap(
            values, ax=axis, vmin=0.0, vmax=horizon, cmap="viridis", cbar=False,
            annot=written, fmt="", annot_kws={"size": 7},
            xticklabels=[f"{g:g}" for g in data["gamma"].values],
            yticklabels=[f"{t:g}" for t in data["tau0"].values[::-1]],
        )  # fmt: skip
    panels.label(_GAMMA, _TAU0)
    label = f"exit time $t$, capped at $T$ = {horizon:g}"
    panels.colorbar(panels.axes[0].collections[0], panels.axes, label=label)
    return panels.finish(title)


@styled
def family_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw densities at the largest width; distances and strong errors by width, with rates."""
    names = ("density", "KS distance", "weak error", "strong error")
    panels = Panels(ax, names, (11.0, 8.8), 2)
    axes = panels.axes
    _densities(axes[0], data["rho"], _CORRELATIONS, _CORRELATIONS, "{model}, {sampler}")
    axes[0].set_xlabel(rf"{_RHO} at $n$ = {data['width'].values[-1]}")
    axes[0].legend(fontsize="x-small")
    shown = data.attrs["shown"]
    one = data.sel(observable=shown)
    noise = xr.full_like(one["distance"], float(np.max(data["noise"])))
    _against_width(axes[1], one.assign(distance_error=noise), "distance", "rate")
    equal = 1.7 * float(np.max(data["noise"]))
    axes[1].axhline(equal, color="0.5", linestyle=":", label="expected of equal laws")
    _against_width(axes[2], one.assign(weak=np.abs(one["weak"])), "weak", "weak_rate")
    _against_width(axes[3], data, "strong", "strong_rate")
    symbol = observable_label(shown)
    for axis, label in (
        (axes[1], f"KS distance of {symbol}, chain and SDE"),
        (axes[2], f"|difference of means of {symbol}|, coupled"),
        (
            axes[3],
            r"mean of $|V_{\mathrm{chain}} - V_{\mathrm{SDE}}|\,/\,|V_0|$, coupled",
        ),
    ):
        axis.set(xscale="log", yscale="log", xlabel=parameter_label("width"), ylabel=label)
        axis.set_xticks(data["width"].values, [str(n) for n in data["width"].values])
        axis.xaxis.set_minor_locator(NullLocator())
        # Often the axis has no power of ten.
        axis.yaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(1.5, 0.5)))
        axis.tick_params(axis="y", which="minor", labelsize="x-small")
        axis.legend(fontsize="x-small")
    return panels.finish(title, note=f"{_BANDS}; bars: two standard errors")


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
    return panels.finish(title, note=_BANDS)


def _against_width(axis: Axes, data: xr.Dataset, name: str, rate: str) -> None:
    for k, model in enumerate(data["model"].values):
        one = data.sel(model=model)
        fit = f"rate {float(one[rate]):.2f} ± {float(one[rate + '_error']):.2f}"
        if np.isnan(one[rate]):
            fit = "too small for a rate"
        spread = 2.0 * one[f"{name}_error"].values if f"{name}_error" in one else None
        axis.errorbar(
            data["width"].values, one[name].values, yerr=spread, marker="o", capsize=2.0,
            label=f"{model}: {fit}", **look(k),
        )  # fmt: skip


def _densities(
    axis: Axes, data: xr.DataArray, window: Interval, support: Interval, label: str
) -> None:
    """Draw densities of data (model, sampler, sample): a colour by model, a line by sampler."""
    for k, model in enumerate(data["model"].values):
        for line, sampler in zip(LINES, data["sampler"].values, strict=False):
            values: Floats = data.sel(model=model, sampler=sampler).values
            draw_density(
                axis, values, support=support, window=window, color=COLORS[k % len(COLORS)],
                linestyle=line, label=label.format(model=model, sampler=sampler),
            )  # fmt: skip
    axis.set(ylabel="density", xlim=window)
    axis.set_ylim(bottom=0.0)
