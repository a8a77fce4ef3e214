"""Drawings of the data of `original`, `beyond` and `shaped_attention.statistics.stopping`."""

from __future__ import annotations

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, NullLocator

from shaped_attention.figures.plots import COLORS, LINES, styled


@styled
def layer_curves(data: xr.Dataset, title: str) -> Figure:
    """Mean (of V: median) and 5-95 % band against the layer, one panel for each variable."""
    shown = [name for name in ("correlation", "covariance") if name in data]
    figure = Figure(figsize=(5.5 * len(shown), 4.0), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)
    for axis, name in zip(axes[0], shown, strict=True):
        for k, model in enumerate(data["model"].values):
            low, median, high, mean = data[name].sel(model=model).values.T
            # A mean of covariances is carried by the few paths that explode.
            middle = median if name == "covariance" else mean
            color, line = COLORS[k % len(COLORS)], LINES[k % len(LINES)]
            layers = data["layer"].values
            axis.fill_between(layers, low, high, color=color, alpha=0.15, linewidth=0)
            axis.plot(layers, middle, line, color=color, label=str(model))
        label = "median" if name == "covariance" else "mean"
        told = data[name].attrs.get("long_name", name)
        axis.set(xlabel="layer", ylabel=f"{told} of pairs\n{label}, 5–95 %")
        if name == "covariance":
            # Without the identity V decays like lambda^(2 l); that need not be followed down.
            axis.set(yscale="log", ylim=(1e-6, None))
    axes[0][0].legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


@styled
def density_panels(data: xr.Dataset, title: str) -> Figure:
    """Densities of rho_12 and V_12: chain solid, SDE dashed; a color for each model."""
    figure, axes = _two_panels(title)
    for axis, name, label in (
        (axes[0], "rho", r"$\rho_{12}$"),
        (axes[1], "covariance", "$V_{12}$"),
    ):
        low, high = -1.0, 1.0
        if name == "covariance":
            # Quantiles further out are carried by the paths that explode.
            quarter, half, more = np.quantile(data[name], [0.25, 0.5, 0.75])
            low, high = half - 4.0 * (half - quarter), half + 6.0 * (more - half)
        _densities(axis, data[name], (low, high), "{model}, {sampler}")
        axis.set(xlabel=label)
    axes[0].legend(fontsize="x-small")
    return figure


@styled
def density_and_percentile(data: xr.Dataset, title: str) -> Figure:
    """Densities of rho_12 for each gamma, and the 95th percentile of |rho_12| against gamma."""
    figure, axes = _two_panels(title)
    _densities(axes[0], data["rho"], (-1.0, 1.0), r"$\gamma$ = {model}, {sampler}")
    axes[0].set(xlabel=r"$\rho_{12}$")
    axes[0].legend(fontsize="x-small")
    for line, sampler in zip(LINES, data["sampler"].values, strict=False):
        percentile = np.quantile(np.abs(data["rho"].sel(sampler=sampler)), 0.95, axis=-1)
        axes[1].plot(data["gamma"], percentile, line, marker="o", color="0.2", label=str(sampler))
    axes[1].set(xlabel=r"$\gamma$", ylabel=r"95th percentile of $|\rho_{12}|$")
    axes[1].legend(fontsize="small")
    return figure


@styled
def stopping_maps(data: xr.Dataset, title: str) -> Figure:
    """Medians and 10th percentiles of the exit time over (gamma, tau_0), chain and SDE."""
    figure = Figure(figsize=(11.0, 7.5), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, (level, name) in enumerate(((0.5, "median"), (0.1, "10th percentile"))):
        for column, sampler in enumerate(data["sampler"].values):
            values = np.quantile(data["exit_time"].sel(sampler=sampler), level, axis=-1)
            sns.heatmap(
                values.T[::-1], ax=axes[row, column], vmin=0.0, vmax=data.attrs["horizon"],
                cmap="viridis", annot=True, fmt=".2f", annot_kws={"size": 7},
                xticklabels=[f"{g:g}" for g in data["gamma"].values],
                yticklabels=[f"{t:g}" for t in data["tau0"].values[::-1]],
            )  # fmt: skip
            axes[row, column].set_title(f"{sampler}, {name}", fontsize="medium")
    for axis in axes[-1]:
        axis.set_xlabel(r"$\gamma$")
    for axis in axes[:, 0]:
        axis.set_ylabel(r"$\tau_0$")
    figure.suptitle(title, fontsize="medium")
    return figure


@styled
def family_panels(data: xr.Dataset, title: str) -> Figure:
    """Densities at the largest width; distances and strong errors by width, with their rates."""
    figure = Figure(figsize=(11.0, 8.5), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    _densities(axes[0], data["rho"], (-1.0, 1.0), "{model}, {sampler}")
    axes[0].set(xlabel=rf"$\rho_{{12}}$ at n = {data['width'].values[-1]}")
    axes[0].legend(fontsize="x-small")
    name = data.attrs["shown"]
    one = data.sel(observable=name)
    noise = xr.full_like(one["distance"], float(np.max(data["noise"])))
    _against_width(axes[1], one.assign(distance_error=noise), "distance", "rate")
    equal = 1.7 * float(np.max(data["noise"]))
    axes[1].axhline(equal, color="0.5", linestyle=":", label="expected of equal laws")
    _against_width(axes[2], one.assign(weak=np.abs(one["weak"])), "weak", "weak_rate")
    _against_width(axes[3], data, "strong", "strong_rate")
    for axis, label in (
        (axes[1], f"KS distance of {name}, chain and SDE"),
        (axes[2], f"|difference of means of {name}|, coupled"),
        (axes[3], r"mean of $|V_{chain} - V_{SDE}|\,/\,|V_0|$, coupled"),
    ):
        axis.set(xscale="log", yscale="log", xlabel="width $n$", ylabel=label)
        axis.set_xticks(data["width"].values, [str(n) for n in data["width"].values])
        axis.xaxis.set_minor_locator(NullLocator())
        # Often no power of ten is in sight.
        axis.yaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(1.5, 0.5)))
        axis.tick_params(axis="y", which="minor", labelsize="x-small")
        axis.legend(fontsize="x-small")
    figure.suptitle(title, fontsize="medium")
    return figure


@styled
def eigenvalue_paths(data: xr.Dataset, title: str) -> Figure:
    """Largest eigenvalue against time: every path thin, the median thick; chain and SDE."""
    gammas = data["gamma"].values
    figure = Figure(figsize=(4.0 * len(gammas), 6.5), layout="constrained")
    axes = figure.subplots(2, len(gammas), sharex=True, sharey=True, squeeze=False)
    for row, sampler in enumerate(data["sampler"].values):
        for column, gamma in enumerate(gammas):
            axis = axes[row, column]
            paths = data["largest"].sel(sampler=sampler, gamma=gamma)
            axis.plot(
                data["time"], paths, color=COLORS[row], linewidth=0.4, alpha=0.4, rasterized=True
            )
            axis.plot(data["time"], paths.median("sample"), color="black", label="median")
            axis.axhline(1e4, color="0.3", linestyle=":", label="$10^4$")
            axis.set(yscale="log")
            axis.set_title(rf"{sampler}, $\gamma$ = {gamma:g}", fontsize="medium")
        axes[row, 0].set_ylabel("largest eigenvalue of $V$")
    for axis in axes[-1]:
        axis.set_xlabel(r"time $t = \ell / n$")
    axes[0, 0].legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


@styled
def explosion_probabilities(curves: dict[str, xr.Dataset], title: str) -> Figure:
    """Probability that the radius has been reached, against time, with confidence bands."""
    figure = Figure(figsize=(6.5, 4.4), layout="constrained")
    axis = figure.subplots()
    colors = sns.color_palette("viridis", len(curves) - 1)
    for k, (name, curve) in enumerate(curves.items()):
        last = k == len(curves) - 1
        color = "black" if last else colors[k]
        time = curve["time"].values
        axis.fill_between(time, curve["lower"], curve["upper"], color=color, alpha=0.2, linewidth=0)
        axis.plot(time, curve["probability"], "--" if last else "-", color=color, label=name)
    axis.set(xlabel=r"time $t = \ell / n$", ylabel="probability of having reached the radius")
    axis.set_ylim(bottom=0.0)
    axis.legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def _against_width(axis: Axes, data: xr.Dataset, name: str, rate: str) -> None:
    for k, model in enumerate(data["model"].values):
        one = data.sel(model=model)
        found = f"rate {float(one[rate]):.2f} ± {float(one[rate + '_error']):.2f}"
        if np.isnan(one[rate]):
            found = "too small for a rate"
        spread = 2.0 * one[f"{name}_error"].values if f"{name}_error" in one else None
        axis.errorbar(
            data["width"].values, one[name].values, yerr=spread, marker="o", capsize=2.0,
            color=COLORS[k % len(COLORS)], linestyle=LINES[k % len(LINES)],
            label=f"{model}: {found}",
        )  # fmt: skip


def _two_panels(title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    return figure, list(figure.subplots(1, 2))


def _densities(axis: Axes, data: xr.DataArray, window: tuple[float, float], label: str) -> None:
    """Densities of data (model, sampler, sample): a color for a model, a line for a sampler."""
    for k, model in enumerate(data["model"].values):
        for line, sampler in zip(LINES, data["sampler"].values, strict=False):
            values = data.sel(model=model, sampler=sampler).values
            inside = values[(values >= window[0]) & (values <= window[1])]
            sns.kdeplot(
                inside, ax=axis, clip=window, color=COLORS[k % len(COLORS)], linestyle=line,
                label=label.format(model=model, sampler=sampler),
            )  # fmt: skip
    axis.set(ylabel="density", xlim=window)
    axis.set_ylim(bottom=0.0)
