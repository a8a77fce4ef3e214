"""Public models at their real depth and width, and the same sizes with shaped attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from shaped_attention.architectures.model import Model
from shaped_attention.architectures.reading import model_from_config
from shaped_attention.architectures.shipped import shipped_configurations
from shaped_attention.architectures.simulate import simulate_model
from shaped_attention.architectures.table import (
    LAYER_NUMBERS,
    LEVELS,
    attention_of,
    model_summary,
)
from shaped_attention.blocks import ShapedAttention, ShapedMLP
from shaped_attention.figures.panels import COLORS, Drawn, Panels, Target, styled
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded

GAMMA = 2**-0.5
"""Weight of the shaped branches: as large as that of the skip connection."""

KINDS = ("as configured", "shaped")

_DRAWN = {"cosine": "mean cosine of two tokens", "effective_rank": "effective rank of {} tokens"}


@recorded()
def figure_models(
    models: Sequence[str] | None = None,
    tokens: int = 64,
    samples: int = 16,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Public models at initialisation: cosine and effective rank of 64 tokens by layer.

    Returns `cosine` and `effective_rank` (kind, model, position, level), NaN beyond the last layer
    of a model, for the shipped configurations, and for the same depths, widths, heads and masks
    with shaped attention and shaped MLPs, gamma = 1/sqrt 2, from the same tokens at mean square 1.

    Parameters
    ----------
    models
        Names of shipped configurations.  [default: all]
    """
    names = list(shipped_configurations() if models is None else models)
    known = {name: model_from_config(name) for name in names}
    cells = [(kind, name) for kind in KINDS for name in names]
    longest = 1 + max(model.depth for model in known.values())
    values = np.full((2, len(cells), longest, len(LEVELS)), np.nan)
    for k, (kind, name) in enumerate(progress_bar("models", progress, cells)):
        model = known[name] if kind == KINDS[0] else shaped(known[name])
        summary = model_summary(
            simulate_model(
                model, tokens, samples=samples, keep=LAYER_NUMBERS, entropy=False,
                accept_approximation=True, progress=False,
                seed=derived_seed(seed, {"study": "models", "kind": kind, "model": name}),
            )
        )  # fmt: skip
        for j, variable in enumerate(_DRAWN):
            values[j, k, : model.depth + 1] = summary[variable].to_numpy()
    shape = (len(KINDS), len(names), longest, len(LEVELS))
    return xr.Dataset(
        {
            name: (("kind", "model", "position", "level"), part.reshape(shape))
            for name, part in zip(_DRAWN, values, strict=True)
        },
        coords={
            "kind": list(KINDS),
            "model": names,
            "level": list(LEVELS),
            "depth": ("model", [model.depth for model in known.values()]),
            "width": ("model", [model.width for model in known.values()]),
        },
    )


def shaped(model: Model) -> Model:
    """Return shaped attention and a shaped MLP of the depth, width, heads and mask of a model."""
    (attention, *_) = attention_of(model.layers()[0][0])
    blocks = (
        ShapedAttention(
            GAMMA, heads=attention.heads, head_size=attention.head_size, mask=attention.mask,
            output_projection=True,
        ),
        ShapedMLP(GAMMA),
    )  # fmt: skip
    start = model.embedding
    start = replace(start, scale=start.scale / math.sqrt(start.variance), norm=None)
    return Model("shaped", model.width, model.depth, blocks, start, name=f"{model}, shaped")
