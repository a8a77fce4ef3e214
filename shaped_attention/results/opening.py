"""Opening of netCDF files and Zarr stores, once the sizes that they declare are checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import xarray as xr
import zarr

from shaped_attention.io.declared_sizes import check_declared
from shaped_attention.io.storage import reason


@contextmanager
def opened(path: Path, max_bytes: int, coordinates_only: bool = False) -> Iterator[xr.Dataset]:
    """Open a netCDF file or a Zarr store, of which only one-dimensional coordinates are read.

    Raises
    ------
    FileNotFoundError
        If there is no such file or store.
    ValueError
        If it is not readable, or declares more than `max_bytes` bytes; with `coordinates_only`, in
        its one-dimensional arrays.
    """
    place = f"path={str(path)!r}"
    if not path.exists():
        raise FileNotFoundError(f"{place}: there is no such file or store")
    with reading(place):
        declared = _declared(path, one_dimensional=coordinates_only)
    check_declared(place, sum(declared.values()), max_bytes)
    with reading(place):
        if path.suffix == ".zarr":
            _check_metadata(path)
            dataset = xr.open_zarr(path, consolidated=False, chunks=None)
        else:
            dataset = xr.open_dataset(path, engine="h5netcdf")
    with dataset:
        yield dataset


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Report whatever the libraries raise for files of other programs as a ValueError."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{place}: not a netCDF file or Zarr store ({reason(error)})") from error


def _declared(path: Path, one_dimensional: bool = False) -> dict[str, int]:
    """Return the bytes that a netCDF file or a Zarr store declares for each variable, by its name.

    With `one_dimensional`, only for those with one dimension, which are read when it is opened.
    """
    arrays = _zarr_arrays(path) if path.suffix == ".zarr" else _netcdf_arrays(path)
    return {
        name: math.prod(shape) * size
        for name, shape, size in arrays
        if not one_dimensional or len(shape) == 1
    }


def _check_metadata(path: Path) -> None:
    """Raise ValueError if a file that the consolidated metadata of a Zarr store list is missing."""
    if (copy := path / ".zmetadata").exists():
        for name in json.loads(copy.read_bytes())["metadata"]:
            if not (path / name).exists():
                raise ValueError(f"{name} is missing")


def _netcdf_arrays(path: Path) -> Iterator[tuple[str, tuple[int, ...], int]]:
    with h5py.File(path, "r") as file:
        for name, entry in file.items():
            if isinstance(entry, h5py.Dataset) and entry.shape is not None:
                # A library reads whole chunks, which may be larger than what is in them.
                yield name, _read(entry.shape, entry.chunks), entry.dtype.itemsize


def _zarr_arrays(path: Path) -> Iterator[tuple[str, tuple[int, ...], int]]:
    for name, array in zarr.open_group(path, mode="r", use_consolidated=False).arrays():
        # Text of any length has no fixed size; a pointer is the least it takes.
        yield name, _read(array.shape, array.chunks), getattr(array.dtype, "itemsize", 8)


def _read(shape: tuple[int, ...], chunks: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the sizes that reading an array takes: at least those of a chunk."""
    return tuple(map(max, shape, chunks or shape))
