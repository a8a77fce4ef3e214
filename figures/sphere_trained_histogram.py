"""The first layers of a trained model bring tokens together, but not into one cluster.

Cosines between the 70 tokens of a text after the embedding and each layer of all-MiniLM-L6-v2, from
the states that the package ships; dashed: independent uniform tokens in the same dimension.
"""

import os
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import beta

from shaped_attention import plots

BINS = 20 if os.environ.get("SMALL") else 80
DATA = files("shaped_attention") / "data" / "minilm_hidden_states.npz"

with DATA.open("rb") as file, np.load(file, allow_pickle=False) as stored:
    states = stored["hidden_states"].astype(float)
unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
layers, tokens, dimension = unit.shape
cosines = (unit @ unit.swapaxes(-1, -2))[:, *np.triu_indices(tokens, 1)]
grid, shape = np.linspace(-0.4, 1.0, 400), (dimension - 1) / 2.0
uniform = beta.pdf((1.0 + grid) / 2.0, shape, shape) / 2.0

fig, axes = plt.subplots(2, 4, figsize=(11.0, 5.2), sharey=True, layout="constrained")
for layer, ax in enumerate(axes.flat[:layers]):
    here = cosines[layer]
    ax.hist(
        here,
        BINS,
        range=(-0.4, 1.0),
        density=True,
        color=plots.COLORS[0],
        alpha=0.6,
        label="tokens",
    )
    ax.axvline(here.mean(), color=plots.COLORS[1], linewidth=1.5, label="mean")
    ax.plot(grid, uniform, "--", color="black", linewidth=0.9, label="independent and uniform")
    text = f"mean {here.mean():.2f}\n{100 * (here >= 0.9).mean():.1f} % above 0.9"
    ax.text(0.97, 0.95, text, transform=ax.transAxes, ha="right", va="top", fontsize=9)
    ax.set(title=f"layer {layer}" if layer else "embedding", xlim=(-0.4, 1.0))
for ax in axes[:, 0]:
    ax.set_ylabel("density")
for ax in axes.flat[layers:]:
    ax.axis("off")
    ax.legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
fig.supxlabel("cosine of two tokens")
fig.suptitle(f"Cosines of {tokens} tokens, $d$ = {dimension}, by layer of all-MiniLM-L6-v2")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sphere_trained_histogram.png", dpi=150)
