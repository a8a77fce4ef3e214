"""Figure of the time of a sample against the width, from measurements that were made before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import xarray as xr

from shaped_attention.checks import argument_error
from shaped_attention.figures.labels import parameter_label
from shaped_attention.figures.panels import Drawn, Panels, Target, look, styled
from shaped_attention.results.provenance import recorded

SHIPPED = "shipped"
_MEASUREMENTS = Path(__file__).parents[2] / "data" / "speed_by_width.json"
_KEYS = ("layer", "sampler", "width")
_NAMES = {"network": "network, real weights", "chain": "exact chain", "sde": "SDE"}


@recorded()
def figure_speed(measurements: str = SHIPPED) -> xr.Dataset:
    """Processor time of a layer, and of a sample up to t = 1, by network, chain and SDE.

    Parameters
    ----------
    measurements
        File that `python -m benchmarks.widths --json FILE` wrote, or "shipped" for those that come
        with the package.

    Returns
    -------
    xarray.Dataset with `layer_time` and `sample_time` (layer, sampler, width), in seconds: a sample
    of network and chain has as many layers as columns, that of the SDE 1 / step steps.

    Raises
    ------
    ValueError
        If the file does not hold such measurements.
    FileNotFoundError
        If there is no such file.
    """
    path = _MEASUREMENTS if measurements == SHIPPED else Path(measurements)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = content["times"]
        table = {tuple(row[key] for key in _KEYS): float(row["seconds"]) for row in rows}
        machine, step, tokens = content["machine"], content["step"], content["tokens"]
    except (KeyError, TypeError, ValueError) as error:
        raise argument_error(
            "measurements", "a file from benchmarks.widths", measurements
        ) from error
    widths = np.array(sorted({width for _, _, width in table if width is not None}))
    layers = list(dict.fromkeys(layer for layer, _, _ in table))
    times = np.array(
        [
            [[table[x, name, n if name != "sde" else None] for n in widths.tolist()]
             for name in _NAMES]
            for x in layers
        ]
    )  # fmt: skip
    counts = np.array([widths, widths, np.full(len(widths), round(1.0 / step))])
    dims = ("layer", "sampler", "width")
    return xr.Dataset(
        {"layer_time": (dims, times), "sample_time": (dims, times * counts)},
        coords={"layer": layers, "sampler": list(_NAMES), "width": widths},
        attrs={"machine": machine["processor"], "step": step, "tokens": tokens},
    )


@styled
def speed_curves(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw both times against the width: attention solid, with an MLP dotted."""
    names = {"layer_time": "one layer", "sample_time": "a sample up to $t=1$"}
    panels = Panels(ax, list(names.values()), (11.0, 4.8), titles=True)
    for axis, variable in zip(panels.axes, names, strict=True):
        for k, sampler in enumerate(data["sampler"].values):
            if variable == "layer_time" and sampler == "sde":
                continue  # it has no layers
            for layer, style in zip(data["layer"].values, ("-", ":"), strict=False):
                axis.plot(
                    data["width"], data[variable].sel(sampler=sampler, layer=layer), style,
                    color=look(k)["color"], marker="os^"[k], markersize=4.5,
                    label=f"{_NAMES[sampler]}: {layer}",
                )  # fmt: skip
        axis.set(xscale="log", yscale="log", ylabel="processor time of one sample [s]")
        axis.set_xlabel(parameter_label("width"))
        axis.set_xticks(data["width"].values, [str(n) for n in data["width"].values])
        axis.minorticks_off()
    note = f"{data.attrs['tokens']} tokens, one thread of an {data.attrs['machine']}; "
    return panels.finish(
        title, note=f"{note}SDE: {1 / data.attrs['step']:.0f} steps", legend=True, columns=3
    )
