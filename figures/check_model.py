"""One module against its law: how far out its numbers are, layer by layer.

A Llama as the library makes it, and the same one with the last matrix of the MLP of layer 5 four
times as large: p-values of each number of this draw in its law, corrected for their number. The
error shows in its own gradients and in the tokens of all layers behind it; the suspect is its cause
alone.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTH, DEPTH, SAMPLES = (32, 6, 8) if SMALL else (256, 12, 99)
IDS, WRONG = [5, 9, 5, 17, 23, 9, 31, 40], 4

config = LlamaConfig(
    hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=4, vocab_size=1000,
    intermediate_size=2 * WIDTH, initializer_range=0.06,
)  # fmt: skip
torch.manual_seed(0)
module = LlamaForCausalLM._from_config(config, attn_implementation="eager")
results = {"as the library makes it": sa.check_model(module, IDS, samples=SAMPLES, seed=1)}
with torch.no_grad():
    module.model.layers[WRONG].mlp.down_proj.weight *= 4.0
results["one matrix four times as large"] = sa.check_model(module, IDS, samples=SAMPLES, seed=1)

fig, axes = plt.subplots(1, 2, figsize=(12.0, 4.8), layout="constrained", sharey=True)
for ax, (name, found) in zip(axes, results.items(), strict=True):
    rows = {}
    for effect in found.effects:
        if effect.layer is not None:
            short = effect.name.replace("gradient norm of model.layers.*.", "gradient: ")
            rows.setdefault(short.removesuffix(".weight"), {})[effect.layer] = effect.p_value
    table = np.full((len(rows), DEPTH + 1), np.nan)
    for k, row in enumerate(rows.values()):
        table[k, list(row)] = list(row.values())
    image = ax.imshow(-np.log10(table), cmap="OrRd", vmin=0.0, vmax=6.0, aspect="auto")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_xticks(range(0, DEPTH + 1, 2))
    suspects = [str(x.where) for x in found.suspects]
    ax.set_title(f"{name}\n{'suspect: ' + ', '.join(suspects) if suspects else 'ok'}")
    ax.set_xlabel("layer (0: embedding)")
    ax.spines[:].set_visible(False)
fig.colorbar(image, ax=axes, label=r"$-\log_{10}$ of the corrected p-value", shrink=0.9)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "check_model.png", dpi=150)
