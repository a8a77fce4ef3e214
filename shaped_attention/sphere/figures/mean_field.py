"""Figure of the mean field on the circle: densities over time, and their distance from tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.integrate import checked_times
from shaped_attention.sphere.mean_field import cell_averages, mean_field
from shaped_attention.sphere.propagation_of_chaos import (
    SIZES,
    drawn_angles,
    mean_field_distance,
    particle_angles,
    two_bumps,
)

_LOWEST, _HIGHEST = 1e-2, 10.0
"""Range of the colour scale; densities of clusters grow without bound."""

_BETA = parameter_label("beta")
_MARKERS = ("o", "s", "^", "D")


@recorded()
def figure_mean_field(
    betas: Sequence[float] = (2.0, 20.0),
    times: ArrayLike | None = None,
    *,
    sizes: Sequence[int] = SIZES,
    particles: int = 24,
    samples: int = 32,
    time: float = 1.0,
    seed: int = 0,
    cells: int = 512,
    normalised: bool = True,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the mean field on the circle, paths of tokens, and their W2 distance for each N."""
    at = np.linspace(0.0, 6.0, 101) if times is None else checked_times(times)
    check_values("betas", betas)
    start = cell_averages(two_bumps, cells)
    angles = drawn_angles(start, particles, 1, seed)

    def panel(beta: float) -> xr.Dataset:
        law = mean_field(beta, start, at, normalised=normalised)
        path = particle_angles(SphereAttention(beta, normalised), angles, at)[:, 0]
        distances = mean_field_distance(
            beta, start, sizes, time,
            samples=samples, seed=seed, normalised=normalised, progress=False,
        )  # fmt: skip
        return law.assign(path=(("time", "particle"), path)).merge(distances)

    return over_grid(panel, {"beta": [float(beta) for beta in betas]}, progress=progress)


@styled
def mean_field_figure(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw densities with paths of tokens and, as the last panel, how W2 decays with N."""
    every = _by_beta(data) if "density" in data else []
    names, ratios, size = [_name(one) for one in every], [3.0] * len(every), (4.4, 3.6)
    if every:
        size = (5.0 + 3.0 * len(every), 3.7) if "distance" in data else (5.0 * len(every), 3.4)
    if "distance" in data:
        names, ratios = [*names, "distance"], [*ratios, 3.4]
    panels = Panels(ax, names, size, width_ratios=ratios)
    if every:
        _draw_strips(panels, every)
    if "distance" in data:
        _draw_distances(panels.axes[-1], data)
    return panels.finish(title)


def _by_beta(data: xr.Dataset) -> list[xr.Dataset]:
    if "beta" not in data.dims:
        return [data.assign_coords(beta=data.attrs["beta"])]
    return [data.isel(beta=k) for k in range(data.sizes["beta"])]


def _name(data: xr.Dataset) -> str:
    return rf"{_BETA} = {float(data['beta']):g}"


def _draw_strips(panels: Panels, every: list[xr.Dataset]) -> None:
    """Draw the strips on the first panels."""
    axes = panels.axes[: len(every)]
    norm = LogNorm(_LOWEST, _HIGHEST)
    shades = ScalarMappable(norm, sns.color_palette("mako", as_cmap=True))
    for axis, panel in zip(axes, every, strict=True):
        time, angle = panel["time"].values, panel["angle"].values
        shown = np.clip(panel["density"].values.T, _LOWEST, _HIGHEST)
        axis.pcolormesh(
            time, angle, shown, norm=norm, cmap=shades.cmap, shading="nearest",
            rasterized=True,
        )  # fmt: skip
        if "path" in panel:
            axis.plot(time, _unbroken(panel["path"].values), color="white", linewidth=0.6)
        axis.set(xlim=(time[0], time[-1]), ylim=(-math.pi, math.pi), xlabel="time $t$")
        axis.set_yticks([-math.pi, 0.0, math.pi], [r"$-\pi$", "0", r"$\pi$"])
        axis.grid(visible=False)
        axis.set_title(_name(panel), fontsize="medium")
        if axis in panels.left:
            axis.set_ylabel("angle")
        else:
            axis.tick_params(labelleft=False)
    panels.colorbar(shades, axes, label="density", extend="both")


def _unbroken(path: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return paths (time, particle) with a gap where they wrap, so no line crosses the panel."""
    wraps = np.abs(np.diff(path, axis=0)) > math.pi
    return np.where(np.vstack([wraps, np.zeros_like(wraps[:1])]), np.nan, path)


def _draw_distances(axis: Axes, data: xr.Dataset) -> None:
    size = data["size"].values.astype(float)
    for k, panel in enumerate(_by_beta(data)):
        color = COLORS[k % len(COLORS)]
        distance, standard = panel["distance"].values, panel["standard"].values
        rate, error = float(panel["rate"]), float(panel["rate_error"])
        axis.errorbar(
            size, distance, yerr=2.0 * standard, fmt=_MARKERS[k % len(_MARKERS)], color=color,
            markersize=4.5,
            label=rf"{_name(panel)}: $N^{{-{rate:.2f} \pm {error:.2f}}}$",
        )  # fmt: skip
        if math.isfinite(rate):
            # The amplitude of the weighted least squares for this rate.
            power, weight = size**-rate, standard**-2.0
            amplitude = (weight * power * distance).sum() / (weight * power**2).sum()
            axis.plot(size, amplitude * power, LINES[k % len(LINES)], color=color, linewidth=1.2)
    axis.set(xscale="log", yscale="log", xlabel="number of tokens $N$")
    axis.set_ylabel(r"$W_2$(tokens, mean field)")
    axis.set_xticks(size, [f"{n:g}" for n in size], minor=False)
    axis.set_xticks([], minor=True)
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    if "time" in data.attrs:
        axis.set_title(f"at $t$ = {float(data.attrs['time']):g}", fontsize="medium")
    axis.legend(fontsize="small")
