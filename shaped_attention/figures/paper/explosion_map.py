"""Figure of where the limit explodes: over gamma and tau_0, for two tokens and for more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from shaped_attention.blocks import ShapedAttention
from shaped_attention.checks import check_count, check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import UNRESOLVED, Drawn, Panels, Target, styled
from shaped_attention.figures.paper.original import RHO_0
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.sde import integrate_sde
from shaped_attention.statistics.explosion_estimate import FEWEST, explosion_probability
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.theory.explosion.law import explosion_law

RADIUS = 1e13
"""Radius of the paths, in units of |V_0|: hardly any path comes back from there."""

LONG = 10.0
"""Horizon of the paths in units of 1 / k; two tokens explode later with a probability of 0.002."""


@recorded()
def figure_explosion_map(
    gammas: Sequence[float] = tuple(round(0.05 * k, 2) for k in range(2, 20)),
    tau0s: Sequence[float] = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
    tokens: Sequence[int] = (2, 4),
    heads: int = 1,
    steps: int = 400,
    samples: int = 512,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Probability that the limit ever explodes, over gamma and tau_0: exact law and paths.

    Returns the law of two tokens on a fine grid, `exact` (fine_gamma, fine_tau0), and estimates
    from paths of the clock up to t = 10 / k, `probability` with 95 % bounds `lower` and `upper`
    (tokens, gamma, tau0). Where fewer than 20 paths reach the radius, `probability` is the fraction
    that did, and `lower` is 0.
    """
    check_count("steps", steps)
    check_values("gammas", gammas)
    check_values("tau0s", tau0s)

    def cell(tokens: int, gamma: float, tau0: float) -> xr.Dataset:
        v0 = equicorrelated(tokens, RHO_0)
        horizon = LONG / (gamma**2 * (2.0 - gamma**2))
        keys = {"study": "figure_explosion_map", "tokens": tokens, "gamma": gamma, "tau0": tau0}
        run = integrate_sde(
            ShapedAttention(gamma, tau0, heads=heads), v0, horizon=horizon, step=horizon / steps,
            method="clock", samples=samples, radius=RADIUS * float(np.linalg.norm(v0)),
            seed=derived_seed(seed, keys), keep="observables", progress=False,
        )  # fmt: skip
        reached = int(np.isfinite(run["stopping_time"]).sum())
        if reached < FEWEST:
            upper = float(fraction_bounds(reached, samples, 0.95)[1])
            return xr.Dataset({"probability": reached / samples, "lower": 0.0, "upper": upper})
        return explosion_probability(run)[["probability", "lower", "upper"]]

    def law(fine_gamma: float) -> xr.Dataset:
        block = ShapedAttention(fine_gamma, 1.0, heads=heads)
        one = explosion_law(block, equicorrelated(2, RHO_0)).coefficients
        # Drift and noise of the scores are divided by tau_0^2.
        laws = [replace(one, alpha=one.alpha / t**2, delta=one.delta / t**2) for t in temperatures]
        return xr.Dataset({"exact": ("fine_tau0", [x.ever() for x in laws])})

    # As far as the cells of the paths.
    first, last = np.clip(_edges(np.array(gammas, float))[[0, -1]], 0.01, 1.0).tolist()
    low, high = _edges(np.log(tau0s))[[0, -1]].tolist()
    temperatures = np.exp(np.linspace(low, high, 48)).tolist()
    axes = {"tokens": tokens, "gamma": gammas, "tau0": tau0s}
    exact = over_grid(law, {"fine_gamma": np.linspace(first, last, 96).tolist()})
    exact = exact.assign_coords(fine_tau0=temperatures)
    return xr.merge([over_grid(cell, axes, progress=progress), exact])


@styled
def explosion_maps(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the exact law and the estimates over gamma and tau_0, with gamma^2 = H / 2.

    A cell is grey where the interval of its estimate contains 0.
    """
    several = data["tokens"].values
    names = ["2 tokens: exact law", *(f"{m} tokens: paths of the SDE" for m in several)]
    panels = Panels(ax, names, (4.3 * len(names), 4.4), titles=True, sharey=True)
    exact, *sampled = panels.axes
    shades: dict[str, Any] = {"vmin": 0.0, "vmax": 1.0, "cmap": "viridis", "rasterized": True}
    drawn = exact.pcolormesh(
        data["fine_gamma"], data["fine_tau0"], data["exact"].T, shading="gouraud", **shades
    )
    edges = _edges(data["gamma"].values), np.exp(_edges(np.log(data["tau0"].values)))
    for axis, m in zip(sampled, several, strict=True):
        axis.set_facecolor(UNRESOLVED)
        one = data.sel(tokens=m)
        resolved = one["probability"].where(one["lower"] > 0.0).transpose("tau0", "gamma")
        axis.pcolormesh(*edges, resolved, **shades)
    for axis in panels.axes:
        axis.set(yscale="log", xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
        axis.grid(False)
        _threshold(axis, math.sqrt(data.attrs["heads"] / 2.0))
    panels.label(parameter_label("gamma"), parameter_label("tau0"))
    panels.colorbar(drawn, panels.axes, label="probability that $V$ ever explodes")
    note = r"dashed: $\gamma^2=H/2$; grey: the 95 % interval contains 0"
    return panels.finish(title, note=note)


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges of the cells around some values; a single cell has the width 0.1."""
    half = 0.5 * (np.diff(values) if len(values) > 1 else np.array([0.1]))
    return np.concatenate([values[:1] - half[0], values[:-1] + half[: len(values) - 1],
                           values[-1:] + half[-1]])  # fmt: skip


def _threshold(axis: Axes, gamma: float) -> None:
    """Draw the value of gamma from which two tokens do not explode, if it is on the axis."""
    if axis.get_xlim()[0] < gamma < axis.get_xlim()[1]:
        axis.axvline(gamma, color="white", linewidth=3.0)
        axis.axvline(gamma, color="black", linestyle="--", linewidth=1.8)
