"""Gradients of shaped layers are alike at every depth; those of pre-norm are largest early on.

Norms of the gradients of W_V by layer at initialisation, exactly in law: medians and 5 to 95 % of
the networks. The larger L / n, the more networks differ.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, WIDTH, SAMPLES = (2, 16, 10) if SMALL else (4, 64, 100)
RATIOS = [0.25, 0.5] if SMALL else [0.125, 0.5, 1.0]

plain = sa.ShapedAttention(
    1.0, skip=1.0, output_projection=True, identity=False, centring=False, scaled_temperature=False
)
relu = sa.ShapedMLP(1.0, skip=1.0, activation="relu")
KINDS = {
    "shaped": [sa.ShapedAttention(0.5, output_projection=True), sa.ShapedMLP(0.5)],
    "pre-norm": [sa.Normalised(block, norm="layer") for block in (plain, relu)],
    "post-norm": [sa.Normalised(block, "after", norm="layer") for block in (plain, relu)],
}

fig, axes = plt.subplots(1, 3, figsize=(11.5, 3.9), layout="constrained", sharex=True, sharey=True)
for ax, (kind, layer) in zip(axes, KINDS.items(), strict=True):
    # The widest band first, so that each is seen.
    for k in reversed(range(len(RATIOS))):
        depth = round(RATIOS[k] * WIDTH)
        run = sa.gradient_norms(
            layer, sa.equicorrelated(TOKENS, 0.2), width=WIDTH, depth=depth, samples=SAMPLES,
            loss="quadratic", seed=k,
        )  # fmt: skip
        names = [f"{number}.0.2" for number in range(depth)]
        norms = run["gradient_norm"].sel(parameter=names).values
        low, median, high = np.quantile(norms, [0.05, 0.5, 0.95], axis=1)
        depths, color = (np.arange(depth) + 0.5) / depth, sa.plots.COLORS[k]
        ax.fill_between(depths, low, high, color=color, alpha=0.25, linewidth=0)
        ax.plot(depths, median, sa.plots.LINES[k], color=color, label=f"$L/n$ = {RATIOS[k]:g}")
    ax.set(title=kind, xlabel=r"depth of the layer, $\ell / L$", yscale="log", xlim=(0.0, 1.0))
    ax.grid(linestyle=":")
axes[0].set_ylabel(r"$|\nabla_{W_V}|$")
axes[0].legend()
fig.suptitle(f"$n={WIDTH}$, $m={TOKENS}$", fontsize="medium")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "gradients.png", dpi=150)
