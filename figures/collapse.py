"""Tokens of untrained transformers align layer by layer; with shaped attention they do not.

Bands hold 5 to 95 % of the law that is predicted from the configuration; each point is one of eight
models with random weights, made by the transformers library.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from transformers import AutoConfig, AutoModel

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, SAMPLES, MODELS = (8, 20, 2) if SMALL else (64, 200, 8)
LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 32, "num_attention_heads": 16,
    "num_key_value_heads": 16, "intermediate_size": 2752, "vocab_size": 32000,
}  # fmt: skip
SHORT = {"num_hidden_layers": 3, "hidden_size": 128}
GREEN, BLUE = sa.plots.COLORS[3], sa.plots.COLORS[0]
NAMES = {
    "GPT-2": sa.model_from_config("gpt2", **({"n_layer": 2} if SMALL else {})),
    "Llama": sa.model_from_config(LLAMA | (SHORT if SMALL else {})),
}


def cosines(result):
    """Return 5 %, median and 95 % (3, layers) of the mean cosine of two tokens."""
    return sa.model_summary(result)["cosine"].transpose("level", "position").values


fig, axes = plt.subplots(1, 2, figsize=(9.8, 4.1), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, NAMES.items(), strict=True):
    law = cosines(sa.simulate_model(model, TOKENS, samples=SAMPLES, seed=1, entropy=False))
    heads = model.config.get("num_attention_heads", model.config.get("n_head"))
    block = sa.ShapedAttention(8**-0.5, heads=heads, mask="causal", output_projection=True)
    shaped = sa.simulate_chain(
        [block, sa.ShapedMLP(8**-0.5)], np.eye(TOKENS), width=model.width, depth=model.depth,
        samples=20, save_every=1, seed=2,
    )["V"].values  # fmt: skip
    pairs = sa.correlations(shaped)[..., *np.triu_indices(TOKENS, 1)].mean(-1)
    bands = ((law, GREEN, "-"), (np.quantile(pairs, [0.05, 0.5, 0.95], axis=1), BLUE, "--"))
    for (low, middle, high), color, line in bands:
        ax.fill_between(range(model.depth + 1), low, high, color=color, alpha=0.3, linewidth=0)
        ax.plot(middle, line, color=color, linewidth=1.2)
    real = []
    for seed in range(MODELS):
        torch.manual_seed(seed)
        made = AutoModel.from_config(AutoConfig.for_model(**model.config)).eval()
        real.append(cosines(sa.record_covariances(made, torch.arange(TOKENS)[None]))[1])
    ax.plot(np.transpose(real), "o", color="black", markersize=2.6)
    inside = sum(law[0, -1] <= one[-1] <= law[2, -1] for one in real)
    title = f"{name}: {model.depth} layers of width {model.width:,}"
    note = f"{inside} of {MODELS} models are in the band after the last layer"
    ax.set_title(f"{title}\n{note}", fontsize="medium")
    ax.set(xlabel="layer", ylim=(-0.05, 1.0))
    ax.grid(linestyle=":")
axes[0].set_ylabel("mean cosine of two tokens")
for x, y, text, color in (
    (0.04, 0.75, "predicted from the configuration", GREEN),
    (0.50, 0.30, f"points: {MODELS} models made\nby transformers", "black"),
    (0.20, 0.08, "predicted with shaped attention", BLUE),
):
    axes[0].text(x, y, text, color=color, transform=axes[0].transAxes)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "collapse.png", dpi=150)
