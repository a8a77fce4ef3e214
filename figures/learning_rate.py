"""The best learning rate moves with the width unless by muP, and with depth unless branches shrink.

Loss after three steps of SGD (dotted: one) against the rate, at widths to 10^6 and depths to 64:
medians and range of 12 networks; |y - f|^2 / 2 of two tokens with y = (1, -1).
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTHS = [16, 32] if SMALL else [100, 10_000, 1_000_000]
DEPTHS = [1, 2] if SMALL else [4, 16, 64]
RATES = [0.01, 0.1] if SMALL else [10.0**k for k in np.arange(-8.0, 1.0, 0.5)]
DEPTH_RATES = [0.01, 0.1] if SMALL else [10.0**k for k in np.arange(-3.5, 0.1, 0.5)]
DEPTH_WIDTH, STEPS, SAMPLES, CEILING = 48, 3, 2 if SMALL else 12, 1e6


def losses(kind, weight, width, depth, rate):
    """Return losses (steps + 1, samples) with a rate, in a parametrisation.

    Hidden matrices have N(0, 1/n) entries, the readout u N(0, 1/n), or with muP N(0, 1/n^2) and a
    rate of eta / n (table 3 of Yang et al., arXiv 2203.03466). `simulate_training` has N(0, 1)
    entries: rates are n times as large, and muP is the standard one for targets sqrt n y and a
    loss over n.
    """
    block = sa.ShapedAttention(weight, skip=1.0, output_projection=True)
    unit = 1.0 if kind == "standard" else float(width)
    found = np.full((STEPS + 1, SAMPLES), CEILING)
    for steps in range(STEPS, 0, -1):  # as many as stay finite
        try:
            run = sa.simulate_training(
                sa.Normalised(block, norm="rms"), sa.equicorrelated(2, 0.2),
                [math.sqrt(unit), -math.sqrt(unit)], width=width, depth=depth, samples=SAMPLES,
                steps=steps, optimizer=sa.SGD(width * rate / unit),
            )  # fmt: skip
        except FloatingPointError:
            continue
        found[: steps + 1] = np.minimum(run["loss"].values / unit, CEILING)
        break
    return found


def draw(ax, title, rates, curves):
    """Draw the losses of several networks, by their labels, against the rate."""
    for k, (label, sizes) in enumerate(curves.items()):
        values = np.array([losses(*sizes, rate) for rate in rates])
        look = {"color": sa.plots.COLORS[k + 3 * (rates is DEPTH_RATES)]}
        low, middle, high = np.quantile(values[:, -1], [0.0, 0.5, 1.0], axis=1)
        ax.fill_between(rates, low, high, alpha=0.2, linewidth=0, **look)
        ax.plot(rates, middle, sa.plots.LINES[k % 2], label=label, **look)
        ax.plot(rates, np.median(values[:, 1], axis=1), ":", linewidth=1.0, **look)
    ax.set(title=title, xscale="log", yscale="log", ylim=(1e-4, 30.0))
    ax.grid(linestyle=":")
    ax.legend(fontsize="small", loc="lower left")


fig, axes = plt.subplots(2, 2, figsize=(11.0, 7.0), layout="constrained", sharey=True)
for ax, kind in zip(axes[0], ("standard", "muP"), strict=True):
    by_width = {f"$n$ = {n:,}": (kind, 2**-0.5, n, 2) for n in WIDTHS}
    draw(ax, f"{kind}, $L$ = 2", RATES, by_width)
for ax, shrink in zip(axes[1], (0.0, 0.5), strict=True):
    by_depth = {f"$L$ = {d}": ("muP", d**-shrink, DEPTH_WIDTH, d) for d in DEPTHS}
    title = r"muP, branches of weight $1/\sqrt{L}$" if shrink else "muP, branches of weight 1"
    draw(ax, title, DEPTH_RATES, by_depth)
fig.supxlabel(r"learning rate $\eta$", fontsize="medium")
fig.supylabel("loss", fontsize="medium")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "learning_rate.png", dpi=150)
