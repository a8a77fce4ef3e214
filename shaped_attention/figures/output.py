"""Figures as SVG, PNG and PDF files; the same figure always gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy.spatial import KDTree

from shaped_attention.checks import argument_error, check_choice
from shaped_attention.io.storage import written

FORMATS = ("png", "svg", "pdf")
RESOLUTION = 300
"""Dots per inch of a PNG, and of rasterised parts in the other formats."""

_COLORS = 256
_ROUNDS = 16
# Dates would differ from run to run, and versions from machine to machine.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(
    figure: Figure, path: str | Path, formats: str | Iterable[str] | None = None
) -> list[Path]:
    """Write a figure to `path` with each of the suffixes, completely or not at all.

    A PNG has 300 dots per inch and a palette of 256 colours. With the same versions of matplotlib
    and Pillow, the same figure gives the same bytes in every format, because files have no dates.
    Where a figure is transparent, its PNG is white.

    Parameters
    ----------
    figure
        Figure from a plotting function, or any other Figure.
    path
        Path of the file, with or without one of the suffixes.
    formats
        One or more of "png", "svg" and "pdf". Default: the suffix of `path`; without one, PNG and
        SVG.

    Returns
    -------
    The paths of the files.

    Raises
    ------
    ValueError
        If a format is unknown, `formats` is empty, or the folder cannot be written.
    """
    target = Path(path)
    suffix = target.suffix[1:]
    if formats is None:
        formats = (suffix,) if suffix in FORMATS else ("png", "svg")
    if suffix in FORMATS:
        target = target.with_suffix("")
    kinds = [formats] if isinstance(formats, str) else list(formats)
    if not kinds:
        raise argument_error("formats", f"one or more of {', '.join(FORMATS)}", formats)
    for kind in kinds:
        check_choice("formats", kind, FORMATS)
    targets = [target.with_name(f"{target.name}.{kind}") for kind in kinds]
    for kind, place in zip(kinds, targets, strict=True):
        with written(place) as draft, mpl.rc_context({"svg.hashsalt": "shaped_attention"}):
            drawn = BytesIO()
            figure.savefig(
                drawn, format=kind, dpi=RESOLUTION, bbox_inches="tight", metadata=_METADATA[kind]
            )
            draft.write_bytes(with_palette(drawn) if kind == "png" else drawn.getvalue())
    return targets


def with_palette(png: BytesIO) -> bytes:
    """Return a PNG on white with 256 colours, a third of the size; lines and text look the same."""
    smaller = BytesIO()
    drawn = Image.open(png)
    layers = Image.new("RGBA", drawn.size, "white"), drawn.convert("RGBA")
    picture = Image.alpha_composite(*layers).convert("RGB")
    cut = picture.quantize(_COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette = np.array(cut.getpalette(), dtype=float).reshape(-1, 3)
    pixels = np.asarray(picture, dtype=np.intp) @ [1 << 16, 1 << 8, 1]
    counts = np.bincount(pixels.ravel(), minlength=1 << 24)
    colors = np.flatnonzero(counts)
    levels, weights = colors[:, None] >> np.array([16, 8, 0]) & 255, counts[colors]
    nearest = KDTree(palette).query(levels)[1]
    # k-means moves each colour to the mean of its pixels: shades of colour maps stay apart. It runs
    # over the colours that occur, which are few; whole numbers have the same sums on any machine.
    for _ in range(_ROUNDS):
        share = np.bincount(nearest, weights, len(palette))
        sums = np.stack([np.bincount(nearest, weights * x, len(palette)) for x in levels.T], -1)
        used = share > 0
        palette[used] = np.rint(sums[used] / share[used, None])
        nearest = KDTree(palette).query(levels)[1]
    place = np.zeros(1 << 24, dtype=np.uint8)
    place[colors] = nearest
    reduced = Image.fromarray(place[pixels])
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    reduced.save(smaller, format="png", optimize=True, dpi=drawn.info.get("dpi"))
    return smaller.getvalue()
