"""Result files: places that cannot be written, failures half-way, and files that are corrupt."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from tests.test_results import LAYER, SUFFIXES, assert_same, chain, contents, sde


@pytest.mark.parametrize("name", ["result", "result.csv", "result.NC", "result.nc.gz", "folder/"])
def test_other_suffixes(name, tmp_path):
    with pytest.raises(ValueError, match=r"^path must be a name that ends in \.nc or \.zarr; got"):
        sa.save(chain(LAYER), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@SUFFIXES
def test_places_that_cannot_be_written(suffix, tmp_path):
    (tmp_path / "file").write_text("kept")
    before = contents(tmp_path)
    for path in (tmp_path / "file" / f"a{suffix}", tmp_path / "file" / "b" / f"a{suffix}"):
        with pytest.raises(ValueError, match=rf"^path='{path}' cannot be written \(Not a dir"):
            sa.save(chain(LAYER), path)
    with pytest.raises(ValueError, match=r"cannot be written \(File name too long\)$"):
        sa.save(chain(LAYER), tmp_path / f"{'a' * 300}{suffix}")
    assert contents(tmp_path) == before


def test_a_file_is_not_replaced_by_a_folder_nor_a_folder_by_a_file(tmp_path):
    (tmp_path / "file.zarr").write_text("kept")
    (tmp_path / "folder.nc").mkdir()
    (tmp_path / "folder.nc" / "notes").write_text("kept")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"file\.zarr' cannot be written \(Not a directory\)$"):
        sa.save(chain(LAYER), tmp_path / "file.zarr")
    with pytest.raises(ValueError, match=r"folder\.nc' cannot be written \(Is a directory\)$"):
        sa.save(chain(LAYER), tmp_path / "folder.nc")
    assert contents(tmp_path) == before


@SUFFIXES
def test_what_cannot_be_saved(suffix, tmp_path):
    with pytest.raises(ValueError, match=r"^result must be a Dataset; got \{\}$"):
        sa.save({}, tmp_path / f"result{suffix}")
    odd = chain(LAYER).assign_attrs(odd=object())
    with pytest.raises(ValueError, match=r"^path='.*' cannot be written \(.+\)$"):
        sa.save(odd, tmp_path / f"result{suffix}")
    assert list(tmp_path.iterdir()) == []


@SUFFIXES
@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ValueError),
        (OSError("HDF5 says\nmany things"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
    ids=["disk full", "no number", "interrupt", "memory"],
)
def test_no_half_written_file_is_left(suffix, existing, error, raised, tmp_path, monkeypatch):
    path = tmp_path / f"result{suffix}"
    if existing:
        sa.save(chain(LAYER), path)
    before = contents(tmp_path)
    result = sde(LAYER)

    def write_half(self, target, *arguments, **options):
        target = Path(target)
        if suffix == ".zarr":
            target.mkdir()
            target = target / "half"
        target.write_text("half")
        raise error

    monkeypatch.setattr(xr.Dataset, "to_netcdf", write_half)
    monkeypatch.setattr(xr.Dataset, "to_zarr", write_half)
    with pytest.raises(raised) as caught:
        sa.save(result, path)
    if raised is ValueError:
        reason = error.strerror or "HDF5 says"
        assert str(caught.value) == f"path='{path}' cannot be written ({reason})"
    assert contents(tmp_path) == before


@SUFFIXES
@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
def test_the_old_result_survives_a_move_that_fails(suffix, error, tmp_path, monkeypatch):
    path = sa.save(chain(LAYER), tmp_path / f"result{suffix}")
    before = contents(tmp_path)
    result, move = sde(LAYER), Path.rename
    moves = []

    def fail(self, target):
        if tmp_path in (self.parent, Path(target).parent):  # not within a Zarr store
            moves.append((self, target))
        if target == path and self.name == path.name:  # the draft, not the old one coming back
            raise error
        return move(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ValueError if isinstance(error, OSError) else KeyboardInterrupt):
        sa.save(result, path)
    assert contents(tmp_path) == before
    assert len(moves) == (1 if suffix == ".nc" else 3)


@SUFFIXES
def test_the_old_result_is_whole_until_the_new_one_is_in_place(suffix, tmp_path, monkeypatch):
    """The process could be killed before or after any move."""
    path = sa.save(chain(LAYER), tmp_path / f"result{suffix}")
    new, move = sde(LAYER), Path.rename

    def whole_results():
        """The old result and the draft, wherever they are: both, until the old one is replaced."""
        if suffix == ".nc":
            files = [file for file in tmp_path.rglob("*") if file.is_file()]
            return [sa.load(file) for file in files]
        stores = [mark.parent for mark in tmp_path.rglob(".zgroup")]
        return [xr.open_zarr(store, consolidated=False).load() for store in stores]

    seen = []

    def watch(self, target):
        if tmp_path not in (self.parent, Path(target).parent):  # within a Zarr store
            return move(self, target)
        seen.append(len(whole_results()))
        moved = move(self, target)
        seen.append(len(whole_results()))
        return moved

    monkeypatch.setattr(Path, "rename", watch)
    monkeypatch.setattr(Path, "replace", watch)
    sa.save(new, path)
    assert seen == ([2, 1] if suffix == ".nc" else [2, 2, 2, 2])
    assert list(tmp_path.iterdir()) == [path]
    assert_same(sa.load(path), new)


@pytest.mark.parametrize("name", ["result.nc", "result.zarr", "result"])
def test_nothing_to_load(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"^path='.*{name}': there is no such file or st"):
        sa.load(tmp_path / name)


def broken(tmp_path, kind):
    """A path at which there is no whole result."""
    path = tmp_path / f"result.{kind.split()[0]}"
    if kind.endswith("text"):
        path.write_text("no result")
    elif kind.endswith("folder"):
        path.mkdir()
    elif kind.endswith("empty"):
        path.touch()
    elif kind == "nc truncated":
        whole = sa.save(chain(LAYER), path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif kind.endswith("list"):
        path.mkdir()
        (path / "zarr.json").write_text("[]")
    elif kind == "zarr group only":
        sa.save(chain(LAYER), path)
        (path / ".zgroup").write_text("{")
    else:
        sa.save(chain(LAYER), path)
        chunk = path / "V" / "0.0.0.0"
        chunk.write_bytes(b"no chunk") if kind == "zarr corrupt" else chunk.unlink()
    return path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nc text", "not a netCDF file or Zarr store"),
        ("nc folder", "not a netCDF file or Zarr store .Is a directory"),
        ("nc empty", "not a netCDF file or Zarr store"),
        ("nc truncated", "not a netCDF file or Zarr store"),
        ("zarr with a list", "not a netCDF file or Zarr store"),
        ("zarr text", "not a netCDF file or Zarr store"),
        ("zarr folder", "not a netCDF file or Zarr store"),
        ("zarr group only", "not a netCDF file or Zarr store"),
        ("zarr corrupt", "not a netCDF file or Zarr store"),
        ("zarr lacks a chunk", "damaged since it was written .variable V."),
    ],
)
def test_corrupt_files(kind, reason, tmp_path):
    path = broken(tmp_path, kind)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"^path='{path}': {reason}") as caught:
        sa.load(path)
    assert "\n" not in str(caught.value)
    assert contents(tmp_path) == before


def test_missing_numbers_of_others_are_theirs(tmp_path):
    path = tmp_path / "foreign.nc"
    foreign = xr.Dataset({"temperature": ("x", [1.0, np.nan])})
    foreign.to_netcdf(path, engine="h5netcdf")
    xr.testing.assert_identical(sa.load(path), foreign)


def test_saved_files_are_netcdf4_and_zarr(tmp_path):
    """Other programs read them: what is looked at here is not read by xarray."""
    result = chain(LAYER)
    with h5py.File(sa.save(result, tmp_path / "a.nc")) as file:
        np.testing.assert_array_equal(file["V"], result.V)
        assert file.attrs["sampler"] == "chain"
    store = sa.save(result, tmp_path / "a.zarr")
    assert json.loads((store / ".zattrs").read_text())["sampler"] == "chain"
    assert json.loads((store / "V" / ".zarray").read_text())["shape"] == list(result.V.shape)
