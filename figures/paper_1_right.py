"""The SDE has nearly the law of the last layer, of attention alone and of the whole transformer.

Figure 1, right, and figure 7 of Noci et al. (arXiv 2306.17759): samples of rho_01 and of V_01 in
the last layer of the exact chain, and at time L / n of its SDE.
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, WIDTH, DEPTH, SAMPLES = (2, 20, 10, 200) if SMALL else (4, 200, 150, 2**15)
GAMMA = 1 / math.sqrt(8)
LAYERS = {
    "attention": sa.ShapedAttention(GAMMA),
    "attention and MLP": [sa.ShapedAttention(GAMMA), sa.ShapedMLP(GAMMA)],
}

fig, axes = plt.subplots(2, 2, figsize=(7.5, 6.0), layout="constrained", sharex="row", sharey="row")
v0 = sa.equicorrelated(TOKENS, 0.2)
for k, (name, layer) in enumerate(LAYERS.items()):
    runs = {
        "chain": sa.simulate_chain(
            layer, v0, width=WIDTH, depth=DEPTH, samples=SAMPLES, seed=k, radius=1e8
        ),
        "SDE": sa.integrate_sde(
            layer, v0, horizon=DEPTH / WIDTH, step=0.01, samples=SAMPLES, seed=10 + k, radius=1e8
        ),
    }
    for j, (sampler, run) in enumerate(runs.items()):
        # The law of a path that explodes is not that of V at L / n.
        v = run["V"].values[-1][np.isinf(run["stopping_time"])]
        look = {"color": sa.plots.COLORS[j], "linestyle": "-:"[j], "linewidth": 1.8}
        for ax, values, ends in (
            (axes[0, k], sa.correlations(v)[:, 0, 1], (-1.0, 1.0)),
            (axes[1, k], v[:, 0, 1], (-1.0, 1.6)),
        ):
            density, edges = np.histogram(values, bins=64, range=ends)
            density = density / (len(values) * np.diff(edges))
            ax.stairs(density, edges, fill=j == 0, alpha=0.35 if j == 0 else 1.0, **look)
            ax.plot([], [], label=sampler, **look)
    axes[0, k].set(title=name, xlabel=r"$\rho_{0,1}$")
    axes[1, k].set(xlabel=r"$V_{0,1}$")
for ax in axes.flat:
    ax.grid(linestyle=":")
axes[0, 0].legend()
fig.supylabel("density", fontsize="medium")
fig.suptitle(
    rf"$n={WIDTH}$, $L={DEPTH}$, $\gamma=1/\sqrt{{8}}$, $\tau_0=1$, $m={TOKENS}$", fontsize="medium"
)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "paper_1_right.png", dpi=150)
