"""How often two tokens with value matrices of mean 0 end as antipodes, by beta and dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr

from shaped_attention.checks import argument_error, check_count, check_positive, check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import Drawn, Panels, Target, look, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.layers import noisy_chain
from shaped_attention.sphere.starts import equiangular_start
from shaped_attention.sphere.two_tokens import two_tokens

_TIMES = 10.0
"""Paths end at the time 10 d: their cosine z = artanh r then has the order 10."""


@recorded()
def antipode_probability(
    dimensions: Sequence[int] = (2, 3, 4, 8, 16, 32),
    betas: Sequence[float] = tuple(round(0.1 * k, 1) for k in range(41)),
    marks: Sequence[float] = (1.0, 2.0, 3.0, 4.0),
    *,
    cosine: float = 0.0,
    samples: int = 1000,
    step: float = 0.1,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the probability that two tokens end as antipodes, by quadrature and from paths."""
    check_count("samples", samples, lowest=2)
    check_positive("step", step)
    for name, values in (("betas", betas), ("marks", marks)):
        check_values(name, values)
    start = equiangular_start(2, cosine).expand(samples, -1, -1)

    def exact(dimension: int, beta: float) -> float:
        law = two_tokens(SphereAttention(float(beta)), dimension, 1.0, [cosine], centred=True)
        return float(law["antipode"][0])

    def share(dimension: int, beta: float) -> float:
        layers = max(1, round(_TIMES * dimension / step))
        ends = noisy_chain(
            SphereAttention(float(beta)), start, dimension, 1.0, step, layers,
            centred=True, seed=seed, save_every=layers, keep=lambda gram: gram[:, 0, 1],
        )  # fmt: skip
        return float((ends["kept"].values[-1] < 0.0).mean())

    def panel(dimension: int) -> xr.Dataset:
        if dimension < 2:
            raise argument_error("dimensions", "at least 2", dimension)
        simulated = np.array([share(dimension, beta) for beta in marks])
        return xr.Dataset(
            {
                "probability": ("beta", [exact(dimension, beta) for beta in betas]),
                "threshold": ((), 0.5 * math.acosh(max(dimension - 2, 1))),
                "simulated": ("mark", simulated),
                "error": ("mark", np.sqrt(simulated * (1.0 - simulated) / samples)),
            },
            {"beta": list(betas), "mark": list(marks)},
        )

    return over_grid(panel, {"dimension": dimensions}, progress=progress)


@styled
def antipode_curves(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the probability over beta: a line for each dimension, and points with two errors.

    Triangles on the axis are the thresholds cosh(2 beta) = d - 2.
    """
    panels = Panels(ax, ["probability of the antipode"], (7.2, 4.6))
    axis = panels.axes[0]
    for k, dimension in enumerate(data["dimension"].values):
        row, curve = data.sel(dimension=dimension), look(k)
        axis.plot(data["beta"], row["probability"], label=f"$d$ = {dimension}", **curve)
        axis.errorbar(
            data["mark"], row["simulated"], 2.0 * row["error"], color=curve["color"], fmt="o",
            markersize=4.0, capsize=2.0,
        )  # fmt: skip
        if dimension > 3:
            axis.plot(row["threshold"], 0.0, "^", color=curve["color"], clip_on=False, zorder=3)
    axis.set_ylim(bottom=0.0)
    panels.label(parameter_label("beta"), "P(antipode)")
    return panels.finish(title, legend=True)
