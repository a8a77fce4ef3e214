"""Figure of the passage times of two tokens: the exact law, and chains of growing width."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks import ShapedAttention
from shaped_attention.checks import check_positive
from shaped_attention.figures.labels import TIME, parameter_label
from shaped_attention.figures.panels import COLORS, Drawn, Panels, Target, styled
from shaped_attention.figures.paper.original import RHO_0
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.theory.explosion.law import explosion_law

_MARKERS = "osv^D"


@recorded()
def figure_explosion(
    gammas: Sequence[float] = (0.35, 0.6),
    tau0s: Sequence[float] = (0.5, 1.0),
    widths: Sequence[int] = (64, 256, 1024),
    level: float = 10.0,
    horizon: float = 1.0,
    samples: int = 2**14,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Probability of an explosion by time T for two tokens: the exact law and chains.

    The softmax of a finite network saturates, so that it never explodes. The chains count passages
    of u = V_11 - 2 V_12 + V_22 over a finite level, whose law in the limit is known too.
    """
    check_positive("horizon", horizon)
    v0 = equicorrelated(2, RHO_0)
    times = np.linspace(0.0, horizon, 41)
    marks = np.linspace(0.0, horizon, 9)[1:]

    def cell(gamma: float, tau0: float) -> xr.Dataset:
        block = ShapedAttention(gamma, tau0)
        law = explosion_law(block, v0)
        counts = np.empty((len(widths), len(marks)), dtype=np.int64)
        for row, width in zip(counts, widths, strict=True):
            run = simulate_chain(
                block, v0, width=width, depth=max(1, math.ceil(width * horizon)), samples=samples,
                seed=derived_seed(seed, {"study": "figure_explosion", "gamma": gamma,
                                         "tau0": tau0, "width": width}),
                save_every=1, keep=f"{__name__}:difference", progress=False,
            )  # fmt: skip
            kept = run["kept"].to_numpy().reshape(run.sizes["time"], samples)
            reached = np.maximum.accumulate(kept, axis=0) >= level
            layers = np.minimum((marks * width + 1e-9).astype(int), len(reached) - 1)
            row[:] = reached[layers].sum(axis=1)
        lower, upper = fraction_bounds(counts, samples, 0.95)
        return xr.Dataset(
            {
                "explosion": ("time", law.curve(times)),
                "passage": ("time", law.curve(times, level)),
                "probability": (("width", "mark"), counts / samples),
                "lower": (("width", "mark"), lower),
                "upper": (("width", "mark"), upper),
            },
            coords={"time": times, "mark": marks, "width": list(widths)},
        )

    axes = {"gamma": [float(x) for x in gammas], "tau0": [float(x) for x in tau0s]}
    return over_grid(cell, axes, progress=progress)


def difference(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return u = V_11 - 2 V_12 + V_22 of two tokens."""
    return v[:, 0, 0] - 2.0 * v[:, 0, 1] + v[:, 1, 1]


@styled
def passage_probabilities(
    data: xr.Dataset, title: str | None = None, *, ax: Target = None
) -> Drawn:
    """Draw the exact laws as lines, and the fractions of chains with their bounds as points."""
    gammas = data["gamma"].values
    panels = Panels(ax, [f"gamma = {x:g}" for x in gammas], (5.5 * len(gammas), 4.6), sharey=True)
    spacing = 0.012 * float(data["time"][-1])
    for axis, gamma in zip(panels.axes, gammas, strict=True):
        for k, tau0 in enumerate(data["tau0"].values):
            one, color = data.sel(gamma=gamma, tau0=tau0), COLORS[k % len(COLORS)]
            name = f"{parameter_label('tau0')} = {tau0:g}"
            level = data.attrs.get("level", math.nan)
            for variable, line, what in (
                ("passage", "-", f"$u \\geq {level:g}$"), ("explosion", "--", "explosion"),
            ):  # fmt: skip
                shown = one[variable].where(one[variable] > 1e-6)
                axis.plot(data["time"], shown, line, color=color, label=f"{name}, {what}")
            for j, width in enumerate(data["width"].values):
                part = one.sel(width=width)
                seen = (part["probability"] > 0.0).values
                middle = part["probability"].values[seen]
                spread = np.abs([part["lower"].values[seen], part["upper"].values[seen]] - middle)
                shift = spacing * (j - 0.5 * (data.sizes["width"] - 1))
                axis.errorbar(
                    data["mark"].values[seen] + shift, middle, yerr=spread, linestyle="none",
                    marker=_MARKERS[j % len(_MARKERS)], markersize=4.0, color=color, alpha=0.8,
                    capsize=1.5,
                )  # fmt: skip
        axis.set(title=f"{parameter_label('gamma')} = {gamma:g}", yscale="log")
        axis.set_ylim(1e-5, 1.0)
        for j, width in enumerate(data["width"].values):
            marker = _MARKERS[j % len(_MARKERS)]
            axis.plot([], [], marker, markersize=4.0, color="0.3", label=f"$n$ = {width}")
    panels.label(TIME, "probability by time $t$")
    return panels.finish(
        title, note="lines: exact law of the limit; points: chains, 95 % intervals", legend=True,
        columns=4,
    )  # fmt: skip
