"""Shipped configurations at their real depth and width, and their twins with shaped attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from shaped_attention.architectures.configurations import shipped_configurations
from shaped_attention.architectures.layer_summary import (
    LAYER_NUMBERS,
    LEVELS,
    model_summary,
)
from shaped_attention.architectures.layer_types import shortest
from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.architectures.reading import model_from_config
from shaped_attention.architectures.simulate import simulate_model
from shaped_attention.blocks import ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import Block, Pattern
from shaped_attention.figures.panels import COLORS, LINES, Drawn, Panels, Target, styled
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded

GAMMA = 8**-0.5
"""Weight of the shaped branches, as in the figure of shaped transformers of the paper."""

_DRAWN = {"cosine": "mean cosine of two tokens", "effective_rank": "effective rank of {} tokens"}


@recorded()
def figure_models(
    models: Sequence[str] | None = None,
    tokens: int = 64,
    samples: int = 16,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Cosine and effective rank of 64 tokens by layer, at the library's default initialisation.

    Returns `cosine` and `effective_rank` (model, position, level) for the shipped configurations,
    NaN beyond the last layer of a model. The tokens of a BERT share the row of their type, so that
    they start at a cosine of 1/3.
    """
    names = list(shipped_configurations() if models is None else models)
    known = {name: model_from_config(name) for name in names}
    longest = 1 + max(model.depth for model in known.values())
    values = np.full((len(_DRAWN), len(names), longest, len(LEVELS)), np.nan)
    for k, (name, model) in enumerate(progress_bar("models", progress, list(known.items()))):
        summary = model_summary(
            simulate_model(
                model, tokens, samples=samples, keep=LAYER_NUMBERS, entropy=False,
                accept_approximation=True, progress=False,
                seed=derived_seed(seed, {"study": "models", "model": name}),
            )
        )  # fmt: skip
        for j, variable in enumerate(_DRAWN):
            values[j, k, : model.depth + 1] = summary[variable].to_numpy()
    return xr.Dataset(
        {
            name: (("model", "position", "level"), part)
            for name, part in zip(_DRAWN, values, strict=True)
        },
        coords={
            "model": names,
            "level": list(LEVELS),
            "position": ("position", np.arange(longest), {"long_name": "number of layers"}),
            "depth": ("model", [model.depth for model in known.values()]),
            "width": ("model", [model.width for model in known.values()]),
        },
    )


def shaped(model: Model) -> Model:
    """Return shaped attention and a shaped MLP of the depth and width of a model.

    Each layer keeps the heads, the groups of shared keys and values, the head size and the mask of
    its attention. Positions, norms, parallel branches, and the sizes and activations of the MLP are
    not kept.
    """
    start = model.embedding
    start = replace(start, scale=start.scale / math.sqrt(start.variance), norm=None)
    layers = Pattern(shortest([_shaped_layer(blocks[0]) for blocks in model.layers()]))
    return Model("shaped", model.width, model.depth, layers, start, name=f"{model}, shaped")


def _shaped_layer(block: Block) -> tuple[ShapedAttention, ShapedMLP]:
    (attention, *_) = attention_of(block)
    seeing = ShapedAttention(
        GAMMA, heads=attention.heads, kv_heads=attention.sizes.kv_heads,
        head_size=attention.sizes.head_size, mask=attention.mask, output_projection=True,
    )  # fmt: skip
    return seeing, ShapedMLP(GAMMA)


@styled
def model_curves(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw medians and 5-95 % bands by relative depth, with names at the ends."""
    panels = Panels(ax, list(_DRAWN), (12.0, 5.2))
    tokens = int(data.attrs["tokens"])
    for axis, (name, label) in zip(panels.axes, _DRAWN.items(), strict=True):
        ends = []
        for j, model in enumerate(data["model"].to_numpy()):
            color = _TEN[j % len(_TEN)]
            last = _curve(axis, data[name].sel(model=model), color, LINES[j % len(LINES)])
            ends.append((last, str(model), color))
        top = 1.0 if name == "cosine" else float(tokens)
        axis.set(
            xlabel=r"relative depth $\ell / L$", ylabel=label.format(tokens),
            xlim=(0.0, 1.0), ylim=(-0.02 * top, 1.02 * top),
        )  # fmt: skip
        axis.spines[["top", "right"]].set_visible(False)
        _label(axis, ends, 1.04 * top)
    return panels.finish(title)


_TEN = [*COLORS[:7], to_rgb("#332288"), to_rgb("#999933"), COLORS[9]]
"""Colours of models: the package's, without grey, which is that of shaped ones, and yellow."""

_GAP = 0.055
"""Distance of two names, as a share of the height of the axis."""


def _curve(axis: Axes, values: xr.DataArray, color: Any, line: str) -> float:
    """Draw a median and its band over relative depth, and return the last median."""
    low, middle, high = values.dropna("position").sel(level=list(LEVELS)).transpose("level", ...)
    along = np.linspace(0.0, 1.0, len(middle))
    axis.fill_between(along, low, high, color=color, alpha=0.18, linewidth=0)
    axis.plot(along, middle, color=color, linewidth=1.8, linestyle=line)
    return float(middle[-1])


def _label(axis: Axes, ends: list[tuple[float, str, Any]], height: float) -> None:
    """Write names at the right end of lines, moved apart where they would overlap."""
    ends = sorted(ends, key=lambda end: end[0])
    places = _apart([value for value, _, _ in ends], _GAP * height, axis.get_ylim())
    for (value, name, color), place in zip(ends, places, strict=True):
        dark = tuple(0.78 * part for part in color)
        axis.plot([1.0, 1.03], [value, place], color=color, linewidth=0.8, clip_on=False)
        axis.text(1.04, place, name, color=dark, va="center", fontsize="small")


def _apart(values: list[float], gap: float, limits: tuple[float, float]) -> NDArray[np.float64]:
    """Return increasing values at least a gap apart, moved as little as a few passes find."""
    places = np.array(values)
    for _ in range(200):
        for i in range(len(places) - 1):
            missing = gap - (places[i + 1] - places[i])
            if missing > 0.0:
                places[i] -= missing / 2
                places[i + 1] += missing / 2
        places += max(0.0, limits[0] - places[0])
        places -= max(0.0, places[-1] - limits[1])
    return places
