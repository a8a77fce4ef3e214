"""Gradient norms by layer at initialisation, exactly in law, by the ratio of depth to width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.blocks import Normalised, ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import Layer
from shaped_attention.checks import check_positive, check_values
from shaped_attention.figures.panels import OF_SAMPLES, Drawn, Panels, Target, look, styled
from shaped_attention.figures.paper.original import RHO_0, quantiles
from shaped_attention.lazy.gradient_norms import gradient_norms
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded

GAMMA = 0.5
_PLAIN: dict[str, Any] = {"identity": False, "centring": False, "scaled_temperature": False}


def kinds() -> dict[str, Layer]:
    """Return the layers that are compared, each an attention block and an MLP."""
    attention = ShapedAttention(1.0, skip=1.0, output_projection=True, **_PLAIN)
    mlp = ShapedMLP(1.0, skip=1.0, activation="relu")
    return {
        "shaped": [ShapedAttention(GAMMA, output_projection=True), ShapedMLP(GAMMA)],
        "pre-norm": [Normalised(attention, norm="layer"), Normalised(mlp, norm="layer")],
        "post-norm": [
            Normalised(attention, "after", norm="layer"), Normalised(mlp, "after", norm="layer"),
        ],
    }  # fmt: skip


@recorded()
def figure_gradients(
    ratios: Sequence[float] = (0.125, 0.5, 1.0),
    tokens: int = 4,
    width: int = 64,
    samples: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Norms of the gradients of W_V by layer, shaped, with pre-norm and with post-norm.

    The loss is |f|^2 / 2 with f = X_L v / sqrt n, v Gaussian. gamma = 1/2 and tau_0 = 1 for shaped
    layers; the others have skip and branch weights 1 and ReLU. Returns `gradient_norm` (ratio,
    kind, place, level): quantiles and mean over samples, at relative depths `place` in (0, 1).

    Parameters
    ----------
    ratios
        Ratios L / n of depth to width.
    tokens, width, samples, seed, progress
        Number of tokens, width n, samples, seed, and whether to show progress.

    Raises
    ------
    ValueError
        If a ratio is not positive.
    """
    check_values("ratios", ratios)
    for ratio in ratios:
        check_positive("ratios", ratio)
    v0, cells = equicorrelated(tokens, RHO_0), [(r, kind) for r in ratios for kind in kinds()]
    # The same places for all depths, those of the smallest.
    depths = [max(1, round(ratio * width)) for ratio in ratios]
    places = (np.arange(min(depths)) + 0.5) / min(depths)
    curves = []
    for ratio, kind in progress_bar("networks", progress, cells):
        depth = max(1, round(ratio * width))
        norms = gradient_norms(
            kinds()[kind], v0, width=width, depth=depth, samples=samples, loss="quadratic",
            seed=derived_seed(seed, {"study": "gradients", "kind": kind, "ratio": ratio}),
            progress=False,
        ).gradient_norm  # fmt: skip
        layers = [int(place * depth) for place in places]
        curves.append(quantiles(norms.sel(parameter=[f"{k}.0.2" for k in layers]).values))
    shape = (len(ratios), len(kinds()), len(places), -1)
    return xr.Dataset(
        {"gradient_norm": (("ratio", "kind", "place", "level"), np.reshape(curves, shape))},
        coords={
            "ratio": list(ratios),
            "kind": list(kinds()),
            "place": places,
            "level": ["5 %", "median", "95 %", "mean"],
        },
    )


@styled
def gradient_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw medians of gradient norms and 5-95 % bands by relative depth: a panel for each kind."""
    kinds_of_layers = data["kind"].values.tolist()
    size = (0.9 + 3.6 * len(kinds_of_layers), 3.8)
    panels = Panels(ax, kinds_of_layers, size, titles=True, sharex=True, sharey=True)
    place = data["place"].values
    for axis, kind in zip(panels.axes, kinds_of_layers, strict=True):
        # The widest band first, so that each is seen.
        for k, ratio in reversed(list(enumerate(data["ratio"].values))):
            low, median, high, _ = data["gradient_norm"].sel(ratio=ratio, kind=kind).values.T
            axis.fill_between(place, low, high, color=look(k)["color"], alpha=0.25, linewidth=0)
            axis.plot(place, median, label=f"$L/n$ = {ratio:g}", **look(k))
        axis.set(yscale="log", xlim=(0.0, 1.0))
    panels.label(r"depth of the layer, $\ell / L$", r"$|\nabla_{W_V}|$")
    return panels.finish(title, legend=True, columns=4, note=f"lines: medians; {OF_SAMPLES}")
