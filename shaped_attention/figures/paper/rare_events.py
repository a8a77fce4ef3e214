"""Figure of rare events: chains by splitting, the SDE by its exact law."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from shaped_attention.blocks import ShapedAttention
from shaped_attention.checks import check_values
from shaped_attention.figures.panels import Drawn, Panels, Target, look, styled
from shaped_attention.figures.paper.original import RHO_0
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.rare_events import rare_event
from shaped_attention.theory.explosion.law import explosion_law

HORIZON, GAMMA, TAU0 = 0.75, 0.35, 3.0
_POINTS = 50
"""Number of levels of the exact law."""


@recorded()
def figure_rare_events(
    levels: Sequence[float] = (3.0, 10.0, 30.0, 100.0, 300.0),
    widths: Sequence[int] = (64, 256, 1024),
    replicas: int = 200,
    runs: int = 6,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Probability that u = V_11 - 2 V_12 + V_22 reaches a level, down to 10^-9, for chains and SDE.

    Two tokens, gamma = 0.35, tau_0 = 3, by t = 0.75. The chains are sampled by `rare_event`; the
    SDE has its exact law, which is computed at 50 levels (`exact`).
    """
    check_values("levels", levels)
    check_values("widths", widths)
    layer, v0 = ShapedAttention(GAMMA, TAU0), equicorrelated(2, RHO_0)
    law = explosion_law(layer, v0)

    def cell(width: int, level: float) -> xr.Dataset:
        keys = {"study": "figure_rare_events", "width": width, "level": level}
        result = rare_event(
            layer, v0, "u", level, width=width, depth=round(HORIZON * width),
            replicas=replicas, runs=runs, seed=derived_seed(seed, keys), progress=False,
        )  # fmt: skip
        lower, upper = result["interval"].to_numpy()
        return xr.Dataset(
            {"probability": float(result["probability"]), "lower": lower, "upper": upper}
        )

    data = over_grid(cell, {"width": widths, "level": levels}, progress=progress)
    fine = np.geomspace(min(levels), max(levels), _POINTS)
    exact = [law.probability(horizon=HORIZON, level=level) for level in fine.tolist()]
    data = data.assign_coords(level=[float(level) for level in levels], fine_level=fine)
    return data.assign(exact=("fine_level", np.array(exact, dtype=np.float64)))


@styled
def level_probabilities(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the probability of reaching each level: chains with intervals, the SDE's exact law."""
    panels = Panels(ax, ("probability",), (6.5, 4.6))
    (axis,) = panels.axes
    levels = data["level"].values
    for k, width in enumerate(data["width"].values):
        one = data.sel(width=width)
        middle = one["probability"].values
        # Only the marked levels are estimated; the thin line leads the eye.
        axis.plot(levels, middle, linewidth=0.6, **look(k))
        axis.errorbar(
            levels, middle, yerr=[middle - one["lower"].values, one["upper"].values - middle],
            fmt="osD^v"[k % 5], markersize=5.0, capsize=3.0, color=look(k)["color"],
            label=f"chain, $n = {width}$",
        )  # fmt: skip
    axis.plot(data["fine_level"], data["exact"], color="0.2", label="SDE, exact law")
    axis.set(xscale="log", yscale="log", xlabel="level of $u = V_{0,0} - 2 V_{0,1} + V_{1,1}$")
    axis.set_ylabel("probability of reaching it")
    return panels.finish(title, note="bars: 95 % intervals of splitting", legend=True, columns=2)
