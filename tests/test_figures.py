"""The figures of the paper and beyond at small sizes, their command, and figures as files."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import binomtest

import shaped_attention as sa
from shaped_attention import plots
from shaped_attention.commands import gallery
from shaped_attention.commands.main import main
from shaped_attention.figures import output, panels
from shaped_attention.figures.labels import expectation_label, observable_label, parameter_label
from shaped_attention.figures.output import RESOLUTION
from shaped_attention.figures.paper import collapse
from shaped_attention.figures.paper import original as paper
from shaped_attention.figures.paper.catalogue import FIGURES
from shaped_attention.figures.paper.plots import stopping_maps
from shaped_attention.statistics.density import observable_names


def test_several_panels_are_lettered_and_given_axes_are_not():
    new = panels.Panels(None, ["one", "two", "three"], (6.0, 2.0), 2)
    assert [axis.get_title(loc="left") for axis in new.axes] == ["(a)", "(b)", "(c)"]
    assert panels.Panels(None, ["one"], (2.0, 2.0)).axes[0].get_title(loc="left") == ""
    axes = list(Figure().subplots(1, 2))
    assert [a.get_title(loc="left") for a in panels.Panels(axes, "ab", (2, 2)).axes] == ["", ""]


def test_a_stopping_map_has_intervals_and_blank_cells():
    """20 of 40 paths leave at 0.01 to 0.2, in the other cell none; order statistics by hand."""
    times = np.full((1, 2, 1, 40), 0.5)
    times[0, 0, 0, :20] = 0.01 * np.arange(1, 21)
    data = xr.Dataset(
        {"exit_time": (("sampler", "gamma", "tau0", "sample"), times)},
        coords={"sampler": ["chain"], "gamma": [0.3, 0.6], "tau0": [1.0]},
        attrs={"horizon": 0.5},
    )
    figure = stopping_maps(data)
    low, high = 100 * np.array(binomtest(20, 40).proportion_ci(0.95, method="exact"))
    share, tenth = ([text.get_text() for text in axis.texts] for axis in figure.axes[:2])
    assert share == [f"50\n{low:.0f}–{high:.0f}"]
    # P(Binomial(40, 0.1) <= 1) = 0.08 and P(<= 0) = 0.015; P(<= 7) = 0.958 and P(<= 8) = 0.985.
    assert tenth == ["0.05\n0.01–0.09"]
    masks = [
        np.ma.getmaskarray(axis.collections[0].get_array()).ravel() for axis in figure.axes[:2]
    ]
    assert [mask.tolist() for mask in masks] == [[False, True]] * 2


def test_labels_are_those_of_one_table():
    """Symbols of parameters and observables; a name that has none stays as it is."""
    assert [parameter_label(name) for name in ("gamma", "tau0", "other")] == [
        r"$\gamma$", r"$\tau_0$", "other",
    ]  # fmt: skip
    assert observable_label("rho[0,2]") == r"$\rho_{0,2}$"
    assert observable_label("log V[1,1]", ["a", "b"]) == r"$\log V_{1,1}$   (“b”)"
    assert expectation_label("mean |rho|") == r"$\mathbb{E}$ mean $|\rho|$"
    for name in observable_names(3):
        # Every name has a symbol, except where words say it.
        assert "$" in observable_label(name), name


def test_figure_1_left_shows_collapse_and_none():
    """Correlations of unshaped networks tend to 1; the shaped mean stays near rho_0 = 0.2."""
    data = paper.figure_1_left(samples=200, depth=60)["correlation"].sel(level="mean")
    ends = {str(model): float(data.sel(model=model)[-1]) for model in data["model"].values}
    assert ends["unshaped"] > 0.95
    assert ends["unshaped, Pre-LN"] > 0.95
    assert abs(ends["shaped"] - 0.2) < 0.05


def test_models_of_the_library_lie_on_their_law_and_shaped_twins_do_not_collapse():
    data = collapse.figure_collapse(("llama-64",), tokens=8, samples=40, networks=12)
    last = data.sel(model="llama-64").isel(position=-1)
    low, middle, high = last["law"].to_numpy()
    assert middle > 0.8
    assert low < float(last["real"].median()) < high
    assert last["shaped"].to_numpy().max() < 0.3 < float(last["real"].min())


def test_the_product_of_initializer_range_and_root_width_decides():
    """Two models with the product 0.8 agree, whatever their widths; 0.4 and 1.6 do not."""
    data = collapse.figure_widths((64, 256), (0.05, 0.1), tokens=8, samples=20)["cosine"]
    middle = data.sel(level="median").to_numpy()
    assert abs(middle[1, 0] - middle[0, 1]) < 0.1
    assert middle[0, 0] - middle[1, 1] > 0.6


def test_the_gallery_stops_with_the_status_of_a_command_that_does_not_finish(tmp_path, monkeypatch):
    """The command after it does not run; without a status, it does."""
    ran = []

    def stops(status):
        @click.command(name="later")
        @click.option("--figures")
        def command(figures):
            ran.append(figures)
            if status and len(ran) == 1:
                raise click.exceptions.Exit(status)

        return command

    entries = {name: gallery.Entry((), (("later",),), ()) for name in ("one", "two")}
    monkeypatch.setattr(gallery, "GALLERY", entries)
    for status, count in ((3, 1), (0, 2)):
        ran.clear()
        group = click.Group(commands={"gallery": gallery.gallery_command, "later": stops(status)})
        result = CliRunner().invoke(group, ["gallery", "--figures", str(tmp_path)])
        assert result.exit_code == status, result.output
        assert len(ran) == count


def test_commands(tmp_path):
    runner = CliRunner()
    place = ["--figures", str(tmp_path)]
    result = runner.invoke(
        main, ["paper", "2", "--samples", "20", "--tokens", "2", "--results", str(tmp_path), *place]
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "paper-2.svg").exists()
    assert dict(sa.load(tmp_path / "paper-2.nc").sizes) == {"model": 5, "sampler": 2, "sample": 20}
    shown = runner.invoke(main, ["show", str(tmp_path / "paper-2.nc")])
    assert shown.exit_code == 0
    assert '"samples": 20' in shown.output
    result = runner.invoke(main, ["paper", "2", "--samples", "1", *place])
    assert "samples must be at least 10 to draw a figure; got 1" in result.output
    result = runner.invoke(main, ["paper", "3", "--tokens", "1", "--figures", str(tmp_path)])
    assert "tokens must be at least 2 for a correlation; got 1" in result.output
    result = runner.invoke(main, ["paper", "tokens", "--tokens", "two", *place])
    assert (
        "Invalid value for '--tokens': 'two' is not a comma-separated list of whole numbers"
        in result.output
    )
    result = runner.invoke(main, ["stopping", "--map-samples", "0", *place])
    assert "map_samples must be an integer >= 1; got 0" in result.output
    listed = runner.invoke(main, ["paper", "--help"]).output
    assert all(f"  {name} " in listed for name in FIGURES)


def test_the_gallery_hands_on_progress_and_nothing_else(tmp_path, monkeypatch):
    """The figure `tokens` has the name of an option of `compare`."""
    seen = []

    def command(name):
        @click.command(name)
        @click.option("--tokens", type=int)
        @click.option("--progress/--no-progress", default=None)
        @click.option("--figures")
        def run(tokens, progress, figures):
            seen.append((name, tokens, progress))

        return run

    entries = {
        name: gallery.Entry((), (tuple(name.split()),), ()) for name in ("compare", "paper tokens")
    }
    monkeypatch.setattr(gallery, "GALLERY", entries)
    group = click.Group(
        commands={
            "gallery": gallery.gallery_command,
            "compare": command("compare"),
            "paper": click.Group("paper", commands={"tokens": command("tokens")}),
        }
    )
    for options in ([], ["--no-progress"]):
        result = CliRunner().invoke(group, ["gallery", "--figures", str(tmp_path), *options])
        assert result.exit_code == 0, result.output
    assert seen == [
        (name, None, shown) for shown in (None, False) for name in ("compare", "tokens")
    ]


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


def test_a_png_has_300_dots_per_inch_and_the_colours_that_were_drawn(tmp_path, monkeypatch):
    """A colour map and text, with 3,000 colours: 99 % of pixels are within 3 of 256 levels.

    Without k-means after the median cut, the dashed line and text are up to 111 levels off.
    """
    monkeypatch.setattr(output, "RESOLUTION", RESOLUTION)  # as imported, before `coarse_pictures`
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
