"""Without one of its three changes, attention collapses its tokens, or they shrink or grow at once.

Figure 3 of Noci et al. (arXiv 2306.17759): |rho_ab| (mean) and |V_ab| (median) against the layer,
by the exact chain, with one change left out; bands hold 5 to 95 % of the samples.
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, WIDTH, DEPTH, SAMPLES = (2, 20, 10, 40) if SMALL else (4, 300, 150, 2**12)
GAMMA = 1 / math.sqrt(2)
LAYERS = {
    "shaped": sa.ShapedAttention(GAMMA),
    "no identity": sa.ShapedAttention(GAMMA, identity=False),
    "no centring": sa.ShapedAttention(GAMMA, centring=False),
    "no temperature": sa.ShapedAttention(GAMMA, scaled_temperature=False),
}

fig, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
pairs = ~np.eye(TOKENS, dtype=bool)
for k, (name, layer) in enumerate(LAYERS.items()):
    run = sa.simulate_chain(
        layer, sa.equicorrelated(TOKENS, 0.2), width=WIDTH, depth=DEPTH, samples=SAMPLES, seed=k,
        save_every=5, radius=1e8,
    )  # fmt: skip
    v = run["V"].values
    rho = np.abs(sa.correlations(v))[..., pairs].mean(-1)
    covariance = np.abs(v)[..., pairs].mean(-1)
    # A mean of covariances is carried by the few paths that explode.
    middles = rho.mean(1), np.median(covariance, axis=1)
    for ax, values, middle in zip(axes, (rho, covariance), middles, strict=True):
        layers, color = run["time"] * WIDTH, sa.plots.COLORS[k]
        band = np.quantile(values, [0.05, 0.95], axis=1)
        ax.fill_between(layers, *band, color=color, alpha=0.15, linewidth=0)
        ax.plot(layers, middle, sa.plots.LINES[k], color=color, label=name)
axes[0].set(ylabel=r"$|\rho_{a,b}|$, mean over pairs $a \neq b$")
# Without the identity V decays like lambda^(2 l); the axis does not follow it down.
axes[1].set(ylabel=r"$|V_{a,b}|$, mean over pairs $a \neq b$", yscale="log", ylim=(1e-6, 1e9))
axes[1].legend(loc="lower right")
for ax in axes:
    ax.grid(linestyle=":")
    ax.set_xlabel(r"layer $\ell$")
fig.suptitle(
    rf"$n={WIDTH}$, $\gamma=1/\sqrt{{2}}$, $\tau_0=1$, $m={TOKENS}$; stopped at $|V|=10^8$",
    fontsize="medium",
)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "paper_3.png", dpi=150)
