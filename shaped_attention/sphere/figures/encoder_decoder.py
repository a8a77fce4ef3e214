"""Figure that compares full attention (encoder) with causal attention (decoder) by position.

With causal attention the first token sees only itself and stays where it is, so all others go to
it: on the sphere the second token approaches it at the rate 1/2 (in units of `final_rate`),
the slowest of all, while tokens of an encoder approach each other at the rate 1. The same starts
are taken as V_0 of the shaped SDE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.checks import check_count, check_inside, check_values
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.sde import integrate_sde
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.clusters import cluster_count
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.integrate import checked_times
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.statistics.proportions import quantile_bounds
from shaped_attention.theory.drift_diffusion import diffusion, drift

MASKS = {"full": "encoder", "causal": "decoder"}
"""The masks that are compared, and what a transformer with this mask is called."""

_SHAPED_TIMES = 40
"""Number of times at which the shaped SDE is kept."""

_BETA = parameter_label("beta")


@recorded()
def encoder_and_decoder(
    betas: Sequence[float] = (1.0, 9.0),
    times: ArrayLike | None = None,
    *,
    dimensions: Sequence[int] = (2, 64),
    tokens: int = 16,
    delta: float = 1e-3,
    samples: int = 256,
    seed: int = 0,
    tolerance: float = 1e-3,
    normalised: bool = True,
    gamma: float = 0.5,
    tau0: float = 1.0,
    horizon: float = 1.0,
    step: float = 0.01,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute how tokens meet under full and causal attention, and the shaped SDE of both."""
    check_values("betas", betas)
    check_values("dimensions", dimensions)
    check_count("tokens", tokens, lowest=3)
    check_inside("delta", delta)
    default = np.concatenate([[0.0], np.logspace(-1.0, 4.0, 120)])
    at = checked_times(default if times is None else times)

    def cell(mask: str, dimension: int, beta: float) -> xr.Dataset:
        attention = SphereAttention(beta, normalised, causal=mask == "causal")
        start = uniform_start(tokens, dimension, samples, seed)

        def measured(gram: torch.Tensor) -> torch.Tensor:
            count = cluster_count(gram, delta).to(gram.dtype)
            return torch.cat([gram[:, 0], count[:, None]], dim=-1)

        flow = sphere_flow(attention, start, at.tolist(), keep=measured, tolerance=tolerance)
        kept = flow["kept"].to_numpy()
        return xr.Dataset(
            {
                "cosine": (("time", "position"), kept[..., :-1].mean(1)),
                "joined": (("position", "sample"), _joined(kept[..., :-1], at, delta)),
                "clusters": (("time", "sample"), kept[..., -1]),
            }
        )

    def shaped(mask: str) -> xr.Dataset:
        layer = ShapedAttention(gamma, tau0, mask="causal" if mask == "causal" else None)
        start = uniform_start(tokens, max(4 * tokens, *dimensions), samples, seed)
        v0 = (start @ start.mT).numpy()
        result = integrate_sde(
            layer, v0, horizon=horizon, step=step, samples=samples, seed=seed, progress=False,
            save_every=max(1, round(horizon / step) // _SHAPED_TIMES),
        )  # fmt: skip
        v = result["V"].to_numpy()
        norms = np.sqrt(np.diagonal(v, axis1=-2, axis2=-1))
        squares = (v[:, :, 0] / (norms[..., :1] * norms)) ** 2
        b = np.diagonal(drift(layer, v0), axis1=-2, axis2=-1)
        place = np.arange(tokens)
        place = place * (place + 3) // 2  # of the entry (a, a) in vech
        spread = diffusion(layer, v0[:1])[:, place, place]
        return xr.Dataset(
            {
                "shaped_square": (("shaped_time", "position"), squares.mean(1)),
                "shaped_square_error": (
                    ("shaped_time", "position"), squares.std(1, ddof=1) / samples**0.5,
                ),
                "drift": ("position", b.mean(0)),
                "drift_error": ("position", b.std(0, ddof=1) / samples**0.5),
                "diffusion": ("position", spread.mean(0)),
                "stopped": float(np.isfinite(result["stopping_time"].to_numpy()).mean()),
            },
            {"shaped_time": result["time"].values},
        )  # fmt: skip

    axes: dict[str, Sequence[Any]] = {
        "mask": list(MASKS),
        "dimension": list(dimensions),
        "beta": list(betas),
    }
    data = over_grid(cell, axes, progress=progress)
    data = data.assign(over_grid(shaped, {"mask": list(MASKS)}).variables)
    return data.assign_coords(time=at, position=1 + np.arange(tokens)).assign_attrs(
        attention="SA" if normalised else "USA"
    )


def _joined(
    cosines: NDArray[np.float64], at: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """Return the times (position, sample) from which tokens stay close to the first one.

    Cosines (time, sample, position); infinite where a token is not close at the end.
    """
    apart = cosines < 1.0 - delta
    # The last time at which a token is apart, counted from the end.
    since = np.where(apart.any(0), len(at) - np.argmax(apart[::-1], axis=0), 0)
    return np.append(at, np.inf)[since].T


@styled
def encoder_decoder_panels(
    data: xr.Dataset, title: str | None = None, *, ax: Target = None
) -> Drawn:
    """Draw, by position, when tokens join the first one; clusters over time; the shaped SDE.

    The first row has a panel for each dimension: median times of joining with 95 % intervals, for
    each beta; a curve is left out, and named, if an interval does not end before the last time. The
    second has the mean number of clusters over time. The third has the shaped SDE, with two
    standard errors: the drift of V_aa at the start by position, and the mean squared cosine of the
    second token (thin) and of the last with the first over time.
    """
    if "joined" not in data or "drift" not in data:
        raise ValueError("data must be that of the figure encoder-decoder")
    dimensions = data["dimension"].values
    tops = [
        rf"{what}, $d$ = {d}"
        for what in ("joining the first token", "clusters")
        for d in dimensions
    ]
    names = [*tops, "drift of the shaped SDE", "cosines of the shaped SDE"]
    columns = max(2, len(dimensions))
    panels = Panels(ax, names, (0.9 + 4.6 * columns, 9.0), columns, titles=True)
    for k, dimension in enumerate(dimensions):
        _joining(panels.axes[k], data.sel(dimension=dimension))
        _clusters(panels.axes[len(dimensions) + k], data.sel(dimension=dimension))
    _shaped_drift(panels.axes[-2], data)
    _shaped_cosines(panels.axes[-1], data)
    note = (
        "intervals of medians: 95 %; other bars and bands: two standard errors\n"
        f"cosines: token 2 thin, token {data.sizes['position']} thick"
    )
    return panels.finish(title, note=note, legend=True, columns=4)


def _label(mask: str, beta: float) -> str:
    return rf"{MASKS[mask]}, {_BETA} = {beta:g}"


def _joining(axis: Axes, data: xr.Dataset) -> None:
    missing = []
    for m, mask in enumerate(data["mask"].values):
        for k, beta in enumerate(data["beta"].values):
            joined = data["joined"].sel(mask=mask, beta=beta).isel(position=slice(1, None))
            ordered = np.sort(joined.transpose("position", "sample").to_numpy())
            low, high = quantile_bounds(ordered, 0.5, 0.95)
            median, label = np.median(ordered, axis=-1), _label(str(mask), float(beta))
            if not np.isfinite(high).all():
                missing.append(label)
                median = np.full_like(median, np.nan)
            axis.errorbar(
                joined["position"], median, [median - low, high - median], fmt=LINES[m],
                marker="o", markersize=3.0, color=COLORS[k], label=label,
            )  # fmt: skip
    if missing:
        text = "\n".join([f"median not resolved by $t$ = {data['time'].values[-1]:g}:", *missing])
        axis.margins(y=0.4)
        axis.text(0.03, 0.95, text, transform=axis.transAxes, va="top", fontsize="x-small")
    axis.set(yscale="log", xlabel="position", ylabel="median time of joining")


def _clusters(axis: Axes, data: xr.Dataset) -> None:
    shown = data.isel(time=data["time"].values > 0.0)
    for m, mask in enumerate(shown["mask"].values):
        for k, beta in enumerate(shown["beta"].values):
            mean = shown["clusters"].sel(mask=mask, beta=beta).mean("sample")
            axis.plot(shown["time"], mean, LINES[m], color=COLORS[k])
    axis.set(xscale="log", yscale="log", xlabel="time $t$", ylabel="mean number of clusters")


def _shaped_drift(axis: Axes, data: xr.Dataset) -> None:
    for m, mask in enumerate(data["mask"].values):
        of_mask = data.sel(mask=mask)
        axis.errorbar(
            of_mask["position"], of_mask["drift"], 2.0 * of_mask["drift_error"],
            color=COLORS[2 + m], fmt=LINES[m], marker="o", markersize=3.0,
            label=f"shaped, {MASKS[str(mask)]}",
        )  # fmt: skip
    axis.set(xlabel="position $a$", ylabel="drift of $V_{aa}$ at $t = 0$")


def _shaped_cosines(axis: Axes, data: xr.Dataset) -> None:
    positions = (2, data.sizes["position"])
    for m, mask in enumerate(data["mask"].values):
        for k, position in enumerate(positions):
            curve = data.sel(mask=mask, position=position)
            middle, error = curve["shaped_square"], 2.0 * curve["shaped_square_error"]
            axis.fill_between(
                data["shaped_time"], middle - error, middle + error, color=COLORS[2 + m],
                alpha=0.15, linewidth=0,
            )  # fmt: skip
            axis.plot(
                data["shaped_time"], middle, LINES[m], color=COLORS[2 + m], linewidth=1.0 + k
            )  # fmt: skip
    axis.set(xlabel="time $t$", ylabel=r"mean of $\cos^2$ with token 1", ylim=(0.0, None))
