"""Chains of eight attentions follow the SDE that is derived from ten lines of each.

Lines: the mean correlation of two tokens by the SDE, with and without scores. Points: the exact
chain of networks, with two standard errors.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from blocks.attentions import EIGHT

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
PATHS, WIDTH, SAMPLES = (1000, 64, 400) if SMALL else (2**17, 2048, 2**16)
GAMMA, TAU0, HORIZON = 0.5, 0.8, 0.5
TIMES = np.arange(9) * HORIZON / 8


def correlation(result):
    """Return the mean of the correlation of two tokens at each time, and its standard error."""
    rho = sa.correlations(result["V"].values)[..., 0, 1]
    return rho.mean(1), rho.std(1) / rho.shape[1] ** 0.5


def solution(block, seed):
    """Return the paths of the SDE."""
    return sa.integrate_sde(
        block, V0, horizon=HORIZON, step=HORIZON / 64, samples=PATHS, times=TIMES, seed=seed
    )


V0 = sa.equicorrelated(2, -0.3)
NO_SCORES = 1e4  # a temperature at which scores have no effect
fig, axes = plt.subplots(2, 4, figsize=(11.5, 5.2), layout="constrained", sharex=True, sharey=True)
for seed, (ax, (name, kind)) in enumerate(zip(axes.flat, EIGHT.items(), strict=True), start=1):
    block = kind(GAMMA, TAU0)
    limit, without = solution(block, seed), solution(kind(GAMMA, NO_SCORES), seed)
    color = sa.plots.COLORS[0 if "steps_taken" in limit else 3]  # steps of the clock
    fewer = 4 if name == "gated" else 1  # the entries of its rows are drawn, which takes long
    width = WIDTH // fewer
    chain = sa.simulate_chain(
        block, V0, width=width, depth=round(width * HORIZON), samples=SAMPLES // fewer, times=TIMES,
        seed=100 + seed,
    )  # fmt: skip
    points, error = correlation(chain)
    ax.plot(TIMES, correlation(without)[0], "--", color="0.6")
    ax.plot(TIMES, correlation(limit)[0], color=color)
    ax.errorbar(
        TIMES[1:], points[1:], 2.0 * error[1:], fmt="o", color="black", markersize=3, capsize=2
    )
    ax.set_title(name)
    ax.grid(linestyle=":")
for ax in axes[1]:
    ax.set_xlabel(r"time $t = \ell / n$")
for ax in axes[:, 0]:
    ax.set_ylabel(r"mean of $\rho_{0,1}$")
axes[0, 0].plot([], [], color=sa.plots.COLORS[0], label="SDE, which can explode")
axes[0, 0].plot([], [], color=sa.plots.COLORS[3], label="SDE, which cannot explode")
axes[0, 0].plot([], [], "--", color="0.6", label="SDE without scores")
label = f"exact chain, $n$ = {WIDTH} (gated: {WIDTH // 4})"
axes[0, 0].plot([], [], "o", color="black", markersize=3, label=label)
handles = axes[0, 0].get_legend_handles_labels()
fig.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "attentions.png", dpi=150)
