"""SA and USA raise the energy of tokens to that of one cluster; V = -I lowers it.

Energies E = (1 / (2 beta N^2)) sum_ij exp(beta <x_i, x_j>) over time, from the same uniform tokens,
relative to the largest of all laws, e^beta / (2 beta). USA is shown at e^-beta times the time.
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from shaped_attention import plots, sphere

SMALL = bool(os.environ.get("SMALL"))
BETAS = (1.0, 4.0, 9.0)
TOKENS, DIMENSION = (4, 3) if SMALL else (32, 3)
SAMPLES = 10 if SMALL else 40
TIMES = np.geomspace(1e-2, 1e1 if SMALL else 1e3, 20 if SMALL else 80)

start = sphere.uniform_start(TOKENS, DIMENSION, SAMPLES)
fig, axes = plt.subplots(1, 3, figsize=(11.0, 4.0), sharex=True, sharey=True, layout="constrained")
for ax, beta in zip(axes, BETAS, strict=True):
    largest = math.exp(beta) / (2.0 * beta)
    flows = (
        ("SA", sphere.SphereAttention(beta), 1.0),
        (r"USA, time $\times\, e^\beta$", sphere.SphereAttention(beta, False), math.exp(-beta)),
        ("SA with $V = -I$", sphere.SphereAttention(beta, repulsion=True), 1.0),
    )
    for k, (name, attention, clock) in enumerate(flows):
        times = (clock * TIMES).tolist()
        flow = sphere.sphere_flow(attention, start, times, keep=attention.energy, tolerance=1e-4)
        energy = flow["kept"].values / largest
        low, high = np.quantile(energy, [0.05, 0.95], axis=1)
        color = plots.COLORS[k]
        ax.fill_between(TIMES, low, high, color=color, alpha=0.2, linewidth=0)
        ax.plot(TIMES, energy.mean(1), plots.LINES[k], color=color, label=name)
    # On S^2 the mean of exp(beta <x, y>) over uniform tokens is sinh(beta) / beta.
    uniform = math.sinh(beta) / beta / math.exp(beta)
    ax.axhline(1.0, color="black", linewidth=1.0, label="one cluster: the largest")
    ax.axhline(uniform, color="0.5", linewidth=1.0, label="uniform law: the smallest")
    ax.set(title=rf"$\beta$ = {beta:g}", xscale="log", yscale="log", xlabel="time $t$")
axes[0].set_ylabel(r"$E_\beta\;/\;(e^\beta / 2\beta)$")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
fig.suptitle(f"Energy of {TOKENS} tokens on $S^2$: mean and 5 to 95 % of {SAMPLES} starts")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sphere_energy.png", dpi=150)
