"""What each ingredient of a transformer does to the cosines of its tokens, by depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.ticker import MaxNLocator

from shaped_attention.blocks import Normalised, ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import Layer
from shaped_attention.figures.labels import LAYER
from shaped_attention.figures.panels import OF_SAMPLES, Drawn, Panels, Target, look, styled
from shaped_attention.figures.paper.original import RHO_0, mean_off_diagonal, quantiles
from shaped_attention.numerics.covariance import correlations, equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain

GAMMA = 8**-0.5
_HEADS: dict[str, Any] = {"heads": 4, "output_projection": True}
_POINTS = 20


def models(kind: str) -> dict[str, Layer]:
    """Return layers of one kind, plain or shaped: pre-norm with GELU, and one change at a time."""
    options, scale = dict(_HEADS), dict[str, Any]()
    if kind == "plain":
        options |= {"identity": False, "centring": False, "scaled_temperature": False}
        first, name, other = "softmax", "SwiGLU", ShapedMLP(GAMMA, activation="silu", gated=True)
    else:
        scale = {"scale": 1.0}
        first, name, other = "shaped", "tanh", ShapedMLP(GAMMA, activation="tanh", **scale)
    gelu = ShapedMLP(GAMMA, activation="gelu", **scale)

    def layer(place: str, mlp: ShapedMLP = gelu, **more: Any) -> Layer:
        attention = ShapedAttention(GAMMA, **options, **more)
        return [Normalised(attention, place), Normalised(mlp, place)]

    return {
        f"pre-norm, {first}, GELU": layer("before"),
        "causal": layer("before", mask="causal"),
        "causal, RoPE": layer("before", mask="causal", rope=10_000.0),
        "causal, QK-norm": layer("before", mask="causal", qk_norm=True),
        name: layer("before", other),
        "post-norm": layer("after"),
        "sandwich norm": layer("sandwich"),
    }


@recorded()
def figure_ingredients(
    tokens: int = 8,
    width: int = 128,
    depth: int = 128,
    samples: int = 256,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Mean cosine of two tokens against the layer, for plain and for shaped transformers.

    gamma = 1/sqrt 8, tau_0 = 1, four heads with an output projection, rho_0 = 0.2. Returns
    `correlation` (kind, model, layer, level): mean over the pairs of tokens; quantiles over
    samples. `name` (kind, model) has the names of the models.
    """
    v0 = equicorrelated(tokens, RHO_0)
    kinds = {kind: models(kind) for kind in ("plain", "shaped")}
    every = max(1, depth // _POINTS)
    cells = [(kind, name) for kind, layers in kinds.items() for name in layers]
    curves = []
    for kind, name in progress_bar("models", progress, cells):
        result = simulate_chain(
            kinds[kind][name], v0, width=width, depth=depth, samples=samples,
            seed=derived_seed(seed, {"study": "ingredients", "kind": kind, "model": name}),
            save_every=every, progress=False,
        )  # fmt: skip
        curves.append(quantiles(mean_off_diagonal(correlations(result["V"].values))))
    shape = (len(kinds), -1, *curves[0].shape)
    return xr.Dataset(
        {
            "correlation": (
                ("kind", "model", "layer", "level"),
                np.reshape(curves, shape),
                {"long_name": r"$\rho_{a,b}$, mean over pairs $a \neq b$"},
            ),
        },
        coords={
            "name": (("kind", "model"), np.reshape([name for _, name in cells], shape[:2])),
            "kind": list(kinds),
            "layer": result["time"].values * width,
            "level": ["5 %", "median", "95 %", "mean"],
        },
    )


@styled
def ingredient_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw the mean cosine of plain and of shaped models, with 5-95 % bands, one panel per model.

    The thin line is the plain model of the first panel.
    """
    kinds, layers = data["kind"].values.tolist(), data["layer"].values
    names = [_name(*of_kinds) for of_kinds in data["name"].values.T.tolist()]
    size = (12.5, 0.9 + 2.7 * -(-len(names) // 4))
    panels = Panels(ax, names, size, 4, titles=True, sharex=True, sharey=True)
    first = data["correlation"].sel(kind=kinds[0], level="mean").isel(model=0).values
    for model, axis in enumerate(panels.axes):
        if model:
            axis.plot(layers, first, color="0.5", linewidth=0.8)
        for k, kind in enumerate(kinds):
            low, _, high, mean = data["correlation"].sel(kind=kind).isel(model=model).values.T
            axis.fill_between(layers, low, high, color=look(k)["color"], alpha=0.2, linewidth=0)
            axis.plot(layers, mean, **look(k))
            if not model:
                x = len(layers) * 2 // 3
                axis.text(layers[x], mean[x] - 0.04, kind, va="top", color=look(k)["color"])
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panels.axes[0].set_ylim(top=1.04)
    panels.label(LAYER, data["correlation"].attrs["long_name"])
    return panels.finish(title, note=f"lines: means; {OF_SAMPLES}; thin: plain of panel (a)")


def _name(*of_kinds: str) -> str:
    """Return the ingredients that models of all kinds have, or if there are none, those of each."""
    first, *others = (name.split(", ") for name in of_kinds)
    common = [word for word in first if all(word in other for other in others)]
    return ", ".join(common) or " / ".join(of_kinds)
