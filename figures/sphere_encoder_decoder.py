"""Tokens of a decoder meet later than those of an encoder, and where the first one stands.

Above: median times from which tokens stay within 1 - cos = 10^-3 of the first, by position, from
the same starts. Below: clusters on the circle over time, and the drift of V_aa in the shaped SDE.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import shaped_attention as sa
from shaped_attention import plots, sphere

SMALL = bool(os.environ.get("SMALL"))
BETAS, DIMENSIONS, MASKS = (1.0, 9.0), (2, 64), ("encoder", "decoder")
TOKENS, SAMPLES, DELTA = (4, 10, 1e-3) if SMALL else (16, 32, 1e-3)
TIMES = np.geomspace(0.1, 1e2 if SMALL else 1e4, 20 if SMALL else 100)
POSITIONS = np.arange(TOKENS)


def kept(gram):
    """Return the cosines with the first token, and the number of clusters."""
    clusters = sphere.cluster_count(gram, DELTA).to(gram.dtype)
    return torch.cat([gram[:, 0], clusters[:, None]], dim=-1)


def joining_times(cosines):
    """Return the times (sample, position) from which tokens stay close; infinite if they do not."""
    apart = cosines < 1.0 - DELTA
    since = np.where(apart.any(0), len(TIMES) - np.argmax(apart[::-1], axis=0), 0)
    return np.append(TIMES, np.inf)[since]


fig, axes = plt.subplots(2, 2, figsize=(9.6, 7.4), layout="constrained")
for column, dimension in enumerate(DIMENSIONS):
    start = sphere.uniform_start(TOKENS, dimension, SAMPLES)
    for k, beta in enumerate(BETAS):
        for line, mask in zip(plots.LINES, MASKS, strict=False):
            attention = sphere.SphereAttention(beta, causal=mask == "decoder")
            flow = sphere.sphere_flow(attention, start, TIMES.tolist(), keep=kept, tolerance=1e-3)
            values = flow["kept"].values
            median = np.median(joining_times(values[..., :-1]), axis=0)[1:]
            look = {"color": plots.COLORS[k], "linestyle": line}
            label = rf"{mask}, $\beta$ = {beta:g}"
            # On the circle clusters last for very long at beta = 9: medians are not resolved.
            if dimension > 2 or beta == 1.0:
                axes[0, column].plot(POSITIONS[1:], median, marker="o", ms=3.5, label=label, **look)
            if dimension == 2:
                axes[1, 0].plot(TIMES, values[..., -1].mean(1), **look)
    axes[0, column].set(title=f"$d$ = {dimension}", yscale="log", xlabel="position")
    axes[0, column].set_ylim(3.0, 3e3)
axes[0, 0].set_ylabel("median time of joining the first token")
axes[1, 0].set(title="on the circle", xlabel="time $t$", ylabel="mean number of clusters")
axes[1, 0].set(xscale="log", yscale="log")

tokens = sphere.uniform_start(TOKENS, 4 * TOKENS, SAMPLES)
for line, mask in zip(plots.LINES, MASKS, strict=False):
    layer = sa.ShapedAttention(0.5, 1.0, mask="causal" if mask == "decoder" else None)
    drift = sa.drift(layer, (tokens @ tokens.mT).numpy()).diagonal(axis1=1, axis2=2)
    error = 2.0 * drift.std(0, ddof=1) / SAMPLES**0.5
    axes[1, 1].errorbar(
        POSITIONS, drift.mean(0), error, ls=line, color="black", marker="o", ms=3.5, label=mask
    )
axes[1, 1].set(title=r"shaped SDE, $\gamma$ = 0.5, $\tau_0$ = 1", xlabel="position $a$")
axes[1, 1].set_ylabel("drift of $V_{aa}$ at the start")
axes[1, 1].legend()
fig.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
fig.suptitle(f"Encoder against decoder: SA, $N$ = {TOKENS}, {SAMPLES} uniform starts")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sphere_encoder_decoder.png", dpi=150)
