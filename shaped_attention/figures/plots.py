"""Figures: how the law of V moves in time, and its densities at the end.

Every function returns a matplotlib Figure and shows nothing; `save_figure` writes it. The style is
set in one place, `styled`: seaborn, colour-blind safe, and a line style for each sampler, so that
a figure can be read in grey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from shaped_attention.io.storage import written
from shaped_attention.numerics.observables import check_result, observables

__all__ = ["densities", "save_figure", "trajectories"]

P = ParamSpec("P")

LINES = ("-", "--", ":", "-.")
_SUFFIXES = (".png", ".svg", ".pdf")
COLORS = sns.color_palette("colorblind")


def styled(function: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the package's style, and leave matplotlib's settings as they were."""

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with (
            mpl.rc_context({"svg.hashsalt": "shaped_attention", "figure.dpi": 120}),
            sns.axes_style("whitegrid", {"grid.linestyle": ":"}),
            sns.plotting_context("notebook", font_scale=0.95),
        ):
            return function(*args, **kwargs)

    return draw


def _shown(v: NDArray[np.float64], pair: tuple[int, int]) -> dict[str, NDArray[np.float64]]:
    """The three observables of the standard figures, with the axis labels that they get."""
    a, b = pair
    values = observables(v, tokens=sorted({a, b}))
    shown = {f"log V[{a},{a}]": values[f"log V[{a},{a}]"]}
    if a != b:
        shown[f"rho[{a},{b}]"] = values[f"rho[{min(a, b)},{max(a, b)}]"]
    return shown | {"log det V": values["log det V"]}


def _label(name: str, labels: Sequence[str] | None) -> str:
    """An axis label: the observable in mathematical type, and the tokens it is about."""
    if name == "log det V":
        return r"$\log\,\det V$"
    kind, inside = name.rstrip("]").split("[")
    indices = [int(i) for i in inside.split(",")]
    words = ""
    if labels is not None:
        named = [labels[i] for i in dict.fromkeys(indices)]
        words = "   (" + ", ".join(f"“{word}”" for word in named) + ")"
    subscript = ",".join(str(i) for i in indices)
    symbol = r"\rho" if kind == "rho" else r"\log V"
    return f"${symbol}_{{{subscript}}}${words}"


@styled
def trajectories(
    results: Mapping[str, xr.Dataset],
    *,
    pair: tuple[int, int] = (0, 1),
    labels: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Medians and 5-95 % bands against time of log V_aa, rho_ab and log det V.

    Parameters
    ----------
    results
        Results with several stored times, by the name that the legend gives them.
    pair
        The tokens a, b.
    labels
        Words of the tokens, for the axis labels.
    title
        Title of the figure.

    Raises
    ------
    ValueError
        If `results` or `labels` do not fit each other, or `pair` is not a pair of tokens.
    """
    tokens = _tokens(results, labels)
    pair = _checked_pair(pair, tokens)
    names = list(_shown(np.eye(tokens)[None], pair))
    figure, axes = _panels(len(names))
    for index, (label, result) in enumerate(results.items()):
        bands: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
        for v in result["V"].values:
            for name, values in _shown(v, pair).items():
                bands[name].append(np.quantile(values, [0.05, 0.5, 0.95]))
        for axis, name in zip(axes, names, strict=True):
            low, middle, high = np.array(bands[name]).T
            time, color = result["time"].values, COLORS[index % len(COLORS)]
            # Bands that lie over each other are one grey block: the last result's alone is filled.
            if index == len(results) - 1:
                axis.fill_between(time, low, high, color=color, alpha=0.15, linewidth=0)
            line = LINES[index % len(LINES)]
            few = "o" if len(time) < 8 else None
            axis.plot(time, middle, line, marker=few, color=color, label=_entry(label, result))
            for edge in (low, high):
                axis.plot(time, edge, line, color=color, linewidth=0.8)
    for axis, name in zip(axes, names, strict=True):
        axis.set(xlabel=r"time $t = \ell / n$", ylabel=_label(name, labels))
    return _finished(figure, axes, title, "median, and 5–95 % band")


@styled
def densities(
    results: Mapping[str, xr.Dataset],
    *,
    pair: tuple[int, int] = (0, 1),
    labels: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Densities of log V_aa, rho_ab and log det V at the last stored time.

    Kernel density estimates (Gaussian, Scott's rule); for the correlation, whose density need not
    vanish at -1 and 1, a histogram; a vertical line where all values are equal. Paths that exploded
    would squeeze the rest into a corner, so an axis shows the central 99.8 % of the pooled samples
    and a quarter of that range on both sides; densities are of the samples inside. Parameters and
    errors are those of `trajectories`.
    """
    tokens = _tokens(results, labels)
    pair = _checked_pair(pair, tokens)
    names = list(_shown(np.eye(tokens)[None], pair))
    figure, axes = _panels(len(names))
    shown = {label: _shown(result["V"].values[-1], pair) for label, result in results.items()}
    for axis, name in zip(axes, names, strict=True):
        pooled = np.concatenate([values[name] for values in shown.values()])
        low, high = np.quantile(pooled, [0.001, 0.999])
        margin = 0.25 * (high - low)
        window = (-1.0, 1.0) if name.startswith("rho") else (low - margin, high + margin)
        for index, (label, result) in enumerate(results.items()):
            values = shown[label][name]
            style: dict[str, Any] = {
                "color": COLORS[index % len(COLORS)],
                "linestyle": LINES[index % len(LINES)],
                "label": _entry(label, result),
            }
            inside = values[(values >= window[0]) & (values <= window[1])]
            if np.ptp(inside) <= 1e-9 * np.abs(inside).max():
                axis.axvline(inside[0], **style)
            elif name.startswith("rho"):
                bins = np.linspace(-1.0, 1.0, 21)
                axis.stairs(np.histogram(inside, bins, density=True)[0], bins, **style)
            else:
                sns.kdeplot(inside, ax=axis, clip=window, **style)
        axis.set(xlabel=_label(name, labels), ylabel="density", xlim=window)
        if name.startswith("rho"):
            axis.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])
        axis.set_ylim(bottom=0.0)
    end = float(next(iter(results.values()))["time"].values[-1])
    return _finished(figure, axes, title, f"at t = {end:.4g}")


def save_figure(
    figure: Figure, path: str | Path, formats: Iterable[str] | None = None
) -> list[Path]:
    """Write a figure to `path` with each of the suffixes, whole or not at all.

    The suffixes are `formats`; else that of `path` if it is .png, .svg or .pdf; else .png and .svg.

    Raises
    ------
    ValueError
        If the folder cannot be written.
    """
    target = Path(path)
    if formats is None:
        formats = (target.suffix[1:],) if target.suffix in _SUFFIXES else ("png", "svg")
    if target.suffix in _SUFFIXES:
        target = target.with_suffix("")
    targets = [target.with_name(f"{target.name}.{suffix}") for suffix in formats]
    for target in targets:
        metadata = {"Date": None} if target.suffix == ".svg" else None
        with written(target) as draft, mpl.rc_context({"svg.hashsalt": "shaped_attention"}):
            figure.savefig(draft, dpi=160, bbox_inches="tight", metadata=metadata)
    return targets


def _tokens(results: Mapping[str, xr.Dataset], labels: Sequence[str] | None) -> int:
    if not isinstance(results, Mapping) or not results:
        raise ValueError(
            f"results={results!r:.60}: a non-empty dictionary of results by name is needed"
        )
    for label, result in results.items():
        check_result(result, f"results[{label!r}]")
    sizes = {int(result.sizes["row"]) for result in results.values()}
    if len(sizes) > 1:
        raise ValueError(f"results have {sorted(sizes)} tokens; equally many are needed")
    if labels is not None and len(labels) != max(sizes):
        raise ValueError(
            f"labels has {len(labels)} words for {max(sizes)} tokens; one each is needed"
        )
    return sizes.pop()


def _entry(label: str, result: xr.Dataset) -> str:
    return f"{label} ({result.sizes['sample']:,} samples)"


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    # A bare Figure, not pyplot: nothing is kept open and no display is needed.
    figure = Figure(figsize=(4.1 * count, 3.6), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def _finished(figure: Figure, axes: Sequence[Axes], title: str | None, note: str) -> Figure:
    handles, entries = axes[0].get_legend_handles_labels()
    figure.legend(handles, entries, loc="outside lower center", ncols=len(entries), frameon=False)
    figure.suptitle(f"{title}\n{note}" if title else note)
    return figure


def _checked_pair(pair: tuple[int, int], tokens: int) -> tuple[int, int]:
    """The pair, if both are tokens; (0, 0) if there is only one token."""
    if tokens == 1:
        return 0, 0
    if len(pair) != 2 or not all(0 <= int(i) < tokens for i in pair):
        raise ValueError(f"pair={pair!r}: two token numbers from 0 to {tokens - 1} are needed")
    return int(pair[0]), int(pair[1])
