"""An exact chain of attention costs the same at every width; a network with real weights does not.

Processor time of a layer, and of a sample up to t = 1: as many layers as columns, or 100 steps of
the SDE. Measured on one thread by `python -m benchmarks.widths --json figures/speed.json`.
"""

import json
import os
from pathlib import Path

import matplotlib.pyplot as plt

import shaped_attention as sa

NAMES = {"network": "network, real weights", "chain": "exact chain", "sde": "SDE"}
DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
TIMES = {(row["sampler"], row["layer"], row["width"]): row["seconds"] for row in DATA["times"]}
WIDTHS = sorted({width for _, _, width in TIMES if width is not None})
LAYERS = list(dict.fromkeys(layer for _, layer, _ in TIMES))

fig, axes = plt.subplots(1, 2, figsize=(11.0, 4.8), layout="constrained")
for k, (sampler, name) in enumerate(NAMES.items()):
    for layer, line in zip(LAYERS, ("-", ":"), strict=True):
        finite = sampler != "sde"
        times = [TIMES[sampler, layer, width if finite else None] for width in WIDTHS]
        counts = WIDTHS if finite else [round(1.0 / DATA["step"])] * len(WIDTHS)
        look = {"color": sa.plots.COLORS[k], "marker": "os^"[k], "markersize": 4.5}
        if finite:
            axes[0].plot(WIDTHS, times, line, **look)
        whole = [time * count for time, count in zip(times, counts, strict=True)]
        axes[1].plot(WIDTHS, whole, line, label=f"{name}: {layer}", **look)
for ax, title in zip(axes, ("one layer", "a sample up to $t$ = 1"), strict=True):
    ax.set(xscale="log", yscale="log", title=title, xlabel="width $n$")
    ax.set_xticks(WIDTHS, [f"{width}" for width in WIDTHS])
    ax.minorticks_off()
    ax.grid(linestyle=":")
axes[0].set_ylabel("processor time of one sample [s]")
fig.legend(loc="outside lower center", ncols=3, frameon=False)
fig.suptitle(
    f"{DATA['tokens']} tokens, one thread of an {DATA['machine']['processor']}", fontsize="medium"
)
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "speed.png", dpi=150)
