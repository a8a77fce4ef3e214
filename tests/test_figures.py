"""The figures of the paper and beyond at small sizes, and their command."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import main
from shaped_attention.figures.paper import catalogue as paper_figures
from shaped_attention.figures.paper import original as paper
from shaped_attention.figures.recipes import make

SMALL = {
    "1-left": {"width": 20, "depth": 10, "samples": 30, "tokens": 2},
    "1-right": {"width": 20, "depth": 10, "samples": 30, "tokens": 2},
    "2": {"width": 20, "depth": 10, "samples": 30, "gammas": [0.3, 1.0]},
    "3": {"width": 20, "depth": 10, "samples": 30, "tokens": 2},
    "4": {"gammas": [0.3], "tau0s": [1.0, 2.0], "width": 20, "samples": 10, "tokens": 2},
    "eigenvalues": {"gammas": [0.1], "width": 20, "samples": 10, "tokens": 2},
    "transformer": {"samples": 64, "tokens": 2},
    "causal": {"samples": 64, "tokens": 2},
    "heads": {"samples": 64, "tokens": 2},
    "tokens": {"tokens": (2, 3), "width": 20, "depth": 10, "samples": 30},
    "keys": {"width": 20, "depth": 10, "samples": 30, "tokens": 2},
}


@pytest.mark.parametrize("name", paper_figures.FIGURES)
def test_every_figure_is_drawn(name):
    figure, data = make(paper_figures.FIGURES, name, **SMALL[name])
    assert len(figure.axes) >= 1
    for key, variable in data.data_vars.items():
        # Few samples resolve no rate.
        assert "rate" in key or np.isfinite(variable).all()


def test_figure_1_left_shows_collapse_and_none():
    """Correlations of unshaped networks tend to 1; the shaped mean stays near rho_0 = 0.2."""
    data = paper.figure_1_left(samples=200, depth=60)["correlation"].sel(level="mean")
    ends = {str(model): float(data.sel(model=model)[-1]) for model in data["model"].values}
    assert ends["unshaped"] > 0.95
    assert ends["unshaped, Pre-LN"] > 0.95
    assert abs(ends["shaped"] - 0.2) < 0.05


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
    assert "samples=1: at least 10 are needed to draw" in result.output
    result = runner.invoke(main, ["paper", "3", "--tokens", "1", "--figures", str(tmp_path)])
    assert "tokens=1: at least 2 are needed" in result.output
    result = runner.invoke(main, ["paper", "9", "--figures", str(tmp_path)])
    assert "'9': one of 1-left, 1-right, 2, 3, 4, eigen" in result.output
    result = runner.invoke(main, ["paper", "tokens", "--tokens", "two", *place])
    assert "Invalid value for '--tokens': 'two': values of type int with commas" in result.output
    result = runner.invoke(main, ["stopping", "--map-samples", "0", *place])
    assert "map_samples=0: a whole number >= 1 is needed" in result.output
    listed = runner.invoke(main, ["paper", "--help"]).output
    assert all(f"  {name} " in listed for name in paper_figures.FIGURES)
