"""Clustering with and without the noise of random value matrices, in one figure.

The attracting network with noise of strength sigma (`shaped_attention.sphere.layers`) is drawn
alongside the layer-normalised shaped chain, X' = N(lambda X + gamma A X W_V / sqrt n), whose value
matrices have mean 0 instead of I: it gathers tokens at two opposite points, so that many pairs are
close although the mean cosine stays near 0. Its time is gamma^2 l / n, the variance of its noise,
where that of the noisy network is sigma^2 t / d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.checks import argument_error, check_count, check_inside, check_positive
from shaped_attention.figures.panels import Drawn, Panels, Target, look, styled
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.clusters import close_pairs
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.layers import noisy_chain, sphere_network
from shaped_attention.sphere.starts import uniform_start

MEASURES = ("mean cosine", "close pairs", "opposite pairs")
_BAND = (0.1, 0.9)
_SHAPED_TIMES = 60


@recorded()
def clustering_with_noise(
    dimensions: Sequence[int] = (2, 512),
    sigmas: Sequence[float] = (0.0, 0.5, 1.0, 2.0),
    *,
    tokens: int = 16,
    beta: float = 1.0,
    horizon: float = 6.0,
    step: float = 0.04,
    delta: float = 0.01,
    samples: int = 256,
    network_samples: int = 32,
    shaped_width: int = 64,
    shaped_samples: int = 64,
    gamma: float = 0.5**0.5,
    tau0: float = 1.0,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the mean cosine and the fraction of close pairs over time, for several sigma.

    Opposite pairs, with cosine at most delta - 1, are a third measure.
    """
    check_count("tokens", tokens, lowest=2)
    check_count("network_samples", network_samples, lowest=2)
    check_count("shaped_width", shaped_width)
    check_count("shaped_samples", shaped_samples)
    for name, value in (("horizon", horizon), ("step", step), ("gamma", gamma)):
        check_positive(name, value)
    check_inside("delta", delta)
    if network_samples > samples:
        raise argument_error("network_samples", f"at most samples={samples!r}", network_samples)
    layers = round(horizon / step)
    if layers < 1:
        raise argument_error("step", f"at most the horizon {horizon!r}", step)
    attention = SphereAttention(beta)

    def measured(gram: Float[Tensor, "B N N"]) -> Float[Tensor, "B 3"]:
        rows, columns = torch.triu_indices(tokens, tokens, 1, device=gram.device)
        cosines = gram[:, rows, columns]
        opposite = (cosines <= delta - 1.0).to(gram.dtype).mean(-1)
        return torch.stack([cosines.mean(-1), close_pairs(gram, delta), opposite], dim=-1)

    def panel(dimension: int) -> xr.Dataset:
        start = uniform_start(tokens, dimension, samples, seed)
        in_space = pad(start[:network_samples], (0, dimension - start.shape[-1]))

        def curves(sigma: float) -> xr.Dataset:
            chain = noisy_chain(
                attention, start, dimension, sigma, step, layers, seed=seed, keep=measured
            )
            network = sphere_network(
                attention, in_space, step, layers,
                sigma=sigma, seed=seed, save_every=-(-layers // 4), keep=measured,
            )  # fmt: skip
            values = network["kept"].values
            error = values.std(1, ddof=1) / network_samples**0.5
            return _bands("", chain["time"].values, chain["kept"].values).assign(
                network=(("mark", "measure"), values.mean(1)),
                network_error=(("mark", "measure"), error),
                mark_time=("mark", network["time"].values),
            )

        data = over_grid(curves, {"sigma": sigmas})
        flow = sphere_flow(attention, start, data["time"].values.tolist(), keep=measured)
        return data.assign(flow=(("time", "measure"), flow["kept"].values.mean(1)))

    data = over_grid(panel, {"dimension": dimensions}, progress=progress)
    mark_time = data["mark_time"].isel(dimension=0, sigma=0, drop=True)
    layer = Normalised(ShapedAttention(gamma, tau0), place="after")
    first = uniform_start(tokens, shaped_width, 1, seed)[0]
    depth = max(1, round(horizon * shaped_width / gamma**2))
    result = simulate_chain(
        layer, (first @ first.mT).numpy(), width=shaped_width, depth=depth, samples=shaped_samples,
        seed=seed, save_every=max(1, depth // _SHAPED_TIMES), progress=False,
    )  # fmt: skip
    kept = np.stack([measured(torch.from_numpy(v)).numpy() for v in result["V"].values])
    shaped = _bands("shaped_", gamma**2 * result["time"].values, kept)
    data = data.transpose("measure", "dimension", "sigma", "time", "mark")
    return data.assign(shaped).assign(mark_time=mark_time).assign_coords(measure=list(MEASURES))


def _bands(kind: str, times: NDArray[np.float64], values: NDArray[np.float64]) -> xr.Dataset:
    """Return the mean and quantiles (time, measure) over samples of values (time, sample, ...)."""
    bands = (values.mean(1), *np.quantile(values, _BAND, axis=1))
    dims = (f"{kind}time", "measure")
    named = {f"{kind}{x}": (dims, y) for x, y in zip(("mean", "low", "high"), bands, strict=True)}
    return xr.Dataset(named, {f"{kind}time": times})


@styled
def noise_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw mean cosine and close pairs over time: a column for each dimension and the shaped chain.

    Lines are means, shaded areas the 10-90 % bands over samples for the first and the last sigma,
    and points explicit networks with two standard errors. The thin black line is the flow without
    noise. The shaped chain also has its opposite pairs.
    """
    missing = {"mean", "network", "shaped_mean"} - set(data.data_vars)
    if missing:
        raise ValueError(f"data must be that of the figure noise; it has no {sorted(missing)}")
    dimensions = data["dimension"].values
    columns = len(dimensions) + 1
    tops = [rf"attracting, $d$ = {d}" for d in dimensions]
    tops.append(f"mean 0, $n$ = {data.attrs['shaped_width']}")
    names = [f"{measure}: {top}" for measure in MEASURES[:2] for top in tops]
    size = (1.0 + 3.7 * columns, 7.0)
    panels = Panels(ax, names, size, columns, sharex="col", sharey="row")
    axes = np.array(panels.axes, dtype=object).reshape(2, columns)
    for row, measure in enumerate(MEASURES[:2]):
        for column in range(len(dimensions)):
            curves = data.sel(measure=measure).isel(dimension=column)
            _noise_curves(axes[row, column], curves)
        _shaped_curve(axes[row, -1], data, measure, look(len(data["sigma"])))
    _shaped_curve(axes[1, -1], data, MEASURES[2], look(len(data["sigma"]) + 2))
    for axis, top in zip(axes[0], tops, strict=True):
        axis.set_title(top, fontsize="medium")
        axis.set_ylim(-0.35, 1.05)
    for axis in axes[1]:
        axis.set_ylim(-0.05, 1.05)
    for axis in panels.left:
        axis.set_ylabel(("mean cosine", "share of pairs")[panels.axes.index(axis) // columns])
    for axis in panels.lowest:
        shaped = panels.axes.index(axis) % columns == columns - 1
        axis.set_xlabel(r"time $\gamma^2 \ell / n$" if shaped else "time $t$")
    low, high = (f"{100 * level:g}" for level in _BAND)
    near = 1.0 - data.attrs["delta"]
    note = f"close: cosine ≥ {near:g}; opposite: cosine ≤ −{near:g}"
    bands = rf"bands: {low}–{high} % of samples, of the smallest and the largest $\sigma$"
    return panels.finish(title, note=f"{note}; {bands}", legend=True, columns=4)


def _noise_curves(axis: Axes, data: xr.Dataset) -> None:
    time, marks = data["time"].values, data["mark_time"].values
    for k, sigma in enumerate(data["sigma"].values):
        curve, line = data.isel(sigma=k), look(k)
        # Four overlapping bands are hard to distinguish: only the first and the last are drawn.
        if k in (0, data.sizes["sigma"] - 1):
            axis.fill_between(
                time, curve["low"], curve["high"], color=line["color"], alpha=0.15, linewidth=0.8
            )
        axis.plot(time, curve["mean"], label=rf"chain, $\sigma$ = {sigma:g}", **line)
        # Without noise the networks are deterministic.
        if sigma > 0.0:
            axis.errorbar(
                marks, curve["network"], 2.0 * curve["network_error"], color=line["color"],
                fmt="osD^"[k % 4], markersize=4.0, capsize=2.0,
                label=rf"networks, $\sigma$ = {sigma:g}, ± two errors",
            )  # fmt: skip
    axis.plot(time, data["flow"], color="black", linewidth=0.8, label="flow without noise")


def _shaped_curve(axis: Axes, data: xr.Dataset, measure: str, line: dict[str, Any]) -> None:
    time, curve = data["shaped_time"].values, data.sel(measure=measure)
    axis.fill_between(
        time, curve["shaped_low"], curve["shaped_high"], color=line["color"], alpha=0.15,
        linewidth=0.0,
    )  # fmt: skip
    axis.plot(time, curve["shaped_mean"], label=f"shaped chain: {measure}", **line)
