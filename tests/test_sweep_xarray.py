"""A store in plain xarray: metadata, attributes, and values of axes that select exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from shaped_attention.sweep import (
    Sweep,
    extend_sweep,
    open_sweep,
    read_sweep,
    resume_sweep,
    run_sweep,
)
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.toml import axis_values, read_axis
from tests.sweep_examples import FIXED, small


@pytest.mark.parametrize("keep", ["observables", "V", "reductions"])
def test_plain_xarray_opens_a_store_without_a_warning(keep, tmp_path):
    """Warnings are errors here: the metadata are consolidated, after an extension too."""
    sweep = small(keep=keep)
    run_sweep(sweep, tmp_path / "s", progress=False)
    for samples, finished in ((20, True), (40, False), (40, True)):
        if samples > sweep.samples:
            sweep = extend_sweep(tmp_path / "s", samples=samples)
        if finished:
            resume_sweep(tmp_path / "s", progress=False)
        plain = xr.open_zarr(tmp_path / "s" / "data.zarr")
        known = open_sweep(tmp_path / "s")
        assert plain.sizes["block"] == sweep.blocks
        same = known.drop_vars(["drawn", "reason"]).assign_attrs(plain.attrs).load()
        same.attrs.pop("code_changes")
        xr.testing.assert_identical(plain.load(), same)
        assert known.attrs.items() >= plain.attrs.items()
        missing = plain["moments"].isnull().any(("time", "observable", "power"))
        assert (missing == (known["drawn"] == 0)).all()
        assert bool(missing.any()) != finished


def test_every_variable_says_what_it_is(kept):
    """A long name, without a unit: everything is dimensionless. The Dataset has its conventions."""
    for data in kept.values():
        for name in (*data.data_vars, *data.coords):
            assert len(data[name].attrs["long_name"]) >= 4, name
        assert data.attrs["title"] == "Sweep of chain, sde over gamma (2)"
        assert Sweep.from_json(data.attrs["sweep"]).shape == (2,)
        assert data.attrs["seed"] == 0
        assert set(json.loads(data.attrs["versions"])) >= {"shaped_attention", "numpy", "torch"}
        assert "samples that are not drawn" in data.attrs["comment"]


def test_times_of_several_horizons_say_that_they_are_fractions(tmp_path):
    fixed = {k: v for k, v in FIXED.items() if k != "width"} | {"gamma": 0.3}
    for widths, about in (([20], "time t"), ([20, 40], "time as a fraction of the horizon")):
        sweep = small(fixed=fixed, axes={"width": widths}, samplers="chain")
        Store(tmp_path / about, sweep)
        assert open_sweep(tmp_path / about)["time"].attrs == {"long_name": about}


SPACES = {
    "thirds": ("{ linspace = [0, 1, 4] }", [0, 1 / 3, 2 / 3, 1]),
    "tenths": ("{ linspace = [0.1, 0.7, 7] }", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
    "sevenths": ("{ linspace = [0, 1, 8] }", [k / 7 for k in range(8)]),
    "steps of a sixth": ("{ linspace = [0.1, 0.6, 4] }", [0.1, 4 / 15, 13 / 30, 0.6]),
    "powers": ("{ logspace = [0.5, 2.0, 3] }", [0.5, 1.0, 2.0]),
    "small": ("{ logspace = [1e-8, 1e-6, 3] }", [1e-8, 1e-7, 1e-6]),
    "roots": ("{ logspace = [1, 100, 5] }", [1, 10**0.5, 10, 10**1.5, 100]),
    "numpy's": ("{ logspace = [0.5, 2.0, 6] }", list(np.geomspace(0.5, 2.0, 6))),
    "ninths": ("{ logspace = [0.1111111111111111, 1, 3] }", [1 / 9, 1 / 3, 1]),
    "a list": ("[0, 0.5]", [0, 0.5]),
}


@pytest.mark.parametrize("case", SPACES)
def test_values_of_axes_select_exactly(case, tmp_path):
    """As the values are written, in the Dataset of the store and in plain xarray."""
    text, values = SPACES[case]
    axis, other = ("gamma", "") if case == "a list" else ("query_bias", "gamma = 0.3")
    lines = ["samplers = ['chain']", "samples = 2", "[fixed]", "layer = 'attention'", other,
             "tokens = 2", "width = 20", "depth = 10", "[axes]", f"{axis} = {text}"]  # fmt: skip
    (tmp_path / "sweep.toml").write_text("\n".join(lines))
    Store(tmp_path / "s", read_sweep(tmp_path / "sweep.toml"))
    for data in (open_sweep(tmp_path / "s"), xr.open_zarr(tmp_path / "s" / "data.zarr")):
        for place, value in enumerate(values):
            assert float(data.sel({axis: value})[axis]) == value
            assert int(data.indexes[axis].get_loc(value)) == place


def test_other_values_do_not_select(tmp_path):
    """Negative control: a neighbouring floating-point number is not a value of the axis."""
    Store(tmp_path / "s", small(axes={"gamma": axis_values("gamma", {"linspace": [0, 1, 4]})}))
    with pytest.raises(KeyError):
        open_sweep(tmp_path / "s").sel(gamma=np.nextafter(1 / 3, 1.0))


def test_text_truth_values_and_fractions_select(tmp_path):
    fixed = FIXED | {"mlp_gamma": 0.3}
    axes = {
        "layer": ["transformer", "mlp"], "mask": ["none", "causal"],
        "output_projection": [False, True], "gamma": [1 / 3, 2 / 3, 1],
    }  # fmt: skip
    Store(tmp_path / "s", small(fixed=fixed, axes=axes))
    for data in (open_sweep(tmp_path / "s"), xr.open_zarr(tmp_path / "s" / "data.zarr")):
        for gamma in axes["gamma"]:
            one = data.sel(layer="mlp", mask="causal", output_projection=True, gamma=gamma)
            assert set(one["moments"].dims) == {"sampler", "block", "time", "observable", "power"}
            assert one["output_projection"].item() is True
        assert data["output_projection"].dtype == bool


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("gamma=0.7,0.8", ("gamma", [0.7, 0.8])),
        ("gamma = [0.7, 0.8]", ("gamma", [0.7, 0.8])),
        ("mask=causal", ("mask", ["causal"])),
        (
            "layer=tests.sweep_examples:scores,mlp",
            ("layer", ["tests.sweep_examples:scores", "mlp"]),
        ),
        ("layer='transformer', 'mlp'", ("layer", ["transformer", "mlp"])),
        ("output_projection=true", ("output_projection", [True])),
        ("tau0={ logspace = [3, 5, 3] }", ("tau0", [3.0, float(np.geomspace(3, 5, 3)[1]), 5.0])),
        ("width={ linspace = [20, 40, 3] }", ("width", [20, 30, 40])),
        (
            "gamma={ schedule = [[0, 0.1], [1, 0.5]] }",
            ("gamma", [{"schedule": [[0, 0.1], [1, 0.5]]}]),
        ),
        ("covariance=[[1, 0], [0, 1]]", ("covariance", [[[1, 0], [0, 1]]])),
    ],
)
def test_axes_on_the_command_line(text, axis):
    name, values = read_axis(text)
    assert (name, values) == axis
    assert list(map(type, values)) == list(map(type, axis[1]))


@pytest.mark.parametrize(
    "text", ["gamma", "=0.7", "gamma=", "gamma=0.7;0.8", "gamma={linspac=[1]}"]
)
def test_axes_that_cannot_be_read(text):
    with pytest.raises(
        ValueError, match=r"NAME=VALUES is needed, as in gamma=0\.7,0\.8|a list, \{linspace"
    ):
        read_axis(text)
