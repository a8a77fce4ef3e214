"""The more tokens, the closer they are to the mean field: their distance falls as N^(-1/2).

Left: density of the mean field on the circle, with paths of 24 tokens. Right: Kuiper distance (the
largest differences of the distribution functions, both ways) of N tokens from it at t = 1.
"""

import math
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

from shaped_attention import plots, sphere

SMALL = bool(os.environ.get("SMALL"))
BETAS = (2.0, 20.0)
CELLS, SAMPLES = (64, 10) if SMALL else (512, 32)
SIZES = (16, 32, 64) if SMALL else (16, 32, 64, 128, 256, 512)
TIMES = np.linspace(0.0, 6.0, 16 if SMALL else 121)
EDGES = np.linspace(-np.pi, np.pi, CELLS + 1)


def two_bumps(angle):
    """Return a smooth density without symmetry."""
    return (1.0 + 0.5 * np.cos(angle) + 0.6 * np.cos(2.0 * angle - 1.0)) / (2.0 * np.pi)


def distribution(density):
    """Return the distribution function of averages over cells, at their edges."""
    return np.concatenate([[0.0], np.cumsum(density) * 2.0 * np.pi / CELLS])


def particles(beta, tokens, samples, times):
    """Return angles (time, sample, token) that start with the density of two bumps."""
    below = distribution(sphere.mean_field(beta, two_bumps, [0.0], cells=CELLS)["density"][0])
    angles = np.interp(np.random.default_rng(tokens).random((samples, tokens)), below, EDGES)
    start = sphere.given_start(np.stack([np.cos(angles), np.sin(angles)], axis=-1))
    flow = sphere.sphere_flow(sphere.SphereAttention(beta), start, times, keep_tokens=True)
    x, y = np.moveaxis(flow["tokens"].values, -1, 0)
    return np.arctan2(y, x)


def kuiper(angles, below):
    """Return the distances of samples (sample, token) from a distribution function."""
    law = np.interp(np.sort(angles, axis=-1), EDGES, below)
    rank = np.arange(1, angles.shape[-1] + 1) / angles.shape[-1]
    return (rank - law).max(-1) + (law - rank + rank[0]).max(-1)


fig, axes = plt.subplots(1, 3, figsize=(12.0, 4.2), layout="constrained")
for k, beta in enumerate(BETAS):
    ax, law = axes[k], sphere.mean_field(beta, two_bumps, TIMES, cells=CELLS)
    density = law["density"].values.T.clip(1e-2, 1e1)
    norm = LogNorm(1e-2, 1e1)
    mesh = ax.pcolormesh(TIMES, law["angle"], density, norm=norm, rasterized=True)
    paths = particles(beta, 24, 1, TIMES)[:, 0]
    jump = np.abs(np.diff(paths, axis=0, append=paths[-1:])) > np.pi
    ax.plot(TIMES, np.where(jump, np.nan, paths), color="white", linewidth=0.7)
    ax.set(title=rf"$\beta$ = {beta:g}", xlabel="time $t$", ylim=(-np.pi, np.pi))
    ax.set_yticks([-np.pi, 0.0, np.pi], [r"$-\pi$", "0", r"$\pi$"])

    below = distribution(sphere.mean_field(beta, two_bumps, [1.0], cells=CELLS)["density"][0])
    every = [kuiper(particles(beta, n, SAMPLES, [1.0])[0], below) for n in SIZES]
    mean = np.array([values.mean() for values in every])
    error = [2.0 * values.std(ddof=1) / math.sqrt(SAMPLES) for values in every]
    color, form = plots.COLORS[k], "os"[k]
    axes[2].errorbar(SIZES, mean, error, fmt=form, color=color, label=rf"$\beta$ = {beta:g}")
    root = np.sqrt(SIZES)
    axes[2].plot(SIZES, (root * mean).mean() / root, plots.LINES[k], color=color)
axes[0].set_ylabel("angle")
fig.colorbar(mesh, ax=axes[:2], label="density", extend="both")
axes[2].set(title="distance at $t$ = 1", xlabel="tokens $N$", ylabel="Kuiper distance")
axes[2].set(xscale="log", yscale="log")
axes[2].set_xticks(SIZES, [str(n) for n in SIZES], minor=False)
axes[2].set_yticks([0.05, 0.1, 0.2, 0.4], ["0.05", "0.1", "0.2", "0.4"], minor=False)
axes[2].minorticks_off()
axes[2].legend(title="bars: two standard errors\nlines: $N^{-1/2}$", loc="lower left")
fig.suptitle("SA on the circle: density of the mean field, and tokens (white)")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sphere_mean_field.png", dpi=150)
