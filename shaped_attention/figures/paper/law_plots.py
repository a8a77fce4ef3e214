"""Drawings of the laws of rho_01 and V_01 at the last layer: chain, SDE and their difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from shaped_attention.figures.labels import observable_label, parameter_label
from shaped_attention.figures.panels import (
    OF_DENSITIES,
    Drawn,
    Panels,
    Target,
    draw_density,
    look,
    styled,
)
from shaped_attention.statistics.density import UNBOUNDED, Floats, Interval

_CORRELATIONS: Interval = (-1.0, 1.0)
_RHO, _V = observable_label("rho[0,1]"), "$V_{0,1}$"
_GAMMA = parameter_label("gamma")


@styled
def density_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw densities of rho_01 (above) and V_01 of chain and SDE: a column for each model."""
    models = data["model"].values
    names = [f"{symbol}: {model}" for symbol in (_RHO, _V) for model in models]
    size = (1.0 + 3.2 * len(models), 6.2)
    panels = Panels(ax, names, size, len(models), sharex="row", sharey="row")
    first, second = panels.axes[: len(models)], panels.axes[len(models) :]
    draw_laws(first, data, "rho", models)
    draw_laws(second, data, "covariance", models)
    for axis in (first[0], second[0]):
        axis.set_ylabel("density")
    return panels.finish(title, note=OF_DENSITIES, legend=True)


@styled
def density_and_percentile(
    data: xr.Dataset, title: str | None = None, *, ax: Target = None
) -> Drawn:
    """Draw densities of rho_01 for each gamma, and the 95th percentile of |rho_01| by gamma."""
    names = [rf"{_GAMMA} = {model}" for model in data["model"].values]
    panels = Panels(ax, [*names, "percentile"], (11.0, 1.2 + 2.5 * (len(names) // 3 + 1)), 3)
    *laws, last = panels.axes
    draw_laws(laws, data, "rho", names)
    for k, sampler in enumerate(data["sampler"].values):
        percentile = np.quantile(np.abs(data["rho"].sel(sampler=sampler)), 0.95, axis=-1)
        last.plot(
            data["gamma"], percentile, marker="os"[k], fillstyle=("full", "none")[k], **look(k)
        )
    last.set(xlabel=_GAMMA, ylabel=r"95 % quantile of $|\rho_{0,1}|$")
    for axis in laws:
        axis.set_ylabel("density" if axis in panels.left else "")
    return panels.finish(title, note=OF_DENSITIES, legend=True)


@styled
def key_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the SDE's densities of rho_01 and V_01, and how far chains of each key size are off.

    The limit is the same for every key size, so that the SDE's samples are one. Below are the
    differences of distribution functions with pointwise 95 % intervals.
    """
    names = [f"{what}: {symbol}" for what in ("density", "difference") for symbol in (_RHO, _V)]
    panels = Panels(ax, names, (10.0, 6.4), 2, sharex="col")
    for column, (name, symbol) in enumerate((("rho", _RHO), ("covariance", _V))):
        above, below = panels.axes[column::2]
        kept = data[name].where(~data["stopped"])
        limit = _finite(kept.sel(sampler="SDE"))
        window = _CORRELATIONS if name == "rho" else _window(limit)
        support = _CORRELATIONS if name == "rho" else UNBOUNDED
        draw_density(
            above, limit, support=support, window=window, color="0.2", label="SDE, every $n_k$"
        )
        above.set_ylim(bottom=0.0)
        at = np.linspace(*window, 201)
        for k, model in enumerate(data["model"].values):
            chain = _finite(kept.sel(model=model, sampler="chain"))
            first, second = (
                np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (chain, limit)
            )
            error = first * (1 - first) / len(chain) + second * (1 - second) / len(limit)
            off, half = first - second, 1.96 * np.sqrt(error)
            below.fill_between(
                at, off - half, off + half, color=look(k)["color"], alpha=0.2, linewidth=0
            )
            below.plot(at, off, label=f"chain, {model}", **look(k))
        below.axhline(0.0, color="0.2", linewidth=1.0)
        below.set_xlim(window)
        for axis in {above, below} & {*panels.lowest}:
            axis.set_xlabel(symbol)
    for axis, label in zip(panels.axes[::2], ("density", "P(chain ≤ x) − P(SDE ≤ x)"), strict=True):
        axis.set_ylabel(label)
    return panels.finish(title, note=OF_DENSITIES, legend=True)


def draw_laws(axes: Sequence[Axes], data: xr.Dataset, name: str, titles: Iterable[object]) -> None:
    """Draw the density of `name` of chain and SDE for each model, in axes of their own.

    Paths that have reached the radius before are not part of a law at T: their share is written.
    """
    kept = data[name].where(~data["stopped"])
    support = window = _CORRELATIONS
    if name == "covariance":
        window, support = _window(_finite(kept)), UNBOUNDED
    for axis, model, title in zip(axes, data["model"].values, titles, strict=True):
        shares = []
        for k, sampler in enumerate(data["sampler"].values):
            values = _finite(kept.sel(model=model, sampler=sampler))
            draw_density(
                axis, values, support=support, window=window, label=str(sampler), **look(k)
            )
            gone = 100.0 * float(data["stopped"].sel(model=model, sampler=sampler).mean())
            shares += [f"{sampler}: {gone:.2g} %"] if gone >= 0.05 else []
        if shares and name == "rho":
            text = "\n".join(["explode before:", *shares])
            axis.text(0.03, 0.95, text, transform=axis.transAxes, va="top", fontsize="x-small")
        axis.set_title(str(title), fontsize="medium")
        axis.set(xlabel=_RHO if name == "rho" else _V, xlim=window)
        if name == "rho":
            axis.xaxis.set_major_locator(MultipleLocator(0.5))
        axis.set_ylim(bottom=0.0)


def _finite(values: xr.DataArray) -> Floats:
    """Return the values that are not left out, in one dimension."""
    flat: Floats = values.values.ravel()
    return flat[np.isfinite(flat)]


def _window(values: Floats) -> Interval:
    """Return where V_01 is drawn; quantiles further out are carried by paths near explosion."""
    quarter, half, more = np.quantile(values, [0.25, 0.5, 0.75])
    return half - 4.0 * (half - quarter), half + 6.0 * (more - half)
