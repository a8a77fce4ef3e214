"""From V_aa = 100 the SDE leaves [10^-4, 10^4] long before a chain of width 200 does.

Figures 4 and 8 of Noci et al. (arXiv 2306.17759): when an eigenvalue of V first leaves this range,
over gamma and tau_0. With 100 paths a cell, percentages are known to within 10. Empty cells: none.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, WIDTH, SAMPLES = (2, 20, 10) if SMALL else (4, 200, 100)
GAMMAS = [0.3, 0.6] if SMALL else [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
TAU0S = [1.0, 4.0] if SMALL else [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]

data = sa.stopping.stopping_map(
    sa.equicorrelated(TOKENS, 0.2, 100.0), GAMMAS, TAU0S, width=WIDTH, samples=SAMPLES
)
fig, axes = plt.subplots(2, 2, figsize=(10.5, 6.6), layout="constrained", sharex=True, sharey=True)
for column, sampler in enumerate(data["sampler"].values):
    times = data["exit_time"].sel(sampler=sampler).transpose("tau0", "gamma", "sample").values
    share = 100.0 * (times < 1.0).mean(-1)
    tenth = np.quantile(times, 0.1, axis=-1)
    for ax, values, shown, top, form in (
        (axes[0, column], share, share > 0.0, 100.0, "{:.0f}"),
        (axes[1, column], tenth, tenth < 1.0, 1.0, "{:.2f}"),
    ):
        colors = "viridis_r" if top > 1.0 else "viridis"
        image = ax.pcolormesh(np.where(shown, values, np.nan), cmap=colors, vmin=0.0, vmax=top)
        for (row, k), value in np.ndenumerate(values):
            dark = (value > 0.55 * top) == (top > 1.0)
            text = form.format(value) if shown[row, k] else ""
            ax.text(k + 0.5, row + 0.5, text, ha="center", va="center", fontsize="small",
                    color="white" if dark else "black")  # fmt: skip
        ax.set_xticks(np.arange(len(GAMMAS)) + 0.5, [f"{x:g}" for x in GAMMAS])
        ax.set_yticks(np.arange(len(TAU0S)) + 0.5, [f"{x:g}" for x in TAU0S])
        if column:
            label = "% of paths out by $t$ = 1" if top > 1.0 else "time at which 10 % are out"
            fig.colorbar(image, ax=axes[0 if top > 1.0 else 1], label=label)
    axes[0, column].set_title({"chain": f"chain, $n$ = {WIDTH}"}.get(str(sampler), "SDE"))
    axes[1, column].set_xlabel(r"$\gamma$")
for ax in axes[:, 0]:
    ax.set_ylabel(r"$\tau_0$")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "paper_4.png", dpi=150)
