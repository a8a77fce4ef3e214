"""What is read from the store of a sweep, against numpy and scipy on the raw values."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.stats import ks_2samp

from shaped_attention.statistics.distances import ks_margin
from shaped_attention.sweep import (
    Sweep,
    Target,
    extend_sweep,
    open_sweep,
    plan_sweep,
    resume_sweep,
    run_sweep,
    sweep_distances,
    sweep_summary,
)
from shaped_attention.sweep import run_loop as running
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.reading import sweep_of
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.summaries import EDGES, histogram
from shaped_attention.sweep.work_units import run_unit
from tests.sweep_examples import FIXED, SIZE, Clock, small


def partial(path, monkeypatch, seconds, **changes):
    """A run that its time limit stops."""
    with monkeypatch.context() as patched:
        patched.setattr(running, "time", Clock())
        return run_sweep(small(seconds=seconds, **changes), path)


def test_dimensions_and_coordinates(kept):
    names = list(small().observed)
    lead = {"sampler": 2, "gamma": 2}
    block = lead | {"block": 3}
    kept_shapes = {
        "observables": {"values": lead | {"time": 2, "sample": 300, "kept": len(names) - 1}},
        "V": {"V": lead | {"time": 2, "sample": 300, "row": 2, "col": 2}},
        "reductions": {
            "histogram": block | {"time": 2, "kept": len(names) - 1, "bin": len(EDGES) + 1}
        },
    }
    for keep, data in kept.items():
        shapes = kept_shapes[keep] | {
            "moments": block | {"time": 2, "observable": len(names), "power": 2},
            "stopping": block | {"stopping_bin": 101}, "drawn": block, "reason": lead,
        }  # fmt: skip
        if keep != "reductions":
            shapes["stopping_time"] = lead | {"sample": 300}
        assert {name: dict(array.sizes) for name, array in data.data_vars.items()} == shapes
        assert {name: array.dims for name, array in data.data_vars.items()} == {
            name: tuple(sizes) for name, sizes in shapes.items()
        }
        assert list(data["sampler"].values) == ["chain", "sde"]
        assert list(data["gamma"].values) == [0.3, 0.5]
        assert list(data["time"].values) == [0.25, 0.5]
        assert list(data["observable"].values) == names
        if keep != "V":
            assert list(data["kept"].values) == names[:-1]
        assert sweep_of(data) == small(**SIZE, keep=keep)


def test_counts_are_whole_numbers(kept):
    """A count of 0 is 0, and not a missing value."""
    counts = {"stopping": kept["observables"], "histogram": kept["reductions"]}
    for name, data in counts.items():
        assert np.issubdtype(data[name].dtype, np.integer), name
        last = data[name].sum({"stopping": "stopping_bin", "histogram": "bin"}[name])
        assert (last == data["drawn"]).all()


def test_distances(kept):
    """From values those of scipy; from histograms smaller by at most what one bin holds."""
    data = kept["observables"]
    exact, binned = (sweep_distances(kept[k]) for k in ("observables", "reductions"))
    for place in np.ndindex(2, 2, 8):
        at = dict(zip(("gamma", "time", "kept"), place, strict=True))
        a, b = (data["values"].isel(at).sel(sampler=s).values for s in ("chain", "sde"))
        d, low = (float(part["distance"].isel(at)) for part in (exact, binned))
        assert d == pytest.approx(ks_2samp(a, b).statistic, abs=1e-12)
        most = max(float((histogram(v[None, :, None])[0, 0] / len(v)).max()) for v in (a, b))
        assert d - most - 1e-12 <= low <= d + 1e-12
    np.testing.assert_allclose(exact["margin"], ks_margin(300, 300, 0.95))
    swapped = sweep_distances(data, "sde", "chain", confidence=0.5)
    np.testing.assert_array_equal(swapped["distance"], exact["distance"])
    assert (swapped["margin"] < exact["margin"]).all()
    with pytest.raises(ValueError, match="must be one of chain, sde; got 'network'"):
        sweep_distances(data, "network")
    with pytest.raises(ValueError, match="data must come from a sweep that keeps observables"):
        sweep_distances(kept["V"])


def test_rounding_errors_are_no_distance(tmp_path):
    """At gamma = 0 chain and SDE keep V_0, up to rounding; the last bits are made to differ."""
    fixed = {"tokens": 4, "rho": 0.2, "width": 60, "depth": 30, "step": 0.05}
    sweep = small(fixed=fixed, axes={"gamma": [0.0]}, samples=64, block=64)
    run_sweep(sweep, tmp_path / "s", progress=False)
    data = open_sweep(tmp_path / "s")
    last_bits = xr.DataArray([1.0, 1.0 + 4.0 * np.finfo(float).eps], dims="sampler")
    data = data.assign(values=(data["values"] * last_bits).transpose(*data["values"].dims))
    values = data["values"].isel(time=-1).sel(kept="mean |rho|")
    assert len(np.unique(values)) > 1
    assert np.ptp(values.values) < 1e-12
    assert float(sweep_distances(data)["distance"].max()) == 0.0


def test_different_laws_are_distinguished(tmp_path):
    """One layer of strong scores is far from its SDE; many wide and weak ones are not."""
    axes = {"gamma": [0.9], "tau0": [0.4]}
    apart = small(fixed={"tokens": 2, "width": 2, "depth": 2, "step": 0.05}, axes=axes,
                  samples=1000, block=1000)  # fmt: skip
    near = small(fixed=FIXED | {"width": 200, "depth": 20, "step": 0.005}, samples=1000, block=500)
    for i, sweep in enumerate((apart, near)):
        run_sweep(sweep, tmp_path / str(i))
        found = sweep_distances(open_sweep(tmp_path / str(i)), confidence=0.999)
        assert bool((found["distance"] > found["margin"]).any()) == (i == 0)


@pytest.mark.parametrize("keep", ["observables", "V", "reductions"])
def test_a_partial_sweep(keep, tmp_path, monkeypatch):
    """NaN is where nothing was drawn, and nowhere else; no warning; distances are refused."""
    report = partial(tmp_path / "s", monkeypatch, 5.0, keep=keep)
    data = open_sweep(tmp_path / "s")
    assert 0 < report.finished < 12
    assert int((data["drawn"] > 0).sum()) == report.finished
    for unit in Store(tmp_path / "s").finished():
        at = {"sampler": unit.sampler, "gamma": unit.cell, "block": unit.block}
        assert int(data["drawn"].isel(at)) == small().block_samples(unit.block)
    assert (data["moments"].notnull().all(("time", "observable", "power"))
            == (data["drawn"] > 0)).all()  # fmt: skip
    if keep != "reductions":
        for name in {"V", "values", "stopping_time"} & set(data.data_vars):
            array = data[name]
            there = array.notnull().all(set(array.dims) - {"sampler", "gamma", "sample"})
            assert (there.sum("sample") == data["drawn"].sum("block")).all()
    none = data["drawn"].sum("block") == 0
    assert bool(none.any()) != bool(none.all())
    summary = sweep_summary(data)
    bounds = {"lower", "upper", "stopped_lower", "stopped_upper"}
    for name in {"mean", "half_width", "stopped", "quantile", *bounds} & set(summary.data_vars):
        assert (summary[name].isnull() == none).all(), name
    with pytest.raises(ValueError, match=r"no samples yet|keeps observables"):
        sweep_distances(data)


@pytest.mark.parametrize("keep", ["observables", "reductions"])
def test_reading_while_the_run_goes_on(keep, tmp_path, monkeypatch):
    """A Dataset stays with the samples it was opened with, in all that is made of it."""
    sweep = small(keep=keep, samples=32)
    partial(tmp_path / "s", monkeypatch, 28.0, keep=keep, samples=32)
    data = open_sweep(tmp_path / "s")
    assert ((data["drawn"].sum("block") > 0) & (data["drawn"].sum("block") < 32)).all()
    before = open_sweep(tmp_path / "s").load()
    run_sweep(sweep, tmp_path / "s")
    for function in (sweep_summary, sweep_distances):
        first, second = function(before), function(data)
        for name in first.data_vars:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert int(open_sweep(tmp_path / "s")["drawn"].sum()) == 4 * 32


@pytest.mark.parametrize("function", [sweep_summary, sweep_distances])
def test_what_is_no_opened_sweep_is_refused(function, kept):
    for data, sentence in (
        (1, "data must be a Dataset; got 1"),
        (None, "data must be a Dataset; got None"),
        (kept["V"].drop_vars("drawn"), "data must be a Dataset from open_sweep; got a Dataset"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            function(data)
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\); got 2\.0"):
        function(kept["observables"], confidence=2.0)


@pytest.mark.parametrize("keep", ["observables", "V", "reductions"])
def test_a_plan_counts_units_and_bytes(keep, tmp_path):
    sweep = small(keep=keep, fractions=(0.5, 1.0), samplers=("chain",))
    plan = plan_sweep(sweep)
    Store(tmp_path / "s", sweep)
    arrays = open_sweep(tmp_path / "s").drop_vars(["drawn", "reason"])
    found = sum(array.nbytes for array in arrays.values())
    assert (plan.cells, plan.units, plan.store_bytes) == (2, 6, found)
    assert plan.seconds == plan.by_sampler["chain"] > 0.0
    if keep != "reductions":  # whose histograms are larger than such a small block
        unit = run_unit(sweep, Unit(0, 0, 0))
        assert plan.unit_bytes >= sum(array.nbytes for array in unit.values())


def test_a_target_in_a_run(tmp_path):
    sweep = small(samples=80, target=Target("log V[0,0]", 0.14, first=2))
    report = run_sweep(sweep, tmp_path / "s")
    drawn = open_sweep(tmp_path / "s")["drawn"].sum("block")
    assert sum(report.reasons.values()) == 4
    assert report.reasons["target"] > 0
    assert report.left == 0
    assert set(drawn.values.ravel().tolist()) <= {16, 32, 64, 80}
    reasons = open_sweep(tmp_path / "s")["reason"]
    assert int((reasons == "target").sum()) == report.reasons["target"]
    assert set(np.unique(reasons)) <= {"target", "samples"}
    # The last target holds for a run that is resumed, and may be taken back.
    assert Store(tmp_path / "s").sweep.target == sweep.target
    assert run_sweep(replace(sweep, target=None), tmp_path / "s").reasons == {"samples": 4}
    assert Store(tmp_path / "s").sweep.target is None
    assert (open_sweep(tmp_path / "s")["reason"] == "samples").all()


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


def test_text_truth_values_and_fractions_select(tmp_path):
    """Those of axes of other values are text."""
    fixed = {k: v for k, v in FIXED.items() if k != "tokens"} | {"mlp_gamma": 0.3}
    axes = {
        "layer": ["transformer", "mlp"], "mask": [None, "causal"], "key_size": [None, 3],
        "output_projection": [False, True], "gamma": [1 / 3, 2 / 3, 1],
        "covariance": [np.eye(2), [[2.0, 0.5], [0.5, 1.0]]],
    }  # fmt: skip
    Store(tmp_path / "s", small(fixed=fixed, axes=axes))
    for data in (open_sweep(tmp_path / "s"), xr.open_zarr(tmp_path / "s" / "data.zarr")):
        for gamma in axes["gamma"]:
            one = data.sel(layer="mlp", mask="causal", output_projection=True, gamma=gamma,
                           key_size="None", covariance="[[2.0, 0.5], [0.5, 1.0]]")  # fmt: skip
            assert set(one["moments"].dims) == {"sampler", "block", "time", "observable", "power"}
            assert one["output_projection"].item() is True
            with pytest.raises(KeyError):  # negative control: the next floating-point number
                data.sel(gamma=np.nextafter(gamma, 2.0))
        assert data["output_projection"].dtype == bool
        assert list(data["mask"].values) == ["None", "causal"]


def test_times_of_several_horizons_are_fractions(tmp_path):
    """And say so."""
    fixed = {k: v for k, v in FIXED.items() if k != "width"} | {"gamma": 0.3}
    for widths, times, about in (
        ([20], [0.25, 0.5], "time t"),
        ([20, 40], [0.5, 1.0], "time as a fraction of the horizon"),
    ):
        sweep = small(fixed=fixed, axes={"width": widths}, fractions=(0.5, 1.0), samplers="chain")
        Store(tmp_path / about, sweep)
        time = open_sweep(tmp_path / about)["time"]
        np.testing.assert_allclose(time, times)
        assert time.attrs == {"long_name": about}
