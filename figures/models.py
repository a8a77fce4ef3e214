"""At their default initialisation, some models lose the rank of their tokens and others do not.

Mean cosine and effective rank of 64 tokens by layer in ten public configurations, at their real
width and depth: medians over samples of the law. Tokens of BERT share their type, so start alike.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
TOKENS, SAMPLES = (4, 2) if SMALL else (64, 4)
NAMES = ["gpt2"] if SMALL else list(sa.shipped_configurations())
GAP = 0.05  # between two names, as a share of the axis


def spread_out(values, gap):
    """Return places for names in the order of the values, at least a gap apart."""
    places = np.sort(values)
    for _ in range(500):
        missing = np.maximum(0.0, gap - np.diff(places)) / 2
        places[1:] += missing
        places[:-1] -= missing
        places += max(0.0, -places[0])
    return places


fig, axes = plt.subplots(1, 2, figsize=(12.0, 5.0), layout="constrained")
labels = {"cosine": "mean cosine of two tokens", "effective_rank": "effective rank"}
curves = {}
for name in NAMES:
    law = sa.simulate_model(
        name, TOKENS, samples=SAMPLES, seed=1, entropy=False, accept_approximation=True
    )
    curves[name] = sa.model_summary(law).sel(level="median")
for ax, (variable, label) in zip(axes, labels.items(), strict=True):
    top = 1.0 if variable == "cosine" else float(TOKENS)
    ends = {name: float(curve[variable][-1]) for name, curve in curves.items()}
    order = sorted(NAMES, key=ends.get)
    places = dict(zip(order, spread_out(list(ends.values()), GAP * top), strict=True))
    for k, (name, curve) in enumerate(curves.items()):
        color, line = sa.plots.COLORS[k], sa.plots.LINES[k % 4]
        depth = np.linspace(0.0, 1.0, curve.sizes["position"])
        ax.plot(depth, curve[variable], line, color=color, linewidth=1.8)
        ax.plot([1.0, 1.03], [ends[name], places[name]], color=color, linewidth=0.8, clip_on=False)
        ax.text(1.04, places[name], name, va="center", fontsize="small")
    ax.set(xlabel=r"relative depth $\ell / L$", ylabel=label, xlim=(0, 1), ylim=(0.0, 1.02 * top))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(linestyle=":")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "models.png", dpi=150)
