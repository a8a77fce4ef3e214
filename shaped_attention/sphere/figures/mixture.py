"""Figure of the mixture that tokens become: number, masses and angles of metastable clusters.

On the circle a small wave cos(k a) on the uniform density grows at the rate `mode_growth`, fastest
for k near sqrt(2 beta): that many clusters form first, and their law follows the fluctuations of
the start. For many tokens they are those of the mean field.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from shaped_attention.checks import argument_error, check_count, check_inside, check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.circle import angles_of
from shaped_attention.sphere.clusters import cluster_masses
from shaped_attention.sphere.integrate import integrate_flow
from shaped_attention.sphere.mean_field import cell_averages, mean_field
from shaped_attention.sphere.propagation_of_chaos import drawn_angles, particle_angles, two_bumps
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.theory import mode_growth

Style = dict[str, Any]

_BETA = parameter_label("beta")
_LARGEST = 16
"""Number of masses and gaps that are kept."""
_CELLS = 512
_ANGLES = 128
"""Cells of the mean field, and angles at which its distribution function is kept."""

_SHARE = 16
"""One sample in this many is compared with the mean field, because it has many more tokens."""


@recorded()
def mixture(
    betas: Sequence[float] = (4.0, 9.0, 16.0),
    *,
    sizes: Sequence[int] = (32, 64, 128),
    dimensions: Sequence[int] = (2, 3, 4),
    time: float = 30.0,
    density_time: float = 3.0,
    particles: int = 1024,
    delta: float = 0.01,
    samples: int = 256,
    seed: int = 0,
    tolerance: float = 1e-3,
    normalised: bool = True,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the law of the clusters at a time, and compare tokens with the mean field."""
    for name, values in (("betas", betas), ("sizes", sizes), ("dimensions", dimensions)):
        check_values(name, values)
    if not (
        math.isfinite(time) and time > 0.0 and math.isfinite(density_time) and density_time > 0
    ):
        raise argument_error("time", "positive, like density_time", (time, density_time))
    check_inside("delta", delta)
    check_count("samples", samples, lowest=2)
    of_density = max(2, samples // _SHARE)

    def cell(dimension: int, size: int, beta: float) -> xr.Dataset:
        def measured(x: torch.Tensor) -> torch.Tensor:
            masses = _padded(cluster_masses(x @ x.mT, delta))
            gaps = _gaps(angles_of(x), delta) if dimension == 2 else torch.zeros_like(masses)
            return torch.stack([masses, gaps], dim=1)

        field = SphereAttention(beta, normalised).moved
        start = uniform_start(size, dimension, samples, seed)
        kept = integrate_flow(field, start, [time], measured, tolerance, autonomous=True)[0]
        clusters = (kept[:, 0] > 0.0).sum(-1)
        return xr.Dataset(
            {
                "clusters": ("sample", clusters),
                "mass": (("sample", "cluster"), kept[:, 0]),
                "gap": (("sample", "cluster"), kept[:, 1]),
            }
        )

    def on_the_circle(beta: float) -> xr.Dataset:
        start = cell_averages(two_bumps, _CELLS)
        law = mean_field(beta, start, [density_time], normalised=normalised, cells=_CELLS)
        below = np.concatenate([[0.0], np.cumsum(law["density"].to_numpy()[-1])])
        edges = np.linspace(-math.pi, math.pi, _CELLS + 1)
        at = np.linspace(-math.pi, math.pi, _ANGLES + 1)
        first = drawn_angles(start, particles, of_density, seed)
        angles = particle_angles(SphereAttention(beta, normalised), first, [density_time])[0]
        shares = (angles[..., None] <= at).mean(1)
        growth = [mode_growth(k, beta, normalised) for k in range(1, 4 * _LARGEST)]
        return xr.Dataset(
            {
                "mean_field": ("angle", np.interp(at, edges, below / below[-1])),
                "tokens_below": ("angle", shares.mean(0)),
                "tokens_below_error": ("angle", shares.std(0, ddof=1) / of_density**0.5),
                "fastest_mode": 1 + int(np.argmax(growth)),
            },
            {"angle": at},
        )

    axes: dict[str, Sequence[Any]] = {
        "dimension": list(dimensions),
        "size": list(sizes),
        "beta": list(betas),
    }
    data = over_grid(cell, axes, progress=progress)
    data = data.assign(over_grid(on_the_circle, {"beta": list(betas)}).variables)
    return data.assign_attrs(attention="SA" if normalised else "USA")


def _padded(values: torch.Tensor) -> torch.Tensor:
    """The first entries (B, _LARGEST), or all with zeros after them."""
    missing = max(0, _LARGEST - values.shape[-1])
    return torch.nn.functional.pad(values[..., :_LARGEST], (0, missing))


def _gaps(angles: torch.Tensor, delta: float) -> torch.Tensor:
    """The angles (B, _LARGEST) between neighbouring clusters on the circle, the largest first.

    Tokens of neighbouring clusters are more than arccos(1 - delta) apart. One cluster has no gap.
    """
    ordered = angles.sort(-1).values
    gaps = torch.diff(ordered, append=ordered[..., :1] + 2.0 * math.pi)
    between = torch.where(gaps > math.acos(1.0 - delta), gaps, 0.0)
    alone = (between > 0.0).sum(-1, keepdim=True) < 2
    return _padded(torch.where(alone, 0.0, between).sort(-1, descending=True).values)


@styled
def mixture_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the law of the number of clusters, their masses, the angles between them, and more.

    First row, on the circle for the largest N: probabilities of the number of clusters with the
    fastest mode of the mean field (dotted), mean masses by rank with two standard errors, and the
    distribution function of the angles between neighbours. Second row: mean numbers by N on the
    circle, by dimension for the largest N, and the distribution function of tokens (points, from
    the same density) on that of the mean field (lines).
    """
    if "mass" not in data or "mean_field" not in data:
        raise ValueError("data must be that of the figure mixture")
    names = [
        "number of clusters", "masses by rank", "angles between neighbours",
        "by number of tokens", "by dimension", "tokens on the mean field",
    ]  # fmt: skip
    panels = Panels(ax, names, (13.0, 7.4), 3, titles=True)
    circle = data.sel(dimension=2) if 2 in data["dimension"] else data.isel(dimension=0)
    for k, beta in enumerate(data["beta"].values):
        style: Style = {"color": COLORS[k], "linestyle": LINES[k % len(LINES)]}
        label = rf"{_BETA} = {beta:g}"
        of_beta = circle.sel(beta=beta)
        largest = of_beta.isel(size=-1)
        _number(panels.axes[0], largest, style, label)
        _masses(panels.axes[1], largest, style)
        _angles(panels.axes[2], largest["gap"].to_numpy(), style)
        every = data.sel(beta=beta)
        _means(panels.axes[3], of_beta["clusters"], "size", style)
        _means(panels.axes[4], every["clusters"].isel(size=-1), "dimension", style)
        axis = panels.axes[5]
        axis.plot(data["angle"], of_beta["mean_field"], **style)
        few = of_beta.isel(angle=slice(None, None, 8))
        axis.errorbar(
            few["angle"], few["tokens_below"], 2.0 * few["tokens_below_error"],
            color=COLORS[k], fmt="o", markersize=3.0,
        )  # fmt: skip
    panels.axes[0].set(xlabel="clusters", ylabel="probability")
    panels.axes[1].set(xlabel="rank", ylabel="mean mass")
    panels.axes[2].set(xlabel="angle", ylabel="fraction of gaps below")
    panels.axes[3].set(xlabel="tokens $N$", ylabel="mean number of clusters", xscale="log")
    panels.axes[4].set(xlabel="dimension $d$", ylabel="mean number of clusters")
    panels.axes[5].set(xlabel="angle", ylabel="fraction below")
    sizes = data["size"].values
    panels.axes[3].set_xticks(sizes, [str(size) for size in sizes])
    panels.axes[3].minorticks_off()
    panels.axes[4].set_xticks(data["dimension"].values)
    for axis in panels.axes[:2]:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    note = (
        "bars: two standard errors; vertical lines: the mean field's fastest mode; "
        "last panel: tokens as points, mean field as lines"
    )
    return panels.finish(title, note=note, legend=True)


def _number(axis: Axes, data: xr.Dataset, style: Style, label: str) -> None:
    counts = np.bincount(data["clusters"].to_numpy())
    last = int(np.flatnonzero(counts)[-1])
    axis.plot(
        range(1, last + 1), counts[1 : last + 1] / counts.sum(), marker="o", markersize=3.0,
        label=label, **style,
    )  # fmt: skip
    axis.axvline(float(data["fastest_mode"]), color=style["color"], linestyle=":")


def _masses(axis: Axes, data: xr.Dataset, style: Style) -> None:
    mass = data["mass"].isel(cluster=slice(0, 8)).to_numpy()
    error = 2.0 * mass.std(0, ddof=1) / len(mass) ** 0.5
    axis.errorbar(
        1 + np.arange(mass.shape[1]), mass.mean(0), error, marker="o", markersize=3.0, **style
    )


def _angles(axis: Axes, gaps: NDArray[np.float64], style: Style) -> None:
    ordered = np.sort(gaps[gaps > 0.0])
    if ordered.size:
        axis.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", **style)


def _means(axis: Axes, clusters: xr.DataArray, along: str, style: Style) -> None:
    error = 2.0 * clusters.std("sample", ddof=1) / clusters.sizes["sample"] ** 0.5
    axis.errorbar(
        clusters[along], clusters.mean("sample"), error, marker="o", markersize=3.0, **style
    )
