"""Models made by `transformers` next to their law, and the last cosine of a Llama by width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from shaped_attention.architectures.layer_summary import LAYER_NUMBERS, LEVELS, model_summary
from shaped_attention.architectures.model import Model
from shaped_attention.architectures.reading import model_from_config
from shaped_attention.architectures.simulate import simulate_model
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled
from shaped_attention.figures.paper.models import shaped
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded

DEPTH = 32
"""Layers of `llama`, as in Llama 2 and 3 with about 7 billion parameters."""


def llama(width: int, initializer_range: float = 0.02) -> dict[str, Any]:
    """Return the configuration of a Llama with 32 layers and heads of size 64.

    Its MLP is 43/16 times as wide as its tokens, as that of the Llama with width 4,096.
    """
    heads = max(1, width // 64)
    return {
        "model_type": "llama", "hidden_size": width, "num_hidden_layers": DEPTH,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": 32000,
        "intermediate_size": 43 * width // 16, "initializer_range": initializer_range,
    }  # fmt: skip


def _model(name: str) -> Model:
    """Return a shipped configuration, or `llama` with the width in a name like llama-1024."""
    family, _, width = name.partition("-")
    return model_from_config(llama(int(width)) if family == "llama" and width.isdigit() else name)


@recorded()
def figure_collapse(
    models: Sequence[str] = ("gpt2", "llama-1024"),
    tokens: int = 64,
    samples: int = 200,
    networks: int = 8,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Mean cosine of two tokens by layer: the law, models made by `transformers`, shaped attention.

    Returns `law` and `shaped` (model, position, level), quantiles over samples of the exact law of
    a configuration and of its shaped twin (`figures.paper.models.shaped`), and `real` (model,
    position, network), from models with random weights made by `AutoModel.from_config`; NaN beyond
    the last layer of a model. `models` are shipped configurations, or llama-WIDTH.
    """
    known = {name: _model(name) for name in models}
    longest = 1 + max(model.depth for model in known.values())
    bands = np.full((2, len(known), longest, len(LEVELS)), np.nan)
    real = np.full((len(known), longest, networks), np.nan)
    steps = iter(progress_bar("collapse", progress, range(len(known) * (networks + 2))))
    for j, (name, model) in enumerate(known.items()):
        for k, kind in enumerate((model, shaped(model))):
            next(steps)
            key = {"study": "collapse", "model": name, "shaped": bool(k)}
            result = simulate_model(
                kind, tokens, samples=samples, keep=LAYER_NUMBERS, entropy=False, progress=False,
                seed=derived_seed(seed, key),
            )  # fmt: skip
            bands[k, j, : model.depth + 1] = model_summary(result)["cosine"]
        key = {"study": "collapse", "model": name, "networks": True}
        for k, cosines in enumerate(_real(model, tokens, networks, derived_seed(seed, key))):
            next(steps)
            real[j, : model.depth + 1, k] = cosines
    for _ in steps:  # The bar is full only at its end.
        pass
    return xr.Dataset(
        {
            "law": (("model", "position", "level"), bands[0]),
            "shaped": (("model", "position", "level"), bands[1]),
            "real": (("model", "position", "network"), real),
        },
        coords={
            "model": list(known),
            "level": list(LEVELS),
            "position": ("position", np.arange(longest), {"long_name": "number of layers"}),
            "depth": ("model", [model.depth for model in known.values()]),
            "width": ("model", [model.width for model in known.values()]),
        },
    )


def _real(model: Model, tokens: int, networks: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield the mean cosine by position of models of the library, with different weights."""
    import torch
    from transformers import AutoConfig, AutoModel

    from shaped_attention.torch_models.covariances import record_covariances

    config = AutoConfig.for_model(**(model.config or {}))
    for k in range(networks):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, {"network": k}))
            made = AutoModel.from_config(config).eval()
        result = record_covariances(made, torch.arange(tokens)[None])
        yield model_summary(result)["cosine"].sel(level="median").to_numpy()


_REAL: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 2.6, "linestyle": "none"}


@styled
def collapse_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw a panel for each model: bands from 5 to 95 % of the laws, and the models as points."""
    names = [str(name) for name in data["model"].to_numpy()]
    panels = Panels(ax, names, (4.9 * len(names), 4.1), sharey=True)
    for axis, name in zip(panels.axes, names, strict=True):
        one = data.sel(model=name)
        depth = int(one["depth"])
        one = one.isel(position=slice(depth + 1))
        x = one["position"].to_numpy()
        for kind, color, line in (("law", COLORS[3], "-"), ("shaped", COLORS[0], "--")):
            low, middle, high = one[kind].sel(level=list(LEVELS)).transpose("level", "position")
            axis.fill_between(x, low, high, color=color, alpha=0.3, linewidth=0)
            axis.plot(x, middle, color=color, linestyle=line, linewidth=1.2)
        axis.plot(x, one["real"].transpose("position", "network"), **_REAL)
        axis.set_title(f"{_TITLES.get(name, name)}: {depth} layers of width {int(one['width']):,}",
                       fontsize="medium")  # fmt: skip
        axis.set(xlim=(-0.02 * depth, 1.02 * depth), ylim=(-0.05, 1.0))
        axis.spines[["top", "right"]].set_visible(False)
    _direct_labels(panels.axes[0], data.isel(model=0))
    panels.label("layer", "mean cosine of two tokens")
    return panels.finish(title)


_TITLES = {"gpt2": "GPT-2", "bert-large": "BERT-large", "llama-1024": "Llama"}


def _direct_labels(axis: Axes, one: xr.Dataset) -> None:
    """Name the two bands and the points at their curves."""
    depth, count = int(one["depth"]), one.sizes["network"]
    at = 0.42 * depth
    median = one["law"].sel(level="median").to_numpy()[: depth + 1]
    here = float(np.interp(at, np.arange(depth + 1), median))
    axis.annotate(
        "predicted from the configuration", (at, here), (0.03 * depth, min(0.86, here + 0.3)),
        color=COLORS[3], arrowprops={"arrowstyle": "-", "color": COLORS[3]},
    )  # fmt: skip
    last = float(one["real"].isel(position=depth).min())
    axis.annotate(
        f"{count} models made\nby transformers", (depth, last), (0.66 * depth, last - 0.3),
        arrowprops={"arrowstyle": "-", "color": "black"},
    )  # fmt: skip
    axis.text(0.25 * depth, 0.035, "predicted with shaped attention", color=COLORS[0])


@recorded()
def figure_widths(
    widths: Sequence[int] = (256, 512, 1024, 2048, 4096),
    ranges: Sequence[float] = (0.01, 0.02, 0.04),
    tokens: int = 32,
    samples: int = 10,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Mean cosine after the 32 layers of a Llama, by width and by initializer_range.

    Returns `cosine` and `effective_rank` (initializer_range, width, level) after the last layer of
    `llama`.
    """
    cells = [(std, width) for std in ranges for width in widths]
    shown = ("cosine", "effective_rank")
    values = np.empty((len(shown), len(cells), len(LEVELS)))
    for k, (std, width) in enumerate(progress_bar("widths", progress, cells)):
        result = simulate_model(
            llama(width, std), tokens, samples=samples, keep=LAYER_NUMBERS, entropy=False,
            progress=False,
            seed=derived_seed(seed, {"study": "widths", "width": width, "std": std}),
        )  # fmt: skip
        summary = model_summary(result).isel(position=-1)
        values[:, k] = [summary[name].sel(level=list(LEVELS)) for name in shown]
    shape = (len(ranges), len(widths), len(LEVELS))
    return xr.Dataset(
        {
            name: (("initializer_range", "width", "level"), part.reshape(shape))
            for name, part in zip(shown, values, strict=True)
        },
        coords={
            "initializer_range": list(ranges), "width": list(widths), "level": list(LEVELS),
        },
    )  # fmt: skip


@styled
def width_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the cosine against the width, and against initializer_range times its root."""
    panels = Panels(ax, ["by width", "by the product"], (9.8, 4.1), sharey=True)
    for j, std in enumerate(data["initializer_range"].to_numpy()):
        widths = data["width"].to_numpy()
        low, middle, high = (
            data["cosine"].sel(initializer_range=std, level=name).to_numpy() for name in LEVELS
        )
        look: dict[str, Any] = {
            "color": COLORS[j % len(COLORS)], "marker": "osD^v"[j % 5],
            "linestyle": LINES[j % len(LINES)], "capsize": 2, "markersize": 4.5,
            "label": f"initializer_range {std:g}",
        }  # fmt: skip
        bars = [middle - low, high - middle]
        panels.axes[0].errorbar(widths, middle, bars, **look)
        panels.axes[1].errorbar(std * np.sqrt(widths), middle, bars, **look)
    for axis, label in zip(panels.axes, _WIDTH_LABELS, strict=True):
        axis.set(xscale="log", xlabel=label, ylim=(-0.05, 1.0))
        axis.spines[["top", "right"]].set_visible(False)
    ticks = data["width"].to_numpy()
    panels.axes[0].set_xticks(ticks, [f"{x:,}" for x in ticks])
    product = np.outer(data["initializer_range"], np.sqrt(ticks))
    marks = [x for x in _MARKS if product.min() <= x * (1 + 1e-9) and x <= product.max() * 1.001]
    panels.axes[1].set_xticks(marks, [f"{x:g}" for x in marks])
    for axis in panels.axes:
        axis.minorticks_off()
    panels.axes[0].set_ylabel(f"mean cosine after {DEPTH} layers")
    return panels.finish(title, legend=True)


_WIDTH_LABELS = ("width", r"initializer_range $\times\ \sqrt{\mathrm{width}}$")
_MARKS = [2.0**e for e in range(-6, 6)]
