"""Figures of the mean field on the circle: densities over time, and tokens against them."""

from __future__ import annotations

import math

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from shaped_attention.figures.plots import COLORS, LINES, styled

_LOWEST, _HIGHEST = 1e-2, 10.0
"""Densities that have their own shade; those of clusters grow without bound."""

_MARKERS = ("o", "s", "^", "D")


@styled
def density_strips(data: xr.Dataset) -> Figure:
    """The density over time and angle, a panel for each beta, with paths of tokens.

    Parameters
    ----------
    data
        From `figure_mean_field`, or from `mean_field` for a single panel.
    """
    panels = _panels(data)
    size = (1.6 + 3.4 * len(panels), 3.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    _draw_strips(figure, list(axes), panels)
    return figure


@styled
def distance_by_size(data: xr.Dataset) -> Figure:
    """W2 between N tokens and the mean field against N, with the fitted powers of N.

    Parameters
    ----------
    data
        From `mean_field_distance` or `figure_mean_field`.
    """
    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    _draw_distances(figure.subplots(), data)
    return figure


@styled
def mean_field_figure(data: xr.Dataset, title: str) -> Figure:
    """Densities with paths of tokens, and beside them how W2 falls with N.

    Parameters
    ----------
    data
        From `figure_mean_field`.
    title
        Of the figure.
    """
    panels = _panels(data)
    figure = Figure(figsize=(5.0 + 3.0 * len(panels), 3.7), layout="constrained")
    ratios = (1.0 + 3.0 * len(panels), 4.0)
    left, right = figure.subfigures(1, 2, width_ratios=ratios, squeeze=False)[0]
    axes = left.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    _draw_strips(left, list(axes), panels)
    _draw_distances(right.subplots(), data)
    figure.suptitle(title, fontsize="medium")
    return figure


def _panels(data: xr.Dataset) -> list[xr.Dataset]:
    if "beta" not in data.dims:
        return [data.assign_coords(beta=data.attrs["beta"])]
    return [data.isel(beta=k) for k in range(data.sizes["beta"])]


def _draw_strips(figure: Figure, axes: list[Axes], panels: list[xr.Dataset]) -> None:
    norm = LogNorm(_LOWEST, _HIGHEST)
    shades = ScalarMappable(norm, sns.color_palette("mako", as_cmap=True))
    for axis, panel in zip(axes, panels, strict=True):
        time, angle = panel["time"].values, panel["angle"].values
        shown = np.clip(panel["density"].values.T, _LOWEST, _HIGHEST)
        axis.pcolormesh(
            time, angle, shown, norm=norm, cmap=shades.cmap, shading="nearest",
            rasterized=True,
        )  # fmt: skip
        if "path" in panel:
            axis.plot(time, _unbroken(panel["path"].values), color="white", linewidth=0.6)
        axis.set(xlim=(time[0], time[-1]), ylim=(-math.pi, math.pi), xlabel="time")
        axis.set_yticks([-math.pi, 0.0, math.pi], [r"$-\pi$", "0", r"$\pi$"])
        axis.grid(visible=False)
        axis.set_title(rf"$\beta$ = {float(panel['beta']):g}", fontsize="medium")
    axes[0].set_ylabel("angle")
    figure.colorbar(shades, ax=axes, label="density", extend="both")


def _unbroken(path: NDArray[np.float64]) -> NDArray[np.float64]:
    """Paths (time, particle) with a gap in place of the line across the panel where they wrap."""
    wraps = np.abs(np.diff(path, axis=0)) > math.pi
    return np.where(np.vstack([wraps, np.zeros_like(wraps[:1])]), np.nan, path)


def _draw_distances(axis: Axes, data: xr.Dataset) -> None:
    size = data["size"].values.astype(float)
    for k, panel in enumerate(_panels(data)):
        color = COLORS[k % len(COLORS)]
        distance, standard = panel["distance"].values, panel["standard"].values
        rate, error = float(panel["rate"]), float(panel["rate_error"])
        axis.errorbar(
            size, distance, yerr=2.0 * standard, fmt=_MARKERS[k % len(_MARKERS)], color=color,
            markersize=4.5,
            label=rf"$\beta$ = {float(panel['beta']):g}: $N^{{-{rate:.2f} \pm {error:.2f}}}$",
        )  # fmt: skip
        if math.isfinite(rate):
            # The amplitude of the weighted least squares for this rate.
            power, weight = size**-rate, standard**-2.0
            amplitude = (weight * power * distance).sum() / (weight * power**2).sum()
            axis.plot(size, amplitude * power, LINES[k % len(LINES)], color=color, linewidth=1.2)
    axis.set(xscale="log", yscale="log", xlabel="tokens N", ylabel=r"$W_2$(tokens, mean field)")
    axis.set_xticks(size, [f"{n:g}" for n in size], minor=False)
    axis.set_xticks([], minor=True)
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_title(_when(data), fontsize="medium")
    axis.legend(fontsize="small")


def _when(data: xr.Dataset) -> str:
    time = data.attrs.get("time")
    return "" if time is None else f"at t = {float(time):g}"
