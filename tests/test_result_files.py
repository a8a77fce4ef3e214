"""Result files are whole or not there, and those that are corrupt are refused."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from tests.test_provenance import assert_same


def run(samples=6):
    return sa.simulate_chain(sa.ShapedAttention(0.5), np.eye(3), width=10, depth=5, samples=samples)


def contents(folder):
    """Every file and folder below, hidden ones too."""
    found = sorted(folder.rglob("*"))
    return {path: path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("result.csv", r"^path must be a name that ends in \.nc; got"),
        ("folder.nc", r"cannot be written \(Is a directory\)$"),
    ],
)
def test_places_that_cannot_be_written(place, message, tmp_path):
    (tmp_path / "folder.nc").mkdir()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=message):
        sa.save(run(), tmp_path / place)
    assert contents(tmp_path) == before


def test_the_old_result_is_whole_until_the_new_one_is_in_place(tmp_path, monkeypatch):
    """The process could be killed before or after the move."""
    path = sa.save(run(), tmp_path / "result.nc")
    new, move, seen = run(7), Path.replace, []

    def whole_results():
        return [sa.load(file) for file in tmp_path.rglob("*") if file.is_file()]

    def watch(self, target):
        seen.append(len(whole_results()))
        moved = move(self, target)
        seen.append(len(whole_results()))
        return moved

    monkeypatch.setattr(Path, "replace", watch)
    sa.save(new, path)
    assert seen == [2, 1]
    assert_same(sa.load(path), new)


def test_large_specifications(tmp_path):
    """A covariance of 64 tokens is more than the 64 KB of a classic HDF5 attribute."""
    x = np.random.default_rng(0).standard_normal((64, 80))
    wide = sa.simulate_chain(
        sa.ShapedAttention(0.5), sa.covariance_of(x), width=64, depth=1, samples=1
    )
    assert len(wide.attrs["specification"]) > 2**16
    assert_same(sa.load(sa.save(wide, tmp_path / "result.nc")), wide)


@pytest.mark.parametrize("kind", ["text", "truncated", "none"])
def test_corrupt_files(kind, tmp_path):
    path = tmp_path / "result.nc"
    if kind == "text":
        path.write_text("no result")
    elif kind == "truncated":
        whole = sa.save(run(), path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    expected = FileNotFoundError if kind == "none" else ValueError
    message = "there is no such file" if kind == "none" else "not a netCDF file"
    with pytest.raises(expected, match=rf"^path='{path}': {message}") as caught:
        sa.load(path)
    assert "\n" not in str(caught.value)


def test_other_programs_read_the_files(tmp_path):
    """They are netCDF-4; and files of others are read as they are."""
    result = run()
    with h5py.File(sa.save(result, tmp_path / "a.nc")) as file:
        np.testing.assert_array_equal(file["V"], result.V)
        assert file.attrs["sampler"] == "chain"
    foreign = xr.Dataset({"temperature": ("x", [1.0, np.nan])})
    foreign.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    xr.testing.assert_identical(sa.load(tmp_path / "b.nc"), foreign)
