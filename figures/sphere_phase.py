"""The more dimensions, the more sharply tokens meet when equiangular ones do.

The share of pairs of uniform tokens with a cosine of at least 0.999, over time and beta, under
softmax attention (SA). In d = 1024 it jumps from 0 to 1 at the meeting time of orthogonal tokens.
"""

import os
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from shaped_attention import sphere

SMALL = bool(os.environ.get("SMALL"))
DIMENSIONS = (2, 8, 128, 1024)
TOKENS, DELTA = (4, 1e-3) if SMALL else (32, 1e-3)
BETAS = np.linspace(0.0, 9.0, 3 if SMALL else 19)
TIMES = np.linspace(0.0, 30.0, 7 if SMALL else 61)
SAMPLES = 10 if SMALL else 64

close = partial(sphere.close_pairs, delta=DELTA)
curve = [sphere.theory.meeting_time(DELTA, TOKENS, beta) for beta in BETAS]

fig, axes = plt.subplots(2, 2, figsize=(8.4, 6.4), sharex=True, sharey=True, layout="constrained")
for ax, dimension in zip(axes.flat, DIMENSIONS, strict=True):
    start = sphere.uniform_start(TOKENS, dimension, SAMPLES)
    flows = (
        sphere.sphere_flow(
            sphere.SphereAttention(beta), start, TIMES.tolist(), keep=close, tolerance=1e-4
        )
        for beta in BETAS
    )
    share = np.stack([flow["kept"].mean("sample") for flow in flows])
    mesh = ax.pcolormesh(TIMES, BETAS, share, cmap="viridis", vmin=0, vmax=1, rasterized=True)
    ax.plot(curve, BETAS, color="white", linewidth=3.0)
    ax.plot(curve, BETAS, "--", color="black", linewidth=1.5, label="orthogonal tokens meet")
    ax.set(title=f"$d$ = {dimension}", xlim=(TIMES[0], TIMES[-1]), ylim=(BETAS[0], BETAS[-1]))
axes[0, 0].legend(loc="upper right", fontsize="small")
fig.supxlabel("time $t$")
fig.supylabel(r"inverse temperature $\beta$")
fig.colorbar(mesh, ax=axes, label="share of pairs with a cosine of at least 0.999")
fig.suptitle(f"Uniform tokens meet: SA, $N$ = {TOKENS}, {SAMPLES} starts")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sphere_phase.png", dpi=150)
