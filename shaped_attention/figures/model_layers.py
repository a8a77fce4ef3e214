"""What depth does to the tokens of models: medians and bands by layer."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr
from matplotlib.ticker import MaxNLocator

from shaped_attention.architectures.table import model_summary
from shaped_attention.checks import argument_error
from shaped_attention.figures.labels import LAYER
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled

_LABELS = {
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
        Result of `simulate_model` or of `model_summary`, or several by their names in the legend.
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
    names = [name for name in _LABELS if all(name in s for s in summaries.values())]
    panels = Panels(ax, [_LABELS[name] for name in names], (9.0, 6.6), columns=2)
    for k, (label, summary) in enumerate(summaries.items()):
        color, line = COLORS[k % len(COLORS)], LINES[k % len(LINES)]
        layers = summary["position"].to_numpy()
        for axis, name in zip(panels.axes, names, strict=True):
            low, middle, high = summary[name].sel(level=["5 %", "median", "95 %"]).to_numpy().T
            axis.fill_between(layers, low, high, color=color, alpha=0.2, linewidth=0)
            marker = "o" if len(layers) < 8 else None
            axis.plot(layers, middle, line, color=color, marker=marker, label=label)
    for axis, name in zip(panels.axes, names, strict=True):
        axis.set(xlabel=LAYER, ylabel=_LABELS[name])
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if name == "size":
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        if name == "entropy":
            axis.set_ylim(top=1.02)
    return panels.finish(title, note="median, and 5–95 % band", legend=len(summaries) > 1)
