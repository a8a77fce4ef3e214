"""How fast tokens approach, by the place of the norm: equiangular ones, and uniform ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from torch import Tensor

from shaped_attention.checks import check_count
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import Drawn, Panels, Target, look, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.equiangular import equiangular_cosine
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.integrate import checked_times
from shaped_attention.sphere.normalisation import MixLN, Normalise
from shaped_attention.sphere.starts import uniform_start

_LEAST = 1e-6
"""Lowest 1 - cosine that is drawn; it has some digits left."""


def _mean_gap(gram: Tensor) -> Tensor:
    """Return the mean of 1 - cosine over pairs of different tokens, from Gram matrices."""
    lengths = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    gaps = 1.0 - gram / (lengths[:, :, None] * lengths[:, None, :])
    count = gram.shape[-1]
    return gaps.sum((-2, -1)) / (count * (count - 1))


@recorded()
def normalisation_speeds(
    betas: Sequence[float] = (1.0, 4.0),
    times: Sequence[float] | None = None,
    *,
    tokens: int = 64,
    dimension: int = 4096,
    until: float = 3.0,
    samples: int = 16,
    seed: int = 0,
    tolerance: float = 1e-5,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute 1 - cosine over time for each place of the norm, exactly and from flows."""
    check_count("tokens", tokens, lowest=2)
    at = checked_times(np.geomspace(0.1, 1000.0, 121) if times is None else times)
    places: dict[str, Normalise] = {
        "Post-LN": "after", "Pre-LN": "before", "Mix-LN": MixLN(until), "Peri-LN": "sandwich",
        "nGPT": "ngpt",
    }  # fmt: skip
    start = uniform_start(tokens, dimension, samples, seed)

    def panel(beta: float, scheme: str) -> xr.Dataset:
        normalise = places[scheme]
        marks = at[:: max(1, len(at) // 15)]
        flow = sphere_flow(
            SphereAttention(float(beta)), start, marks.tolist(), normalise=normalise,
            keep=_mean_gap, tolerance=tolerance,
        )  # fmt: skip
        exact = equiangular_cosine(at, tokens, float(beta), normalise=normalise)
        return xr.Dataset(
            {"gap": ("time", 1.0 - exact), "simulated": ("mark", flow["kept"].values.mean(1))},
            {"time": at, "mark": marks},
        )

    return over_grid(panel, {"beta": betas, "scheme": list(places)}, progress=progress)


@styled
def speed_curves(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw 1 - cosine over time: lines are equiangular tokens, marks flows from uniform ones."""
    betas = data["beta"].values
    names = [f"{parameter_label('beta')} = {beta:g}" for beta in betas]
    panels = Panels(ax, names, (1.0 + 4.2 * len(betas), 4.6), titles=True, sharey=True)
    for axis, beta in zip(panels.axes, betas, strict=True):
        for k, scheme in enumerate(data["scheme"].values):
            row, curve = data.sel(beta=beta, scheme=scheme), look(k)
            axis.loglog(data["time"], row["gap"], label=str(scheme), **curve)
            axis.loglog(data["mark"], row["simulated"], "o", color=curve["color"], markersize=4.0)
        axis.set_ylim(_LEAST, 2.0)
    panels.label("time $t$", "1 - cosine")
    return panels.finish(title, legend=True)
