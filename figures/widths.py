"""A Llama collapses where initializer_range times the root of its width is below 1.

The mean cosine of two tokens after 32 layers against the width, and against this product, where the
curves coincide; points are medians of six samples of the law, bars their range.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
DEPTH, TOKENS, SAMPLES = (3, 4, 4) if SMALL else (32, 32, 6)
WIDTHS = [64, 128] if SMALL else [256, 512, 1024, 2048, 4096]
RANGES = [0.01, 0.02, 0.04]


def llama(width, initializer_range):
    """Return a configuration with heads of size 64, and the MLP of a Llama of width 4,096."""
    heads = width // 64
    return {
        "model_type": "llama", "hidden_size": width, "num_hidden_layers": DEPTH,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": 32000,
        "intermediate_size": 43 * width // 16, "initializer_range": initializer_range,
    }  # fmt: skip


fig, axes = plt.subplots(1, 2, figsize=(9.8, 4.1), layout="constrained", sharey=True)
for k, spread in enumerate(RANGES):
    ends = []
    for width in WIDTHS:
        law = sa.simulate_model(
            llama(width, spread), TOKENS, samples=SAMPLES, seed=width, entropy=False
        )
        v = law["V"].isel(position=-1).values
        size = np.sqrt(v.diagonal(axis1=1, axis2=2))
        cosines = v / (size[:, :, None] * size[:, None, :])
        ends.append(cosines[:, *np.tril_indices(TOKENS, -1)].mean(-1))
    low, middle, high = np.quantile(ends, [0.0, 0.5, 1.0], axis=1)
    look = {
        "color": sa.plots.COLORS[k], "marker": "osD"[k], "linestyle": sa.plots.LINES[k],
        "capsize": 2, "markersize": 4.5, "label": f"initializer_range {spread:g}",
    }  # fmt: skip
    for ax, at in zip(axes, (WIDTHS, spread * np.sqrt(WIDTHS)), strict=True):
        ax.errorbar(at, middle, [middle - low, high - middle], **look)
axes[0].set(xscale="log", xlabel="width", ylabel=f"mean cosine after {DEPTH} layers")
axes[0].set_xticks(WIDTHS, [f"{width:,}" for width in WIDTHS])
axes[1].set(xscale="log", xlabel=r"initializer_range $\times\ \sqrt{\mathrm{width}}$")
axes[1].set_xticks([0.25, 0.5, 1.0, 2.0], ["0.25", "0.5", "1", "2"])
axes[0].legend()
for ax in axes:
    ax.minorticks_off()
    ax.set_ylim(-0.05, 1.0)
    ax.grid(linestyle=":")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "widths.png", dpi=150)
