"""Chains of growing width pass a level as often as the exact law of two tokens in the limit says.

Lines: the law of the first passage of u = V_00 - 2 V_01 + V_11 over 10, and of an explosion of V.
Points: fractions of chains with 95 % intervals. A finite network never explodes.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binomtest

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTHS, SAMPLES = ([16], 200) if SMALL else ([64, 256, 1024], 2**12)
GAMMAS, TAU0S, LEVEL = [0.35, 0.6], [0.5, 1.0], 10.0
TIMES = np.linspace(0.0, 1.0, 21 if SMALL else 41)
MARKS = np.linspace(0.0, 1.0, 9)[1:]

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained", sharey=True)
v0 = sa.equicorrelated(2, 0.2)
for ax, gamma in zip(axes, GAMMAS, strict=True):
    for color, tau0 in zip(sa.plots.COLORS, TAU0S, strict=False):
        block = sa.ShapedAttention(gamma, tau0)
        law = sa.explosion_law(block, v0)
        name = rf"$\tau_0$ = {tau0:g}"
        ax.plot(TIMES, law.curve(TIMES, LEVEL), color=color, label=f"{name}, $u \\geq {LEVEL:g}$")
        ax.plot(TIMES, law.curve(TIMES), "--", color=color, label=f"{name}, explosion")
        for k, width in enumerate(WIDTHS):
            run = sa.simulate_chain(
                block, v0, width=width, depth=width, samples=SAMPLES, seed=width, save_every=1,
            )  # fmt: skip
            v = run["V"].values
            u = v[..., 0, 0] - 2.0 * v[..., 0, 1] + v[..., 1, 1]
            reached = np.maximum.accumulate(u, axis=0)[(MARKS * width).astype(int)] >= LEVEL
            counts = reached.sum(axis=1)
            bounds = [binomtest(int(c), SAMPLES).proportion_ci(0.95) for c in counts]
            share, seen = counts / SAMPLES, counts > 0
            bars = np.abs(np.transpose([(b.low, b.high) for b in bounds]) - share)
            ax.errorbar(
                MARKS[seen] + 0.012 * (k - 1), share[seen], bars[:, seen], fmt="osv"[k],
                color=color, markersize=4, capsize=1.5, alpha=0.8,
            )  # fmt: skip
    ax.set(title=rf"$\gamma$ = {gamma:g}", xlabel=r"time $t = \ell / n$", yscale="log")
    ax.set_ylim(1e-4, 1.0)
    ax.grid(linestyle=":")
for k, width in enumerate(WIDTHS):
    axes[0].plot([], [], "osv"[k], markersize=4, color="0.3", label=f"chain, $n$ = {width}")
axes[0].set_ylabel("probability by time $t$")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "explosion.png", dpi=150)
