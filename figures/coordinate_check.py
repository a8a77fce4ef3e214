"""Under muP a step changes models of every width equally; by default larger ones change more.

Changes after three steps of a small Llama at widths to 2,048: with the library's initialisation
(standard deviation 0.02) and one learning rate, and with muP. Medians and range of the models.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTHS = [64, 128, 192] if SMALL else [256, 512, 1024, 2048]
SAMPLES, STEPS = (2, 1) if SMALL else (4, 3)
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1,
    "intermediate_size": 256, "vocab_size": 2000, "tie_word_embeddings": False,
}  # fmt: skip
RULES = {
    "SGD": (sa.SGD(0.002), sa.SGD(0.1)), "Muon": (sa.Muon(0.002), sa.Muon(0.02)),
    "AdamW": (sa.AdamW(0.001), sa.AdamW(0.003)),
}  # fmt: skip
INITS = {"default": "library", "muP": "mup"}

fig, axes = plt.subplots(3, 4, figsize=(12.5, 9.0), layout="constrained", sharex=True)
for row, (name, rules) in zip(axes, RULES.items(), strict=True):
    for k, ((kind, init), rule) in enumerate(zip(INITS.items(), rules, strict=True)):
        check = sa.coordinate_check(
            LLAMA, 8, widths=WIDTHS, init=init, optimizer=rule, steps=STEPS, samples=SAMPLES,
            memory="6 GiB",
        )  # fmt: skip
        changes = check.isel(step=-1).sel(measure="change")
        for ax, quantity in zip(row, check["quantity"].values, strict=True):
            of = changes.sel(quantity=quantity)
            low, middle, high = np.quantile(of["change"], [0.0, 0.5, 1.0], axis=1)
            look = {"color": sa.plots.COLORS[k], "linestyle": sa.plots.LINES[k]}
            label = f"{kind}: $n^{{{float(of['exponent']):.2f}}}$"
            ax.fill_between(WIDTHS, low, high, alpha=0.25, linewidth=0, color=look["color"])
            ax.plot(WIDTHS, middle, marker="o", label=label, **look)
            ax.set(xscale="log", yscale="log", title=f"{name}: {quantity}")
            ax.set_xticks(WIDTHS, [f"{n:,}" for n in WIDTHS])
            ax.minorticks_off()
            ax.grid(linestyle=":")
for ax in axes.flat:
    low, high = ax.get_ylim()
    ax.set_ylim(low / 2.0, 4.0 * high)
    ax.legend(fontsize="small", loc="upper left")
fig.supxlabel("width", fontsize="medium")
fig.supylabel(f"root mean square change after {STEPS} steps", fontsize="medium")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "coordinate_check.png", dpi=150)
