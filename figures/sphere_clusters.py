"""Clusters form quickly and merge slowly: at beta = 9 several of them last for very long times.

Above: angles of 32 tokens on the circle, one start. Below: number of clusters (tokens linked by
cosines of at least 0.999) of many starts. SA with V = I; the starts are the same for both beta.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from shaped_attention import plots, sphere

SMALL = bool(os.environ.get("SMALL"))
BETAS = (4.0, 9.0)
TOKENS, SAMPLES = (6, 10) if SMALL else (32, 32)
TIMES = np.geomspace(0.1, 1e1 if SMALL else 1e4, 20 if SMALL else 120)

start = sphere.uniform_start(TOKENS, 2, SAMPLES)
fig, axes = plt.subplots(2, 2, figsize=(9.4, 6.2), sharex=True, sharey="row", layout="constrained")
for (above, below), beta in zip(axes.T, BETAS, strict=True):
    flow = sphere.sphere_flow(
        sphere.SphereAttention(beta), start, TIMES.tolist(), keep_tokens=True, tolerance=1e-3
    )
    x, y = np.moveaxis(flow["tokens"].values[:, 0], -1, 0)
    # A line that crosses the angle pi is cut there.
    angles = np.unwrap(np.arctan2(y, x), axis=0)
    for turn in (-2.0, 0.0, 2.0):
        above.plot(TIMES, angles + turn * np.pi, color=plots.COLORS[0], linewidth=0.8)
    above.set(title=rf"$\beta$ = {beta:g}", ylim=(-np.pi, np.pi))
    above.set_yticks([-np.pi, 0.0, np.pi], [r"$-\pi$", "0", r"$\pi$"])

    clusters = sphere.cluster_count(flow["V"].values, 1e-3)
    low, high = np.quantile(clusters, [0.05, 0.95], axis=1)
    color = plots.COLORS[1]
    below.fill_between(TIMES, low, high, color=color, alpha=0.2, linewidth=0, label="5 to 95 %")
    below.plot(TIMES, clusters.mean(1), color=color, label=f"mean of {SAMPLES} starts")
    below.set(xscale="log", yscale="log", xlabel="time $t$", xlim=(TIMES[0], TIMES[-1]))
    ticks = [2**k for k in range(6) if 2**k <= TOKENS]
    below.set_yticks(ticks, [str(tick) for tick in ticks], minor=False)
    below.minorticks_off()
axes[0, 0].set_ylabel("angle of each token")
axes[1, 0].set_ylabel("number of clusters")
axes[1, 0].legend()
fig.suptitle(f"Clusters form quickly and merge slowly: SA, {TOKENS} tokens on the circle")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sphere_clusters.png", dpi=150)
