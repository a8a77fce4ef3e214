"""A larger gamma spreads the correlation of two tokens, with a shaped ReLU and no attention.

Figure 2 of Noci et al. (arXiv 2306.17759): rho_01 after L layers of an MLP, in the exact chain and
its SDE, and the 95 % quantile of |rho_01| against gamma.
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTH, DEPTH, SAMPLES = (20, 10, 200) if SMALL else (300, 100, 2**15)
GAMMAS = [1 / math.sqrt(DEPTH), 0.25, 0.5, 0.75, 1.0]
BINS = np.linspace(-1.0, 1.0, 65)

fig, axes = plt.subplots(2, 3, figsize=(10.0, 5.6), layout="constrained")
*panels, last = axes.flat
v0, horizon = sa.equicorrelated(2, 0.2), DEPTH / WIDTH
ends = {"chain": [], "SDE": []}
for k, (gamma, ax) in enumerate(zip(GAMMAS, panels, strict=True)):
    layer = sa.ShapedMLP(gamma, c_plus=0.0, c_minus=-1.0)
    runs = {
        "chain": sa.simulate_chain(layer, v0, width=WIDTH, depth=DEPTH, samples=SAMPLES, seed=k),
        "SDE": sa.integrate_sde(
            layer, v0, horizon=horizon, step=horizon / 50, samples=SAMPLES, seed=10 + k
        ),
    }
    for j, (sampler, run) in enumerate(runs.items()):
        rho = sa.correlations(run["V"].values[-1])[:, 0, 1]
        density, _ = np.histogram(rho, BINS, density=True)
        look = {"color": sa.plots.COLORS[j], "linestyle": "-:"[j], "linewidth": 1.8}
        ax.stairs(density, BINS, fill=j == 0, alpha=0.35 if j == 0 else 1.0, **look)
        ends[sampler].append(np.quantile(np.abs(rho), 0.95))
    ax.set(title=rf"$\gamma$ = {gamma:.3g}", xlabel=r"$\rho_{0,1}$", ylabel="density")
for j, (sampler, values) in enumerate(ends.items()):
    look = {"color": sa.plots.COLORS[j], "linestyle": "-:"[j], "marker": "os"[j]}
    last.plot(GAMMAS, values, fillstyle=("full", "none")[j], label=sampler, **look)
last.set(title="spread", xlabel=r"$\gamma$", ylabel=r"95 % quantile of $|\rho_{0,1}|$")
last.legend()
for ax in axes.flat:
    ax.grid(linestyle=":")
fig.suptitle(rf"$n={WIDTH}$, $L={DEPTH}$, $c_+=0$, $c_-=-1$, $m=2$", fontsize="medium")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "paper_2.png", dpi=150)
