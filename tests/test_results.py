"""Results: saved, loaded and run again without losing a bit."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa

V0 = sa.equicorrelated(3, 0.2, 1.3)
MASK = np.array([[True, False, True], [True, True, False], [False, False, True]])


@dataclass(frozen=True)
class Doubled(sa.ShapedMLP):
    """A block of a user's own module."""


RUNS = {
    "network": lambda: sa.simulate_network(
        [sa.ShapedAttention(0.5, mask=MASK, key_size=2), sa.ShapedMLP(0.4)], V0,
        width=8, depth=4, samples=9, seed=3, save_every=2,
    ),
    "chain": lambda: sa.simulate_chain(
        [sa.ShapedAttention(0.5, mask="causal"), Doubled(0.4)], V0,
        width=10, depth=5, samples=9, seed=2**70, times=[0.1, 0.5], radius=3.0,
    ),
    "sde": lambda: sa.integrate_sde(
        sa.ShapedAttention(np.float64(0.6), 0.5), V0, horizon=0.6, step=0.1, samples=9, radius=2.6
    ),
    "float32": lambda: sa.simulate_chain(
        sa.ShapedAttention(0.5), V0, width=10, depth=5, samples=9, dtype="float32"
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize("name", RUNS)


@EACH
@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_round_trip(name, suffix, tmp_path):
    result = RUNS[name]()
    path = sa.save(result, tmp_path / "new" / f"result{suffix}")
    assert sa.save(result, path) == path
    xr.testing.assert_identical(sa.load(path), result)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@EACH
def test_rerun_gives_the_same_bits(name, tmp_path):
    result = RUNS[name]()
    again = sa.rerun(sa.load(sa.save(result, tmp_path / "result.nc")))
    xr.testing.assert_identical(again, result)


def test_some_paths_of_these_stop():
    assert 0 < np.isfinite(RUNS["sde"]().stopping_time).sum() < 9


def test_rerun_with_changes():
    result = RUNS["chain"]()
    other = sa.rerun(result, seed=5)
    assert not np.isclose(other.V[-1], result.V[-1]).all()
    assert sa.rerun(result, save_every=1).sizes["time"] == 6
    assert sa.rerun(result, samples=12).sizes["sample"] == 12
    with pytest.raises(ValueError, match="width=2"):
        sa.rerun(result, width=2)


def test_specification_and_layer():
    result = RUNS["network"]()
    stored = sa.specification(result)
    assert stored["width"] == 8
    assert stored["seed"] == 3
    assert sa.layer_of(result) == [
        sa.ShapedAttention(0.5, mask=MASK, key_size=2), sa.ShapedMLP(0.4)
    ]  # fmt: skip
    assert json.loads(result.attrs["versions"])["shaped_attention"] == sa.__version__
    assert isinstance(sa.layer_of(RUNS["chain"]())[1], Doubled)


def test_tables_can_be_saved(tmp_path):
    table = sa.compare(RUNS["sde"](), RUNS["float32"](), time=0.0)
    for suffix in (".nc", ".zarr"):
        xr.testing.assert_identical(sa.load(sa.save(table, tmp_path / f"t{suffix}")), table)


def test_places_that_cannot_be_written(tmp_path):
    result = RUNS["float32"]()
    with pytest.raises(ValueError, match=r"a name that ends in .nc or .zarr"):
        sa.save(result, tmp_path / "result.csv")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="cannot be written"):
        sa.save(result, tmp_path / "file" / "result.nc")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("suffix", "method"), [(".nc", "to_netcdf"), (".zarr", "to_zarr")])
def test_a_failed_write_leaves_what_was_there(suffix, method, tmp_path, monkeypatch):
    old, new = RUNS["float32"](), RUNS["network"]()
    path = sa.save(old, tmp_path / f"result{suffix}")
    write = getattr(xr.Dataset, method)

    def half(self, target, **options):
        write(self, target, **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, method, half)
    with pytest.raises(ValueError, match="No space left on device"):
        sa.save(new, path)
    xr.testing.assert_identical(sa.load(path), old)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_is_no_result(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.nc"):
        sa.load(tmp_path / "none.nc")
    (tmp_path / "broken.nc").write_text("no netCDF")
    with pytest.raises(ValueError, match=r"broken.nc.*not a netCDF"):
        sa.load(tmp_path / "broken.nc")
    foreign = xr.Dataset({"x": ("y", [1.0])})
    with pytest.raises(ValueError, match="a Dataset made by a sampler"):
        sa.specification(sa.load(sa.save(foreign, tmp_path / "foreign.nc")))
    future = RUNS["float32"]().assign_attrs(format=99)
    with pytest.raises(ValueError, match="format 99"):
        sa.rerun(future)
    result = RUNS["chain"]()
    stored = sa.specification(result)
    stored["layer"][0] |= {"module": "os", "block": "system"}
    with pytest.raises(ValueError, match="it is no Block"):
        sa.layer_of(result.assign_attrs(specification=json.dumps(stored)))
