"""Phase diagrams of clustering: P(<x_1, x_2> >= 1 - delta) over time and beta.

A panel for each dimension, with the curve of equiangular tokens, or for each ensemble of random
matrices of `TokenAttention.random`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import seaborn as sns
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import check_choice, check_count, check_inside, check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import Drawn, Panels, Target, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.arguments import named_device
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.clusters import close_pairs
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.integrate import checked_times
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.theory import meeting_time
from shaped_attention.sphere.token_attention import ENSEMBLES, TokenAttention

DIMENSIONS = (2, 8, 32, 128, 512, 1024)
BETAS = tuple(0.5 * k for k in range(19))

_CHUNK = 64
"""Number of samples whose matrices are in memory together."""

_NAMES = {
    "ginibre": r"$Q, K, V$ Ginibre",
    "wigner-psd": r"$Q^\top K$ Wigner, $V \succeq 0$",
    "ginibre-gradient": r"$Q, K$ Ginibre, $V = Q^\top K$",
    "wigner-gradient": r"$Q^\top K$ Wigner, $V = Q^\top K$",
}


@recorded()
def phase_diagram(
    dimensions: Sequence[int] = DIMENSIONS,
    betas: Sequence[float] = BETAS,
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    delta: float = 1e-3,
    samples: int = 2**10,
    seed: int = 0,
    tolerance: float = 1e-4,
    normalised: bool = True,
    device: str = "cpu",
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the probability that two tokens are close, from uniform tokens in each dimension."""
    at = _checked(tokens, betas, times)
    place = named_device(device)
    curve = [meeting_time(delta, tokens, beta, 0.0, normalised) for beta in betas]

    def panel(dimension: int) -> xr.Dataset:
        start = uniform_start(tokens, dimension, samples, seed).to(place)
        flow = sphere_flow(
            SphereAttention(0.0, normalised), start, at.tolist(),
            betas=[float(beta) for beta in betas], keep=partial(close_pairs, delta=delta),
            tolerance=tolerance,
        )  # fmt: skip
        probability = flow["kept"].mean("sample").to_numpy()
        return xr.Dataset({"probability": (("beta", "time"), probability)})

    return (
        over_grid(panel, {"dimension": dimensions}, progress=progress)
        .assign(curve=("beta", curve))
        .assign_coords(beta=list(betas), time=at)
        .assign_attrs(attention="SA" if normalised else "USA")
    )


@recorded()
def ensemble_phase(
    ensembles: Sequence[str] = ENSEMBLES,
    betas: Sequence[float] = BETAS,
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    dimension: int = 128,
    delta: float = 1e-3,
    samples: int = 64,
    seed: int = 0,
    tolerance: float = 1e-3,
    normalised: bool = True,
    scale: float = 1.0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the probability that two tokens are close, for random matrices and uniform tokens."""
    at = _checked(tokens, betas, times)
    check_values("ensembles", ensembles)
    for ensemble in ensembles:
        check_choice("ensembles", ensemble, ENSEMBLES)
    for beta in betas:
        TokenAttention(float(beta), normalised=normalised)
    check_inside("delta", delta)
    starts = uniform_start(tokens, dimension, samples, seed, reduced=False)

    @lru_cache(maxsize=1)
    def drawn(ensemble: str, first: int, count: int) -> TokenAttention:
        return TokenAttention.random(
            ensemble, dimension, 0.0, count, seed, first=first, normalised=normalised, scale=scale
        )

    def cell(ensemble: str, beta: float) -> xr.Dataset:
        close = np.zeros(len(at))
        for first in range(0, samples, _CHUNK):
            start = starts[first : first + _CHUNK]
            flow = sphere_flow(
                replace(drawn(ensemble, first, len(start)), beta=float(beta)), start, at.tolist(),
                keep=partial(close_pairs, delta=delta), tolerance=tolerance,
            )  # fmt: skip
            close += flow["kept"].sum("sample").values
        return xr.Dataset({"probability": ("time", close / samples)}, {"time": at})

    data = over_grid(cell, {"ensemble": ensembles, "beta": betas}, progress=progress)
    return data.assign_attrs(attention="SA" if normalised else "USA")


@styled
def phase_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the probability over time and beta, a panel for each dimension or ensemble."""
    dimensions = "dimension" in data.dims
    if dimensions:
        names = [f"$d$ = {dimension}" for dimension in data["dimension"].values]
    else:
        names = [_NAMES[str(name)] for name in data["ensemble"].values]
    columns = min(3 if dimensions else 2, len(names))
    rows = -(-len(names) // columns)
    size = (1.5 + 3.6 * columns, 0.8 + 2.9 * rows)
    panels = Panels(ax, names, size, columns, titles=True, sharex=True, sharey=True)
    time, beta = data["time"].values, data["beta"].values
    shades = sns.color_palette("viridis", as_cmap=True)
    for axis, values in zip(panels.axes, data["probability"].values, strict=True):
        mesh = axis.pcolormesh(time, beta, values, cmap=shades, vmin=0.0, vmax=1.0, rasterized=True)
        axis.grid(visible=False)
        if dimensions:
            axis.plot(data["curve"], beta, color="white", linewidth=2.5)
            axis.plot(
                data["curve"], beta, "--", color="black", linewidth=1.5,
                label="equiangular, from 0",
            )  # fmt: skip
    # The mesh ends half a cell beyond the last values; curves may continue.
    edges = np.asarray(mesh.get_coordinates()).reshape(-1, 2)
    panels.axes[0].set(xlim=(edges[:, 0].min(), edges[:, 0].max()))
    panels.axes[0].set(ylim=(edges[:, 1].min(), edges[:, 1].max()))
    panels.label("time $t$", parameter_label("beta"))
    label = r"$P(\langle x_i, x_j\rangle \geq 1 - \delta)$"
    panels.colorbar(mesh, panels.axes, label=label)
    if dimensions:
        panels.axes[0].legend(fontsize="x-small", loc="upper left")
    return panels.finish(title)


def _checked(tokens: int, betas: Sequence[float], times: ArrayLike | None) -> NDArray[np.float64]:
    """Return the times of a diagram; raise ValueError if an argument is outside its range."""
    check_count("tokens", tokens, lowest=2)
    check_values("betas", betas)
    return checked_times(np.linspace(0.0, 30.0, 61) if times is None else times)
