"""Unshaped transformers collapse their tokens, with or without Pre-LN; shaped ones do not.

Figure 1, left, of Noci et al. (arXiv 2306.17759): the correlation of two tokens against the layer,
by the exact chain; lines are means over samples, bands hold 5 to 95 % of them.
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, WIDTH, DEPTH, SAMPLES = (2, 20, 10, 40) if SMALL else (4, 200, 150, 2**12)
GAMMA = 1 / math.sqrt(8)

# At this width the slope 1 + c_minus / sqrt n of an unshaped ReLU is 0.
PLAIN = [
    sa.ShapedAttention(GAMMA, identity=False, centring=False, scaled_temperature=False),
    sa.ShapedMLP(GAMMA, 0.0, -math.sqrt(WIDTH)),
]
LAYERS = {
    "shaped": [sa.ShapedAttention(GAMMA), sa.ShapedMLP(GAMMA)],
    "unshaped": PLAIN,
    "unshaped, Pre-LN": [sa.Normalised(block) for block in PLAIN],
}

fig, ax = plt.subplots(figsize=(5.5, 4.0), layout="constrained")
pairs = ~np.eye(TOKENS, dtype=bool)
for k, (name, layer) in enumerate(LAYERS.items()):
    # Unshaped networks grow without bound, which does not matter here.
    run = sa.simulate_chain(
        layer, sa.equicorrelated(TOKENS, 0.2), width=WIDTH, depth=DEPTH, samples=SAMPLES, seed=k,
        save_every=5, radius=1e12,
    )  # fmt: skip
    rho = sa.correlations(run["V"].values)[..., pairs].mean(-1)
    layers, color = run["time"] * WIDTH, sa.plots.COLORS[k]
    ax.fill_between(layers, *np.quantile(rho, [0.05, 0.95], axis=1), color=color, alpha=0.15, lw=0)
    ax.plot(layers, rho.mean(1), sa.plots.LINES[k], color=color, label=name)
ax.set(xlabel=r"layer $\ell$", ylabel=r"$\rho_{a,b}$, mean over pairs $a \neq b$")
ax.set_title(rf"$n={WIDTH}$, $\gamma=1/\sqrt{{8}}$, $\tau_0=1$, $m={TOKENS}$", fontsize="medium")
ax.grid(linestyle=":")
ax.legend()
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "paper_1_left.png", dpi=150)
