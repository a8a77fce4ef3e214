"""The chain has the law of the network at every width, and the SDE is the limit of both.

Above: what each of the three consists of. Below: ten paths of each, with the median (black) and 5
to 95 % of the samples; gamma = 1/2, three tokens.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTH, SAMPLES = (12, 20) if SMALL else (48, 512)
TOKENS, SHOWN, BOX = 3, 10, 1.5
PANELS = {
    "network: real weights": "state: $m$ tokens of width $n$\na layer costs $n^2$",
    "exact chain: covariance": "state: $V$, $m\\times m$\nattention costs the same at every $n$",
    "SDE: the limit": "state: $V$, $m\\times m$\nno width; $V$ can explode",
}
COLORS = sa.plots.COLORS


def grid(ax, x, y, width, columns, color):
    """Draw m rows of cells, in colours by row and column."""
    side, height = width / columns, BOX / TOKENS
    for row in range(TOKENS):
        for column in range(columns):
            corner = x + column * side, y + (TOKENS - 1 - row) * height
            look = {"facecolor": color(row, column), "edgecolor": "white", "linewidth": 0.5}
            ax.add_patch(Rectangle(corner, side, height, **look))


def covariance(ax, x, y, name, up=True):
    """Draw V, darker on the diagonal, with its name."""
    grid(ax, x, y, BOX, TOKENS, lambda row, column: "0.45" if row == column else "0.8")
    ax.text(x + BOX / 2, y + (1.75 if up else -0.75), f"${name}$", ha="center")


def arrow(ax, start, end, style="-|>"):
    """Draw an arrow from one point to another."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": style, "lw": 1.4}, annotation_clip=False)


fig, axes = plt.subplots(2, 3, figsize=(14.0, 7.6), layout="constrained")
for ax, (title, text) in zip(axes[0], PANELS.items(), strict=True):
    ax.set(xlim=(0.0, 12.4), ylim=(-0.5, 6.0), xticks=[], yticks=[], title=title, xlabel=text)
    ax.set_aspect("equal")
    ax.spines[:].set_visible(False)
    arrow(ax, (3.5, 3.6), (6.5, 3.6))
network, chain, limit = axes[0]
for x, index in ((0.2, r"\ell"), (6.6, r"\ell+1")):
    grid(network, x, 2.85, 3.2, 14, lambda row, column: COLORS[row])
    network.text(x + 1.6, 4.6, f"$X_{{{index}}}$,  $m\\times n$", ha="center")
    arrow(network, (x + 1.6, 2.75), (x + 1.6, 2.0))
    covariance(network, x + 0.85, 0.4, f"V_{{{index}}}", up=False)
for ax, first, second in ((chain, r"V_\ell=FF^\top", r"V_{\ell+1}"), (limit, "V_t", r"V_{t+dt}")):
    covariance(ax, 1.0, 2.85, first)
    covariance(ax, 7.5, 2.85, second)
words = {"ha": "center", "va": "center"}
network.text(5.0, 1.1, r"$V=XX^\top/n$", **words)
network.text(5.0, 5.3, "Gaussian $W_Q,W_K,W_V$\n$n\\times n$", fontsize="small", **words)
chain.text(5.0, 5.0, "Gaussian and Wishart\n$G,H,B$, all $m\\times m$", fontsize="small", **words)
limit.text(5.0, 1.6, r"$dV=b(V)\,dt+\Sigma(V)^{1/2}dB$", **words)
arrow(network, (10.2, 3.6), (12.4, 3.6), "<|-|>")
network.text(11.3, 4.3, "same law,\nevery $n$", fontsize="small", **words)
arrow(chain, (10.2, 3.6), (12.4, 3.6))
chain.text(11.3, 4.3, "$n\\to\\infty$,\n$t=\\ell/n$", fontsize="small", **words)
layer, v0 = sa.ShapedAttention(0.5), sa.equicorrelated(TOKENS, 0.2)
times = np.arange(WIDTH + 1) / WIDTH
run = {"samples": SAMPLES, "times": times, "keep": "observables"}
paths = [
    sa.simulate_network(layer, v0, width=WIDTH, depth=WIDTH, **run),
    sa.simulate_chain(layer, v0, width=WIDTH, depth=WIDTH, **run),
    sa.integrate_sde(layer, v0, horizon=1.0, step=0.25 / WIDTH, **run),
]
styles = ["steps-post", "steps-post", "default"]
for ax, result, color, style in zip(axes[1], paths, COLORS[:3], styles, strict=True):
    rho = result["kept"].sel(observable="rho[0,1]").values
    low, middle, high = np.quantile(rho, [0.05, 0.5, 0.95], axis=1)
    ax.fill_between(times, low, high, color=color, alpha=0.2, linewidth=0)
    ax.plot(times, rho[:, :SHOWN], color=color, linewidth=0.7, drawstyle=style)
    ax.plot(times, middle, color="black", linewidth=1.8)
    ax.set(ylim=(-1.0, 1.0), xlabel=r"time $t = \ell / n$", ylabel=r"$\rho_{0,1}$")
    ax.grid(linestyle=":")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "schematic.png", dpi=150)
