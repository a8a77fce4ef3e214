"""Two figures: metastable clusters, and energies that rise or fall to their extremes.

For large beta tokens first gather in several clusters, which merge only after a time that grows
exponentially with beta: such states are metastable. The energy of SA and USA rises throughout
towards that of one cluster; with V = -I it falls towards that of the uniform law (Geshkovski,
Letrouit, Polyanskiy and Rigollet, arXiv 2312.10794).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from shaped_attention.checks import check_count, check_inside, check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.circle import angles_of
from shaped_attention.sphere.clusters import cluster_count, order_parameter, spectral_gap
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.integrate import checked_times, integrate_flow
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.theory import dirac_energy, uniform_energy

_KINDS = {"SA": "SA", "USA": r"USA, time $\times\, e^{\beta}$", "repulsion": r"SA with $V = -I$"}
"""The flows of `energy_curves`; repulsion is SA with V = -I."""

_BETA = parameter_label("beta")


@recorded()
def metastability(
    betas: Sequence[float] = (4.0, 9.0),
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    dimension: int = 2,
    delta: float = 1e-3,
    samples: int = 32,
    seed: int = 0,
    tolerance: float = 1e-3,
    normalised: bool = True,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the clusters over time from uniform tokens, the same for each beta."""
    checked = _checked_betas(betas)
    default = np.concatenate([[0.0], np.logspace(-1.0, 4.0, 100)])
    at = checked_times(default if times is None else times)
    check_count("tokens", tokens, lowest=2)
    check_inside("delta", delta)
    start = uniform_start(tokens, dimension, samples, seed)

    def measured(x: torch.Tensor) -> torch.Tensor:
        gram = x @ x.mT
        measures = [cluster_count(gram, delta).double(), order_parameter(gram), spectral_gap(gram)]
        values = torch.stack(measures, dim=-1)
        return torch.cat([values, angles_of(x)], dim=-1) if dimension == 2 else values

    def cell(beta: float) -> xr.Dataset:
        field = SphereAttention(beta, normalised).moved
        values = integrate_flow(field, start, at.tolist(), measured, tolerance, autonomous=True)
        names = ("clusters", "order", "gap")
        data = xr.Dataset({x: (("time", "sample"), values[..., k]) for k, x in enumerate(names)})
        # The angles of the first sample.
        return data if dimension != 2 else data.assign(angle=(("time", "token"), values[:, 0, 3:]))

    data = over_grid(cell, {"beta": checked}, progress=progress).assign_coords(time=at)
    return data.assign_attrs(attention="SA" if normalised else "USA")


@recorded()
def energy_curves(
    betas: Sequence[float] = (1.0, 4.0, 9.0),
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    dimension: int = 3,
    samples: int = 50,
    seed: int = 0,
    tolerance: float = 1e-4,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute energies over time under SA, USA and SA with V = -I, from the same uniform tokens.

    Near one cluster USA is e^beta times as fast as SA. Its energies are therefore taken at
    e^{-beta} times `time`, so all three fit on one axis.
    """
    checked = _checked_betas(betas)
    default = np.concatenate([[0.0], np.logspace(-2.0, 3.0, 80)])
    at = checked_times(default if times is None else times)
    start = uniform_start(tokens, dimension, samples, seed)

    def cell(kind: str, beta: float) -> xr.Dataset:
        attention = SphereAttention(beta, kind != "USA", kind == "repulsion")
        of_kind = at * math.exp(-beta) if kind == "USA" else at
        flow = sphere_flow(
            attention, start, of_kind.tolist(), keep=attention.energy, tolerance=tolerance
        )
        return xr.Dataset({"energy": (("time", "sample"), flow["kept"].to_numpy())})

    data = over_grid(cell, {"kind": list(_KINDS), "beta": checked}, progress=progress)
    return data.assign_coords(time=at).assign(
        uniform=("beta", [uniform_energy(beta, dimension) for beta in checked]),
        dirac=("beta", [dirac_energy(beta) for beta in checked]),
    )


@styled
def metastability_strip(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the tokens' angles in one realisation and the number of clusters in all, over time.

    There is a column of two panels for each beta. The lower panel shows the mean and the 5-95 %
    band over realisations. The data must be in dimension 2.
    """
    if "angle" not in data:
        raise ValueError("data must have angles, as a result in dimension 2 does")
    shown = data.where(data["time"] > 0.0, drop=True)
    columns = data.sizes["beta"]
    betas = [rf"{_BETA} = {beta:g}" for beta in shown["beta"].values]
    names = [f"{what}, {beta}" for what in ("angles", "clusters") for beta in betas]
    size = (0.9 + 4.6 * columns, 6.0)
    panels = Panels(ax, names, size, columns, sharex=True, sharey="row")
    time = shown["time"].values
    for column, beta in enumerate(shown["beta"].values):
        above, below = panels.axes[column], panels.axes[columns + column]
        of_beta = shown.sel(beta=beta)
        # A line that crosses the angle pi is cut there.
        angle = np.unwrap(of_beta["angle"].values, axis=0)
        for lap in (-2.0, 0.0, 2.0):
            above.plot(time, angle + lap * np.pi, color=COLORS[0], linewidth=0.8, alpha=0.8)
        above.set(xscale="log", ylim=(-np.pi, np.pi))
        above.set_yticks([-np.pi, 0.0, np.pi], [r"$-\pi$", "0", r"$\pi$"])
        above.set_title(betas[column], fontsize="medium")
        low, high = of_beta["clusters"].quantile([0.05, 0.95], "sample").values
        below.fill_between(
            time, low, high, color=COLORS[1], alpha=0.2, label="5 to 95 %", linewidth=0
        )
        mean = of_beta["clusters"].mean("sample")
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
    """
    shown = data.where(data["time"] > 0.0, drop=True)
    columns = data.sizes["beta"]
    names = [rf"{_BETA} = {beta:g}" for beta in shown["beta"].values]
    panels = Panels(ax, names, (0.9 + 4.0 * columns, 4.0), titles=True, sharex=True, sharey=True)
    time = shown["time"].values
    for axis, beta in zip(panels.axes, shown["beta"].values, strict=True):
        largest = float(data["dirac"].sel(beta=beta))
        for k, kind in enumerate(shown["kind"].values):
            energy = shown["energy"].sel(beta=beta, kind=kind) / largest
            low, high = energy.quantile([0.05, 0.95], "sample").values
            axis.fill_between(time, low, high, color=COLORS[k], alpha=0.2, linewidth=0)
            axis.plot(
                time, energy.mean("sample"), color=COLORS[k], linestyle=LINES[k],
                label=_KINDS[str(kind)],
            )  # fmt: skip
        axis.axhline(1.0, color="black", linewidth=1.0, label="one cluster")
        smallest = float(data["uniform"].sel(beta=beta)) / largest
        axis.axhline(smallest, color="0.5", linewidth=1.0, label="uniform law")
        axis.set(xscale="log", yscale="log", xlim=(time[0], time[-1]))
    panels.label("time $t$", r"$E_\beta\;/\;(e^\beta / 2\beta)$")
    return panels.finish(title, legend=True, columns=5)


def _checked_betas(betas: Sequence[float]) -> list[float]:
    check_values("betas", betas)
    return [SphereAttention(float(beta)).beta for beta in betas]
