"""The picture of a coordinate check: sizes and changes by width, or by depth."""

from __future__ import annotations

import numpy as np
import xarray as xr

from shaped_attention.checks import argument_error
from shaped_attention.figures.panels import COLORS, Drawn, Panels, Target, look, styled


@styled
def coordinates(result: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw sizes and changes by width, or depth: a line for each step, with 5-95 % bands.

    Parameters
    ----------
    result
        Result of `coordinate_check`.
    title
        Title of the figure; with `ax`, of the first panel. None for model, initialisation and
        optimiser.
    ax
        Eight Axes to draw into and return: sizes of the four quantities, then changes. By default
        a new Figure is returned.

    Raises
    ------
    ValueError
        If `result` is not such a result, or `ax` does not have eight Axes.
    """
    if "change" not in getattr(result, "data_vars", ()):
        raise argument_error("result", "a result of coordinate_check", result)
    names, of = result["quantity"].to_numpy().tolist(), result.attrs["axis"]
    last, places = int(result["step"][-1]), result[of].to_numpy()
    kinds = [(measure, name) for measure in ("size", "change") for name in names]
    labels = [name if x == "size" else f"change of {name}" for x, name in kinds]
    panels = Panels(ax, labels, (12.0, 5.8), columns=len(names))
    for axis, (measure, name), label in zip(panels.axes, kinds, labels, strict=True):
        for step in range(measure == "change", last + 1):
            values = result[measure].sel(step=step, quantity=name).to_numpy()
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95], axis=1)
            axis.fill_between(places, low, high, color=COLORS[step], alpha=0.2, linewidth=0)
            axis.plot(places, middle, marker="o", label=f"step {step}", **look(step))
        step = 0 if measure == "size" else last
        fit = result["exponent"].sel(measure=measure, step=step, quantity=name)
        axis.set_title(f"step {step}: slope {float(fit):+.2f}", loc="right", fontsize="small")
        axis.set(xscale="log", yscale="log", xlabel=of, ylabel=label)
        axis.set_xticks(places, [f"{n:,}" for n in places.tolist()], minor=False)
        axis.minorticks_off()
        low, high = axis.get_ylim()
        if high < 10.0 * low:
            # So that noise does not look like a slope.
            axis.set_ylim((low * high / 10.0) ** 0.5, (10.0 * low * high) ** 0.5)
    about = f"{result.attrs['name']}, {result.attrs['initialisation']}, {result.attrs['rule']}"
    note = "root mean squares: median, and 5–95 % band; flat is right"
    return panels.finish(title or about, note=note, legend=True, columns=last + 1)
