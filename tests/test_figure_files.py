"""Figures as files: formats, resolution, and the same bytes from run to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from shaped_attention import plots
from shaped_attention.figures.output import RESOLUTION

DRAW = """
import shaped_attention as sa, sys
from shaped_attention import plots
chain = sa.simulate_chain(
    sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=20, depth=10, samples=40,
    progress=False,
)
figure = plots.densities(chain, observables=["rho[0,1]", "log det V"], bins=5)
plots.save_figure(figure, sys.argv[1], ["svg", "png", "pdf"])
"""


def test_two_processes_write_the_same_bytes(tmp_path):
    """Whatever the order of sets and the time are; no date and no version is in a file."""
    found = []
    for seed, epoch in (("1", "1000000"), ("2", "2000000000")):
        path = tmp_path / seed / "figure"
        environment = os.environ | {"PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": epoch}
        subprocess.run(
            [sys.executable, "-c", DRAW, str(path)], check=True, timeout=300, env=environment
        )
        found.append({name.suffix: name.read_bytes() for name in path.parent.iterdir()})
    assert set(found[0]) == {".svg", ".png", ".pdf"}
    for suffix, content in found[0].items():
        assert content == found[1][suffix], suffix
        assert b"atplotlib v" not in content
        assert b"CreationDate" not in content
        assert b"Software" not in content


def test_a_plain_file_has_a_date(tmp_path):
    """What the test above would see without the settings of `save_figure`."""
    Figure().savefig(tmp_path / "plain.pdf")
    assert b"CreationDate" in (tmp_path / "plain.pdf").read_bytes()


def test_a_png_has_300_dots_per_inch_and_the_colours_that_were_drawn(tmp_path):
    """A colour map and text, with 3,000 colours: 99 % of pixels are within 3 of 256 levels.

    Without k-means after the median cut, the dashed line and text are up to 111 levels off.
    """
    figure = Figure(figsize=(4.0, 3.0))
    axis = figure.subplots()
    axis.pcolormesh(np.linspace(0.0, 1.0, 400)[None], cmap="viridis")
    axis.plot([0, 400], [0, 1], "r--")
    axis.set_title("text")
    (path,) = plots.save_figure(figure, tmp_path / "one.png")
    figure.savefig(tmp_path / "plain.png", dpi=RESOLUTION, bbox_inches="tight")
    with Image.open(path) as picture, Image.open(tmp_path / "plain.png") as plain:
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        assert picture.size == plain.size
        apart = np.subtract(picture.convert("RGB"), plain.convert("RGB"), dtype=int)
    assert np.quantile(np.abs(apart), 0.99) <= 3
    assert np.abs(apart).max() < 80
    assert path.stat().st_size < (tmp_path / "plain.png").stat().st_size


def test_unknown_formats_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"^formats must be one of png, svg, pdf; got 'pgn' .*mean 'png'"
    ):
        plots.save_figure(Figure(), tmp_path / "one", ["svg", "pgn"])
    with pytest.raises(ValueError, match=r"^formats must be one or more of png, svg, pdf; got"):
        plots.save_figure(Figure(), tmp_path / "one", [])
    assert list(tmp_path.iterdir()) == []


def test_a_transparent_background_is_white_and_translucent_colours_are_blended(tmp_path):
    """Half-transparent red on nothing is pink; without blending, the background is black."""
    figure = Figure(figsize=(1.0, 1.0), facecolor="none")
    axis = figure.subplots()
    axis.set_facecolor("none")
    axis.axvspan(0.25, 0.75, color="red", alpha=0.5, linewidth=0.0)
    (path,) = plots.save_figure(figure, tmp_path / "one.png")
    with Image.open(path) as picture:
        colours = [colour for _, colour in picture.convert("RGB").getcolors()]
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert np.abs(np.subtract(colours, (255, 127, 127))).max(axis=1).min() <= 1


def test_committed_figures_are_small():
    """Each PNG has at most 500 kB."""
    folder = Path(__file__).resolve().parent.parent / "figures"
    large = {path.name: path.stat().st_size for path in folder.glob("*.png")}
    assert large
    assert {name for name, size in large.items() if size > 500_000} == set()


def test_a_figure_has_the_formats_that_are_asked_for(tmp_path):
    def names(*arguments):
        return sorted(path.name for path in plots.save_figure(Figure(), *arguments))

    assert names(tmp_path / "gamma-0.5") == ["gamma-0.5.png", "gamma-0.5.svg"]
    assert names(tmp_path / "one.pdf") == ["one.pdf"]
    assert names(tmp_path / "one.png", ("svg",)) == ["one.svg"]
    assert names(tmp_path / "one", "svg") == ["one.svg"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "gamma-0.5.png", "gamma-0.5.svg", "one.pdf", "one.svg",
    }  # fmt: skip
