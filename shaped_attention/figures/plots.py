"""Figures of results: how the law of V evolves, and its densities at one time.

Every function returns a matplotlib Figure without showing it, or draws into the Axes given as
`ax`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import xarray as xr
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from shaped_attention.architectures.layer_summary import model_summary
from shaped_attention.checks import argument_error, check_choice
from shaped_attention.figures.coordinates import coordinates
from shaped_attention.figures.labels import LAYER, SAMPLERS, TIME, observable_label, sampler_label
from shaped_attention.figures.panels import (
    COLORS,
    LINES,
    Drawn,
    Panels,
    Target,
    draw_density,
    look,
    styled,
)
from shaped_attention.numerics import observables as of_covariances
from shaped_attention.numerics.observables import STOPPING, support_of
from shaped_attention.numerics.result_axis import (
    axis_of,
    check_result,
    common_axis,
    place_text,
    saved_places,
)
from shaped_attention.statistics.density import (
    Bins,
    atom,
    density_window,
    named_tokens,
    observable_names,
    observable_values,
)

__all__ = [
    "COLORS", "LINES", "coordinates", "densities", "model_layers", "styled", "trajectories",
]  # fmt: skip

Results = xr.Dataset | Mapping[str, xr.Dataset] | Sequence[xr.Dataset]


@styled
def trajectories(
    results: Results,
    *,
    observables: str | Sequence[str] | None = None,
    pair: tuple[int, int] = (0, 1),
    labels: Sequence[str] | None = None,
    title: str | None = None,
    ax: Target = None,
) -> Drawn:
    """Draw medians and 5-95 % bands of observables against time, or against layers.

    Parameters
    ----------
    results
        A result with several stored times or positions, a list of results, or a dictionary of
        results, whose keys are their names in the legend.
    observables
        A name of `shaped_attention.observables`, for any tokens, or several names with one panel
        each. Default: log V[a,a], rho[a,b] and log det V.
    pair
        The tokens a, b of the default observables.
    labels
        Words of the tokens, for the axis labels.
    title
        Title of the figure; with `ax`, of the first panel.
    ax
        Axes to draw into and return, one per panel. By default a new Figure is returned.

    Raises
    ------
    ValueError
        If `results` and `labels` do not have the same number of tokens, `pair` is not a pair of
        tokens, a name is unknown, or `ax` does not have one Axes per panel.
    """
    named = _named(results)
    tokens = _tokens(named, labels)
    names = _chosen(observables, pair, observable_names(tokens), tokens)
    panels = Panels(ax, names, _size(names))
    axis = axis_of(next(iter(named.values())))
    for index, (label, result) in enumerate(named.items()):
        place, line = saved_places(result), look(index)
        every = [_quantiles(v, names) for v in result["V"].transpose(axis, *_DIMENSIONS).values]
        for panel, name in zip(panels.axes, names, strict=True):
            low, middle, high = np.array([quantiles[name] for quantiles in every]).T
            # Overlapping bands would be one grey block: only that of the last result is filled.
            if index == len(named) - 1:
                panel.fill_between(place, low, high, color=line["color"], alpha=0.15, linewidth=0)
            few = "o" if len(place) < 8 else None
            panel.plot(place, middle, marker=few, label=_entry(label, result), **line)
            for edge in (low, high):
                panel.plot(place, edge, linewidth=0.8, **line)
    of_layers = all(result.attrs.get("sampler") in SAMPLERS for result in named.values())
    below = LAYER if axis == "position" else TIME if of_layers else "time $t$"
    for panel, name in zip(panels.axes, names, strict=True):
        panel.set(xlabel=below, ylabel=observable_label(name, labels))
    return panels.finish(title, note="median, and 5–95 % band", legend=True)


@styled
def densities(
    results: Results,
    *,
    observables: str | Sequence[str] | None = None,
    pair: tuple[int, int] = (0, 1),
    time: float | None = None,
    position: int | None = None,
    bins: Bins | None = None,
    bandwidth: float | None = None,
    confidence: float = 0.95,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    ax: Target = None,
) -> Drawn:
    """Draw densities of observables at one time or layer, with pointwise bands.

    The estimates are those of `shaped_attention.density`: kernel estimates, corrected at the ends
    of a bounded support; with `bins`, histograms. A vertical line marks a result whose values
    are all equal. If more than 1 % of the samples share one value, such as the last time for paths
    that never stop, a vertical line marks it, the legend states their share, and the curve
    integrates to the share of the others.

    Paths that exploded would squeeze the rest into a corner, so an axis shows the central 99.8 % of
    the pooled samples and a quarter of that range on both sides.

    Parameters
    ----------
    results, pair, labels, title, ax
        As for `trajectories`; one stored time is enough.
    observables
        As for `trajectories`, and ``stopping time``.
    time
        A time stored in all results, to within 1e-9. Default: the last of each.
    position
        For results of models, a number of layers stored in all. Default: the last of each.
    bins, bandwidth, confidence
        As for `shaped_attention.density`; a number of bins divides the range of the axis.

    Raises
    ------
    ValueError
        As for `trajectories` and `shaped_attention.density`.
    """
    named = _named(results)
    tokens = _tokens(named, labels)
    stopping = [STOPPING] if all("stopping_time" in result for result in named.values()) else []
    names = _chosen(observables, pair, [*observable_names(tokens), *stopping], tokens)
    panels = Panels(ax, names, _size(names))
    of, at = axis_of(next(iter(named.values()))), {}
    for axis, name in zip(panels.axes, names, strict=True):
        drawn = {}
        for label, result in named.items():
            drawn[label], at[label] = observable_values(
                result, name, time, position, f"results[{label!r}]"
            )
        support = support_of(name, tokens, max(at.values()))
        pooled = np.concatenate(list(drawn.values()))
        window = None if atom(pooled) is not None else density_window(pooled, support)
        marked = False
        for index, (label, result) in enumerate(named.items()):
            when = "" if np.ptp([*at.values()]) < 1e-9 else f", {place_text(of, at[label])}"
            marked |= draw_density(
                axis, drawn[label], support=support, window=window, bins=bins,
                bandwidth=bandwidth, confidence=confidence, label=_entry(label, result, when),
                last=at[label] if name == STOPPING else None, **look(index),
            )  # fmt: skip
        axis.set(xlabel=observable_label(name, labels), ylabel="density")
        axis.xaxis.set_major_locator(MaxNLocator(5))
        if window is not None and (bins is None or np.ndim(bins) == 0):
            # The frame would hide a vertical line at the end of the window.
            margin = 0.02 * (window[1] - window[0]) if marked else 0.0
            axis.set_xlim(window[0] - margin, window[1] + margin)
        axis.set_ylim(bottom=0.0)
    times = {f"at {place_text(of, t)}; ".replace("t =", "$t$ =") for t in at.values()}
    when = times.pop() if len(times) == 1 else ""
    note = f"{when}bands: pointwise {100 * confidence:g} % intervals"
    return panels.finish(title, note=note, legend=True, columns=len(named))


_LAYER_LABELS = {
    "cosine": "mean cosine",
    "effective_rank": "effective rank",
    "size": "root mean square",
    "entropy": "entropy / largest",
}


@styled
def model_layers(
    results: xr.Dataset | Mapping[str, xr.Dataset],
    title: str | None = None,
    *,
    ax: Target = None,
) -> Drawn:
    """Draw cosines, effective rank, norms and entropy of attention by layer, with 5-95 % bands.

    Parameters
    ----------
    results
        Result of `simulate_model` or of `model_summary`, or a dictionary of several, whose keys are
        their names in the legend.
    title
        Title of the figure; with `ax`, of the first panel.
    ax
        Axes to draw into and return: three, or four if all results hold entropies. By default a new
        Figure is returned.

    Raises
    ------
    ValueError
        If `results` are not such results, or `ax` does not have one Axes per panel.
    """
    if not isinstance(results, Mapping) or isinstance(results, xr.Dataset):
        results = {str(getattr(results, "attrs", {}).get("model") or "model"): results}
    summaries = {
        name: result if "level" in getattr(result, "dims", ()) else model_summary(result)
        for name, result in results.items()
    }
    if not summaries:
        raise argument_error("results", "at least one result", results)
    names = [name for name in _LAYER_LABELS if all(name in s for s in summaries.values())]
    panels = Panels(ax, [_LAYER_LABELS[name] for name in names], (9.0, 6.6), columns=2)
    for k, (label, summary) in enumerate(summaries.items()):
        layers = summary["position"].to_numpy()
        for axis, name in zip(panels.axes, names, strict=True):
            low, middle, high = summary[name].sel(level=["5 %", "median", "95 %"]).to_numpy().T
            axis.fill_between(layers, low, high, color=look(k)["color"], alpha=0.2, linewidth=0)
            marker = "o" if len(layers) < 8 else None
            axis.plot(layers, middle, marker=marker, label=label, **look(k))
    for axis, name in zip(panels.axes, names, strict=True):
        axis.set(xlabel=LAYER, ylabel=_LAYER_LABELS[name])
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if name == "size":
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        if name == "entropy":
            axis.set_ylim(top=1.02)
    return panels.finish(title, note="median, and 5–95 % band", legend=len(summaries) > 1)


_DIMENSIONS = ("sample", "row", "col")


def _named(results: Results) -> dict[str, xr.Dataset]:
    """Return the results by name; unnamed results are named after their samplers."""
    if isinstance(results, xr.Dataset):
        return _named([results])
    if not isinstance(results, Mapping | list | tuple) or not results:
        wanted = "a result, a list of results or a dictionary of results by name"
        raise argument_error("results", wanted, results)
    named: dict[str, xr.Dataset] = {}
    if isinstance(results, Mapping):
        named = dict(cast(Mapping[str, xr.Dataset], results))
    else:
        for i, result in enumerate(results):
            check_result(result, f"results[{i}]")
            name = sampler_label(result.attrs.get("sampler", result.attrs.get("model", "result")))
            named[f"{name} {i}" if name in named else name] = result
    for label, result in named.items():
        check_result(result, f"results[{label!r}]")
    start, *others = named
    for other in others:
        common_axis(named[start], named[other], (f"results[{start!r}]", f"results[{other!r}]"))
    return named


def _tokens(results: Mapping[str, xr.Dataset], labels: Sequence[str] | None) -> int:
    sizes = {int(result.sizes["row"]) for result in results.values()}
    if len(sizes) > 1:
        raise ValueError(f"results must have equal numbers of tokens; got {sorted(sizes)}")
    if labels is not None and len(labels) != max(sizes):
        raise ValueError(f"labels must have {max(sizes)} words, one per token; got {len(labels)}")
    return sizes.pop()


def _chosen(
    requested: str | Sequence[str] | None, pair: tuple[int, int], known: list[str], tokens: int
) -> list[str]:
    if requested is not None:
        names = [requested] if isinstance(requested, str) else list(dict.fromkeys(requested))
        if not names:
            raise argument_error("observables", "at least one name", requested)
        for name in names:
            check_choice("observables", name, known)
        return names
    if tokens == 1:
        return ["log V[0,0]", "log det V"]
    if len(pair) != 2 or not all(0 <= int(i) < tokens for i in pair):
        raise argument_error("pair", f"two tokens in [0, {tokens - 1}]", pair)
    a, b = (int(i) for i in pair)
    rho = [] if a == b else [f"rho[{min(a, b)},{max(a, b)}]"]
    return [f"log V[{a},{a}]", *rho, "log det V"]


def _quantiles(v: NDArray[np.float64], names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    values = of_covariances.observables(v, named_tokens(names))
    return {name: np.quantile(values[name], [0.05, 0.5, 0.95]) for name in names}


def _entry(label: str, result: xr.Dataset, more: str = "") -> str:
    return f"{label} ({result.sizes['sample']:,} samples{more})"


def _size(names: Sequence[str]) -> tuple[float, float]:
    return 4.1 * max(len(names), 1) + (1.0 if len(names) == 1 else 0.0), 3.6
