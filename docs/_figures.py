"""The picture of the architecture, from the table of the page and the imports in the source."""

from __future__ import annotations

import re
from collections import Counter
from io import BytesIO
from pathlib import Path
from textwrap import fill

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from docs import _layers

BOX = 7.5
"""Width of a box, in inches; the arrows pass on its right."""
LINE = 0.21
"""Height of a line of text."""
GAP = 0.3
"""Between two boxes."""
COLUMNS = 80
"""Characters in a line of module names."""
LANE = 0.31
"""Between two vertical lines."""


def counts(package: str) -> tuple[list[_layers.Layer], Counter[tuple[int, int]]]:
    """Layers of a package, and the number of imports between each two of them."""
    layers = [layer for layer in _layers.table() if layer.package == package]
    rank = {module: i for i, layer in enumerate(layers) for module in layer.modules}
    pairs: Counter[tuple[int, int]] = Counter()
    for module, others in _layers.all_imports().items():
        if module in rank:
            pairs.update((rank[module], rank[other]) for other in others if other in rank)
    return layers, pairs


def architecture(package: str) -> Figure:
    """One box for each layer, and for each two layers an arrow with the number of imports."""
    layers, pairs = counts(package)
    colors = sns.color_palette("colorblind", len(layers))
    texts = [fill(", ".join(_short(layer)), COLUMNS) for layer in layers]
    heights = [LINE * (text.count("\n") + 1) + 0.55 for text in texts]
    between = sorted(pair for pair in pairs if pair[0] != pair[1])
    lanes = LANE * (len(layers) - 1) + 0.3
    total = sum(heights) + GAP * (len(layers) - 1)

    figure = Figure(figsize=(BOX + lanes + 0.2, total + 0.2))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.1, BOX + lanes + 0.1), ylim=(-0.1, total + 0.1))
    axes.axis("off")
    bottoms = []
    bottom = 0.0
    for layer, text, height, color in zip(layers, texts, heights, colors, strict=True):
        bottoms.append(bottom)
        axes.add_patch(
            FancyBboxPatch(
                (0, bottom), BOX, height, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=(*color, 0.13), edgecolor=color, linewidth=1.4,
            )
        )  # fmt: skip
        inside = pairs[len(bottoms) - 1, len(bottoms) - 1]
        among = f"{inside} import{'s' if inside != 1 else ''} among them"
        many = f"{len(layer.modules)} modules, {among}"
        heading = f"{layer.name}   ({many if len(layer.modules) > 1 else '1 module'})"
        axes.text(0.15, bottom + height - 0.12, heading, va="top", fontsize=11.5, weight="bold")
        axes.text(0.15, bottom + height - 0.42, text, va="top", fontsize=10.5, family="monospace")
        bottom += height + GAP

    entries = [bottom + height - 0.14 for bottom, height in zip(bottoms, heights, strict=True)]
    # The lane of an arrow is that of the layer it ends in; the number stands where it leaves.
    for source, target in between:
        x = BOX + 0.35 + LANE * (len(layers) - 2 - target)
        below = heights[source] - 0.2
        start = bottoms[source] + below * (1 - (target + 1) / (source + 1))
        color = colors[target]
        axes.plot(
            [BOX, x, x], [start, start, entries[target]], color=color, linewidth=1.2, zorder=0
        )
        axes.text(
            x, start, str(pairs[source, target]), ha="center", va="center", fontsize=8.5,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": color},
        )  # fmt: skip
    for target in {pair[1] for pair in between}:
        x = BOX + 0.35 + LANE * (len(layers) - 2 - target)
        end = entries[target]
        axes.add_patch(
            FancyArrowPatch(
                (x, end), (BOX, end), arrowstyle="-|>", mutation_scale=14, linewidth=1.2,
                color=colors[target], shrinkA=0, shrinkB=0,
            )
        )  # fmt: skip
    return figure


def _short(layer: _layers.Layer) -> list[str]:
    """Names of the modules without those of the package and of the folder."""
    names = [module.removeprefix(f"{layer.package}.") for module in layer.modules]
    return [name.split(".", 1)[-1] for name in names]


def write_all(folder: Path) -> None:
    """Write the pictures into a folder."""
    for package in _layers.PACKAGES:
        (folder / f"architecture-{package}.svg").write_bytes(as_svg(package))


def as_svg(package: str) -> bytes:
    """Return the picture of a package."""
    drawn = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "shaped_attention", "svg.fonttype": "none"}):
        architecture(package).savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


def words(svg: str) -> list[str]:
    """Return what a picture says, line by line: its texts are text, not outlines."""
    return re.findall(r"<t(?:ext|span)[^>]*>([^<]+)<", svg)
