"""When depth grows with the width, the tangent kernel stays random however wide the network is.

Densities of the tangent kernel of one token over its mean at the ratios L / n = 0.1 and 1, and its
second moment with two standard errors, next to the exact moment of the limit.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import expm

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTHS, SAMPLES = ([8, 16], 60) if SMALL else ([16, 64, 256], 2000)
RATIOS = [0.25, 0.5] if SMALL else [0.1, 0.3, 0.6, 1.0]
GAMMA = 2**-0.5
BINS = np.linspace(0.0, 4.0, 41)


def moment(time):
    """Return E Theta^2 / (E Theta)^2 of one token in the limit, after the time L / n.

    It follows from E V D_1, E C_1^2, E D_1 D_2 and E D_12^2, with D_12 = <dx_1, dx_2> / n of the
    tangents dx by two random directions of the weights, and C_1 = <x, dx_1> / n: linear equations.
    """
    k, rate = GAMMA**2 * (2.0 - GAMMA**2), GAMMA**2
    generator = np.array([
        [2 * k, 0, 0, 0, 0], [rate, 0, 2 * k, 0, 0], [0, k, k, 0, 0], [0, 2 * rate, 0, 0, 2 * k],
        [0, 0, 0, k, k],
    ])  # fmt: skip
    d, e = expm(generator * time)[3:, 0]
    return (d + 2.0 * e) / (rate * time) ** 2


fig, axes = plt.subplots(1, 3, figsize=(11.7, 3.9), layout="constrained")
for j, width in enumerate(WIDTHS):
    color = sa.plots.COLORS[j]
    for ratio in RATIOS:
        run = sa.neural_tangent_kernel(
            sa.ShapedAttention(GAMMA), [[1.0]], width=width, depth=max(1, round(ratio * width)),
            samples=SAMPLES, seed=j,
        )  # fmt: skip
        kernel = run["kernel"].values[:, 0, 0]
        kernel = kernel / kernel.mean()
        if ratio in (RATIOS[0], RATIOS[-1]):
            ax = axes[0 if ratio == RATIOS[0] else 1]
            density = np.histogram(kernel, BINS)[0] / (SAMPLES * np.diff(BINS))
            look = {"color": color, "linestyle": sa.plots.LINES[j], "linewidth": 1.4}
            ax.stairs(density, BINS, label=f"$n$ = {width}", **look)
            ax.set_title(f"one token, $L/n$ = {ratio:g}", fontsize="medium")
        square = (kernel**2).mean()
        # The mean in the denominator moves with the samples.
        error = (kernel**2 - 2.0 * square * kernel).std() / SAMPLES**0.5
        axes[2].errorbar(
            ratio + 0.015 * (j - 1), square, 2.0 * error, fmt="osD"[j], color=color, capsize=2,
            markersize=4, label=f"$n$ = {width}" if ratio == RATIOS[0] else None,
        )  # fmt: skip
fine = np.linspace(0.01, RATIOS[-1], 100)
axes[2].plot(fine, [moment(time) for time in fine], color="black", label="limit")
axes[2].set(xlabel="$L/n$", ylabel=r"$\mathbb{E}\,\Theta^2 / (\mathbb{E}\,\Theta)^2$")
for ax in axes[:2]:
    ax.set(xlabel=r"$\Theta / \mathbb{E}\,\Theta$", ylabel="density")
for ax in axes:
    ax.grid(linestyle=":")
    ax.legend(fontsize="small")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "tangent_kernel.png", dpi=150)
