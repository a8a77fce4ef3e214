"""The figures of the three objects, of where the limit explodes, and of speed against width."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.stats import ks_2samp

from shaped_attention.figures.paper.beyond import _of_heads
from shaped_attention.figures.paper.explosion_map import _edges, figure_explosion_map
from shaped_attention.figures.paper.schematic import figure_schematic
from shaped_attention.figures.paper.speed import figure_speed

OTHER = Path(__file__).parent / "other_times.json"


@pytest.mark.parametrize("heads", [1, 2])
def test_two_tokens_explode_below_the_line_alone(heads):
    """By the exact law; the paths agree with it, and resolve no explosion beyond the line."""
    data = figure_explosion_map(
        gammas=(0.4, 0.9), tau0s=(0.3, 0.6), tokens=(2,), heads=heads, steps=400, samples=512,
        progress=False,
    )  # fmt: skip
    explodes = data["exact"] > 0.0
    below = data["fine_gamma"] < math.sqrt(heads / 2.0)
    assert (explodes == below).all()
    exact = data["exact"].sel(fine_gamma=0.4, fine_tau0=0.3, method="nearest")
    found = data.sel(gamma=0.4, tau0=0.3, tokens=2)
    assert float(found["lower"]) < float(exact) < float(found["upper"])
    # The interval of a cell is above 0 on the explosive side of the line, and nowhere else.
    resolved = (data["lower"] > 0.0).sel(tokens=2)
    np.testing.assert_array_equal(resolved.sel(gamma=0.4), True)
    np.testing.assert_array_equal(resolved.sel(gamma=0.9), heads == 2)


def test_four_tokens_explode_beyond_the_line_of_two():
    """So the line is no law of attention, but one of two tokens."""
    data = figure_explosion_map(
        gammas=(0.8, 0.9), tau0s=(0.2, 0.3), tokens=(4,), steps=200, samples=100, progress=False
    )
    assert float(data["lower"].min()) > 0.1
    assert float(data["exact"].max()) == 0.0


def test_edges_of_cells_are_halfway_between_values():
    np.testing.assert_allclose(_edges(np.array([1.0, 2.0, 4.0])), [0.5, 1.5, 3.0, 5.0])
    np.testing.assert_allclose(_edges(np.array([1.0])), [0.95, 1.05])


def test_network_and_chain_of_the_schematic_have_one_law():
    """Of the correlation at the end; at half the time it is another law."""
    rho = figure_schematic(width=16, samples=2000, progress=False)["rho"]
    network, chain = (rho.sel(sampler=name) for name in ("network", "chain"))
    assert ks_2samp(network[-1], chain[-1]).pvalue > 0.01
    assert ks_2samp(network[-1], chain[len(chain) // 2]).pvalue < 1e-6


def test_heads_are_apart_by_their_chains_that_have_not_stopped():
    """8 heads are 0.1 away from 1; with the stopped half of their paths it would be 0.55."""
    rho = np.tile(np.linspace(-1.0, 1.0, 4000), (3, 2, 1))
    rho[2, 0] += 0.2
    stopped = np.zeros(rho.shape, dtype=bool)
    stopped[2, 0, ::2] = True
    rho[stopped] = 5.0
    data = xr.Dataset(
        {
            "rho": (("model", "sampler", "sample"), rho),
            "stopped": (("model", "sampler", "sample"), stopped),
            "strong": (("model", "width"), [[0.4, 0.1], [0.5, 0.3], [0.6, 0.2]]),
        },
        {"sampler": ["chain", "SDE"]},
    )
    band = math.sqrt(math.log(80.0) / 8000) + math.sqrt(math.log(80.0) / 4000)
    found = _of_heads(data)
    assert 0.1 + band < found["apart"] < 0.111 + band
    assert found["farther"] == pytest.approx(2.0)


def test_measured_times_are_those_of_the_file(tmp_path):
    """A sample has as many layers as columns, or 1 / step steps; any other file is refused."""
    data = figure_speed(str(OTHER))
    times = data["sample_time"].sel(layer="attention")
    np.testing.assert_allclose(times.sel(sampler="network"), [32e-6, 256e-6])
    np.testing.assert_allclose(times.sel(sampler="chain"), [16e-6, 32e-6])
    np.testing.assert_allclose(times.sel(sampler="sde"), [10e-6, 10e-6])
    for content in ("[]", "{}", "no json", json.dumps({"times": [{"sampler": "sde"}]})):
        (tmp_path / "wrong.json").write_text(content, encoding="utf-8")
        with pytest.raises(
            ValueError, match=r"^measurements must be a file from benchmarks.widths;"
        ):
            figure_speed(str(tmp_path / "wrong.json"))


def test_a_chain_of_attention_costs_the_same_at_every_width():
    """As measured: a layer of it, against networks, whose cost grows like n^2 from n = 512 on."""
    times = figure_speed()["layer_time"].sel(layer="attention")
    chain, network = (times.sel(sampler=name).to_numpy() for name in ("chain", "network"))
    assert chain.max() < 1.5 * chain.min()
    large = times["width"].to_numpy() >= 512
    slope = np.polyfit(np.log(times["width"][large]), np.log(network[large]), 1)[0]
    assert 1.6 < slope < 2.6
