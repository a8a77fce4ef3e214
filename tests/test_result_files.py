"""Result files: places that cannot be written, failures half-way, and files that are corrupt."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from tests.test_results import LAYER, assert_same, chain, contents, sde


@pytest.mark.parametrize("name", ["result", "result.csv", "result.NC", "result.nc.gz", "folder/"])
def test_other_suffixes(name, tmp_path):
    with pytest.raises(ValueError, match=r"^path must be a name that ends in \.nc; got"):
        sa.save(chain(LAYER), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("kept")
    before = contents(tmp_path)
    for path in (tmp_path / "file" / "a.nc", tmp_path / "file" / "b" / "a.nc"):
        with pytest.raises(ValueError, match=rf"^path='{path}' cannot be written \(Not a dir"):
            sa.save(chain(LAYER), path)
    with pytest.raises(ValueError, match=r"cannot be written \(File name too long\)$"):
        sa.save(chain(LAYER), tmp_path / f"{'a' * 300}.nc")
    assert contents(tmp_path) == before


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    (tmp_path / "folder.nc").mkdir()
    (tmp_path / "folder.nc" / "notes").write_text("kept")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"folder\.nc' cannot be written \(Is a directory\)$"):
        sa.save(chain(LAYER), tmp_path / "folder.nc")
    assert contents(tmp_path) == before


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match=r"^result must be a Dataset; got \{\}$"):
        sa.save({}, tmp_path / "result.nc")
    odd = chain(LAYER).assign_attrs(odd=object())
    with pytest.raises(ValueError, match=r"^path='.*' cannot be written \(.+\)$"):
        sa.save(odd, tmp_path / "result.nc")
    assert list(tmp_path.iterdir()) == []


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
def test_no_half_written_file_is_left(existing, error, raised, tmp_path, monkeypatch):
    path = tmp_path / "result.nc"
    if existing:
        sa.save(chain(LAYER), path)
    before = contents(tmp_path)
    result = sde(LAYER)

    def write_half(self, target, *arguments, **options):
        Path(target).write_text("half")
        raise error

    monkeypatch.setattr(xr.Dataset, "to_netcdf", write_half)
    with pytest.raises(raised) as caught:
        sa.save(result, path)
    if raised is ValueError:
        reason = error.strerror or "HDF5 says"
        assert str(caught.value) == f"path='{path}' cannot be written ({reason})"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
def test_the_old_result_survives_a_move_that_fails(error, tmp_path, monkeypatch):
    path = sa.save(chain(LAYER), tmp_path / "result.nc")
    before = contents(tmp_path)

    def fail(self, target):
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ValueError if isinstance(error, OSError) else KeyboardInterrupt):
        sa.save(sde(LAYER), path)
    assert contents(tmp_path) == before


def test_the_old_result_is_whole_until_the_new_one_is_in_place(tmp_path, monkeypatch):
    """The process could be killed before or after the move."""
    path = sa.save(chain(LAYER), tmp_path / "result.nc")
    new, move, seen = sde(LAYER), Path.replace, []

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
    assert list(tmp_path.iterdir()) == [path]
    assert_same(sa.load(path), new)


@pytest.mark.parametrize("name", ["result.nc", "result"])
def test_nothing_to_load(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"^path='.*{name}': there is no such file"):
        sa.load(tmp_path / name)


def broken(tmp_path, kind):
    """A path at which there is no whole result."""
    path = tmp_path / "result.nc"
    if kind.endswith("text"):
        path.write_text("no result")
    elif kind.endswith("folder"):
        path.mkdir()
    elif kind.endswith("empty"):
        path.touch()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        whole = sa.save(chain(LAYER), path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    return path


@pytest.mark.parametrize("kind", ["text", "folder", "empty", "pipe", "truncated"])
def test_corrupt_files(kind, tmp_path):
    path = broken(tmp_path, kind)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"^path='{path}': not a netCDF file") as caught:
        sa.load(path)
    assert "\n" not in str(caught.value)
    assert contents(tmp_path) == before


def test_missing_numbers_of_others_are_theirs(tmp_path):
    path = tmp_path / "foreign.nc"
    foreign = xr.Dataset({"temperature": ("x", [1.0, np.nan])})
    foreign.to_netcdf(path, engine="h5netcdf")
    xr.testing.assert_identical(sa.load(path), foreign)


def test_saved_files_are_netcdf4(tmp_path):
    """Other programs read them: what is looked at here is not read by xarray."""
    result = chain(LAYER)
    with h5py.File(sa.save(result, tmp_path / "a.nc")) as file:
        np.testing.assert_array_equal(file["V"], result.V)
        assert file.attrs["sampler"] == "chain"
