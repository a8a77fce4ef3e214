"""Results are saved, loaded and run again without loss; a failed save changes nothing."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention import ShapedAttention, ShapedMLP, equicorrelated
from shaped_attention.results import provenance
from tests.example_linear import Linear

V0 = equicorrelated(3, 0.2, 1.3)
SEES = np.array([[True, False, True], [True, True, False], [False, True, True]])


@dataclass(frozen=True)
class Mine(ShapedMLP):
    """A user's block derived from one of the package."""


def network(layer, **options):
    options = {"width": 10, "depth": 5, "samples": 6, "seed": 1} | options
    return sa.simulate_network(layer, V0, **options)


def chain(layer, **options):
    options = {"width": 10, "depth": 5, "samples": 6, "seed": 1} | options
    return sa.simulate_chain(layer, V0, **options)


def sde(layer, **options):
    options = {"horizon": 0.5, "step": 0.1, "samples": 6, "seed": 1} | options
    return sa.integrate_sde(layer, V0, **options)


SAMPLERS = pytest.mark.parametrize("sampler", [network, chain, sde])
LAYERS = {
    "attention and MLP": [ShapedAttention(0.5, 0.7), ShapedMLP(0.4, 0.3, -0.9)],
    "causal": [ShapedAttention(0.5, 0.7, mask="causal")],
    "masked": [ShapedAttention(0.5, mask=SEES), ShapedMLP(0.1)],
    "projected": [ShapedAttention(1 / 3, output_projection=True, key_size=4)],
    "user's": [Linear(0.5), Mine(0.2)],
}
LAYER = LAYERS["attention and MLP"]
OPTIONS = {
    "defaults": {},
    "float32": {"dtype": "float32"},
    "times": {"times": [0.1, 0.3], "seed": 2**130},
    "every layer": {"save_every": 2, "radius": 2.5, "samples": 70},
}


def contents(folder):
    """Every file and folder below, hidden ones too."""
    found = sorted(folder.rglob("*"))
    return {path: path.read_bytes() if path.is_file() else None for path in found}


def assert_same(first, second):
    """The same variables, coordinates and attributes, to the last bit and in the same types."""
    xr.testing.assert_identical(first, second)
    for name, variable in first.variables.items():
        other = second.variables[name]
        assert variable.dtype == other.dtype
        if variable.dtype.kind != "f":
            continue
        assert variable.to_numpy().tobytes() == other.to_numpy().tobytes()
    assert dict(first.attrs) == dict(second.attrs)


@SAMPLERS
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_saved_loaded_and_run_again(sampler, options, tmp_path):
    result = sampler(LAYER, **options)
    path = tmp_path / "new" / "result.nc"
    assert sa.save(result, path) == path
    loaded = sa.load(str(path))
    assert_same(result, loaded)
    assert sa.specification(loaded) == sa.specification(result)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert_same(sa.rerun(loaded), result)


def test_some_stopping_times_above_are_infinite_and_some_are_not():
    for sampler in (network, chain, sde):
        stopped = np.isfinite(sampler(LAYER, **OPTIONS["every layer"]).stopping_time)
        assert stopped.any()
        assert not stopped.all()


def test_saved_over_an_older_result(tmp_path):
    path = tmp_path / "result.nc"
    sa.save(chain(LAYER, save_every=1, samples=20), path)
    result = sde(LAYER)
    sa.save(result, path)
    assert_same(sa.load(path), result)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_gives_way_and_what_it_points_to_stays(tmp_path):
    old, link = tmp_path / "old.nc", tmp_path / "link.nc"
    sa.save(chain(LAYER), old)
    link.symlink_to(old)
    sa.save(sde(LAYER), link)
    assert_same(sa.load(old), chain(LAYER))
    assert_same(sa.load(link), sde(LAYER))
    assert sorted(tmp_path.iterdir()) == [link, old]


def test_a_loaded_result_does_not_need_its_file(tmp_path):
    path = sa.save(chain(LAYER), tmp_path / "result.nc")
    loaded = sa.load(path)
    path.rename(tmp_path / "moved")
    assert_same(loaded, chain(LAYER))


def test_large_specifications(tmp_path):
    """A covariance of 64 tokens is more than the 64 KB of a classic HDF5 attribute."""
    x = np.random.default_rng(0).standard_normal((64, 80))
    wide = sa.simulate_chain(
        ShapedAttention(0.5), sa.covariance_of(x), width=64, depth=1, samples=1
    )
    assert len(wide.attrs["specification"]) > 2**16
    assert_same(sa.load(sa.save(wide, tmp_path / "result.nc")), wide)


@SAMPLERS
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_run_again(sampler, layer):
    result = sampler(layer)
    own = {"layer": layer} if layer is LAYERS["user's"] else {}
    assert_same(sa.rerun(result, **own), result)
    assert sa.layer_of(result, blocks=[Linear, Mine]) == layer


@SAMPLERS
def test_run_again_with_changes(sampler):
    result = sampler(LAYER, times=[0.2, 0.5])
    assert_same(sa.rerun(result, seed=7), sampler(LAYER, times=[0.2, 0.5], seed=7))
    assert not np.isclose(sa.rerun(result, seed=7).V, result.V).any()
    every = sa.rerun(result, save_every=1)
    assert_same(every, sampler(LAYER, save_every=1))
    np.testing.assert_array_equal(every.V.isel(time=[2, 5]), result.V)
    more = sa.rerun(result, samples=9, layer=[*LAYER, ShapedMLP(0.2)], v0=np.eye(2))
    assert more.sizes["sample"] == 9
    assert sa.layer_of(more) == [*LAYER, ShapedMLP(0.2)]
    with pytest.raises(ValueError, match=r"^samples must be an integer >= 1; got 0"):
        sa.rerun(result, samples=0)
    for unknown in ("sample_count", "gamma"):
        message = f"^[a-z_]+ has no argument '{unknown}'; choose one of layer, v0, .*, seed, .*"
        with pytest.raises(ValueError, match=message):
            sa.rerun(result, **{unknown: 3})


def test_the_specification_holds_every_argument():
    masked, mlp = ShapedAttention(0.5, 0.7, mask=SEES, key_size=4), ShapedMLP(0.4)
    stored = sa.specification(chain([masked, mlp], times=[0.1, 0.5], radius=100.0))
    for block, entry in zip((masked, mlp), stored.pop("layer"), strict=True):
        arguments = inspect.signature(type(block)).parameters
        assert entry.keys() == {"block", *arguments}
        assert entry["block"] == type(block).__name__
        changed = {"gamma": block.gamma}
        if block is masked:
            changed |= {"tau0": 0.7, "mask": SEES.tolist(), "key_size": 4}
        defaults = {x: y.default for x, y in arguments.items() if x not in changed}
        assert {x: entry[x] for x in arguments} == defaults | changed
    assert stored == {
        "sampler": "chain", "v0": V0.tolist(), "width": 10, "depth": 5, "samples": 6, "seed": 1,
        "times": [0.1, 0.5], "radius": 100.0, "device": "cpu", "dtype": "float64", "keep": "V",
    }  # fmt: skip
    stored = sa.specification(sde(ShapedMLP(0.4), dtype="float32"))
    assert (stored["sampler"], stored["horizon"], stored["step"]) == ("sde", 0.5, 0.1)
    assert stored["dtype"] == "float32"
    assert stored["times"] == [0.0, 0.5]
    versions = json.loads(sde(ShapedMLP(0.4)).attrs["versions"])
    assert versions["shaped_attention"] == sa.__version__


def test_specifications_of_what_is_no_result(tmp_path):
    foreign = tmp_path / "foreign.nc"
    xr.Dataset({"temperature": ("x", [1.0, np.nan])}).to_netcdf(foreign, engine="h5netcdf")
    for other in (sa.load(foreign), {"specification": "{}"}):
        for function in (sa.specification, sa.layer_of, sa.rerun):
            with pytest.raises(
                ValueError, match=r"^result must be .* without the record of a call"
            ):
                function(other)


def test_another_format(tmp_path):
    result = chain(LAYER).assign_attrs(format=provenance.FORMAT + 1)
    loaded = sa.load(sa.save(result, tmp_path / "result.nc"))
    for function in (sa.specification, sa.layer_of, sa.rerun):
        with pytest.raises(ValueError, match=r"^result has format 5; this version reads only 4"):
            function(loaded)
    del loaded.attrs["format"]
    with pytest.raises(ValueError, match=r"^result has format None; this version reads only 4"):
        sa.specification(loaded)
