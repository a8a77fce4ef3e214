"""The Zarr arrays of a sweep's store as files: drafted, moved into place, written in chunks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from shaped_attention.io.storage import sync, write_durably
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_layout import attributes, coordinates, layouts
from shaped_attention.sweep.work_units import Unit

DRAFT = ".data.zarr.draft"
"""Folder inside a store's in which its arrays are drafted."""

_COMPRESSOR: dict[str, Any] = {"id": "zstd", "level": 1}

_SUMMARY = ".zmetadata"
"""The consolidated metadata: the file that xarray reads first."""


def draft_arrays(draft: Path, sweep: Sweep, versions: Mapping[str, str]) -> None:
    """Write the arrays of a store without any samples to `draft`, and flush them to disk."""
    shutil.rmtree(draft, ignore_errors=True)
    lead = ("sampler", *sweep.axes)
    found = coordinates(sweep, versions)
    # One value per chunk, so that an extension adds chunks and leaves the others as they are.
    single = {name: {"chunks": (1,)} for name in sweep.axes}
    found.to_zarr(draft, mode="w", zarr_format=2, consolidated=False, encoding=single)
    group = zarr.open_group(draft, mode="r+", zarr_format=2)
    for name, layout in layouts(sweep).items():
        group.create_array(
            name,
            shape=(len(sweep.samplers), *sweep.shape, *layout.shape),
            chunks=(*(1 for _ in lead), *layout.chunk),
            dtype=layout.dtype,
            fill_value=layout.fill,
            compressors=_COMPRESSOR,
            attributes={"_ARRAY_DIMENSIONS": [*lead, *layout.dims], **attributes(name)},
        )
    zarr.consolidate_metadata(draft, zarr_format=2)
    os.sync()


def enlarge_arrays(draft: Path, data: Path) -> None:
    """Give the arrays in `data` the sizes, coordinates and attributes of those in `draft`.

    The draft has no samples. Chunks stay as they are, because their sizes and their places along
    axes and blocks are the same in every larger sweep.
    """
    files = [file for file in draft.rglob("*") if file.is_file()]
    # Until the last is moved, xarray reads the old sizes. The chunks come directly before it: those
    # of coordinates that change their type (longer text, or times that become fractions of the
    # horizon) cannot be read in between. Chunks of numbers on an axis can be read at all times.
    for file in sorted(files, key=lambda file: (file.name == _SUMMARY, file.name[0] != ".", file)):
        file.replace(data / file.relative_to(draft))
    os.sync()
    shutil.rmtree(draft)


class Arrays:
    """Arrays of a store, into which units are written.

    Parameters
    ----------
    data
        Folder of the Zarr group.
    sweep
        The sweep whose units they hold.
    """

    def __init__(self, data: Path, sweep: Sweep) -> None:
        self._data, self._sweep = data, sweep
        self._layouts = layouts(sweep)
        self._opened: dict[str, zarr.Array[Any]] = {}

    def write(self, unit: Unit, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the arrays from `run_unit` into the place of the unit."""
        for name in self._layouts:
            self._array(name)[self._region(unit, name)] = arrays[name]

    def sync(self) -> None:
        """Flush the entries of the folders to disk."""
        for name in self._layouts:
            sync(self._data / name)

    def moments(self, unit: Unit) -> NDArray[np.float64]:
        """Return moments (time, observable, 2) of a finished unit."""
        return np.asarray(self._array("moments")[self._region(unit, "moments")])

    def chunks(self, unit: Unit) -> Iterator[Path]:
        """Yield the files of a unit, one per array."""
        for name, layout in self._layouts.items():
            own = [unit.block if dim in ("block", "sample") else 0 for dim in layout.dims]
            key = (unit.sampler, *self._sweep.index(unit.cell), *own)
            yield self._data / name / ".".join(map(str, key))

    def _array(self, name: str) -> zarr.Array[Any]:
        if name not in self._opened:
            config: Any = {"write_empty_chunks": True}
            files = _DurableFiles(self._data)
            self._opened[name] = zarr.open_array(
                files, path=name, mode="r+", zarr_format=2, config=config
            )
        return self._opened[name]

    def _region(self, unit: Unit, name: str) -> tuple[int | slice, ...]:
        """Return the region of a unit in an array."""
        first = unit.block * self._sweep.block
        samples = slice(first, first + self._sweep.block_samples(unit.block))
        own: dict[str, int | slice] = {"block": unit.block, "sample": samples}
        lead = (unit.sampler, *self._sweep.index(unit.cell))
        return (*lead, *(own.get(dim, slice(None)) for dim in self._layouts[name].dims))


class _DurableFiles(LocalStore):
    """Files of Zarr, each written completely or not at all."""

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file and flush it to disk."""
        write_durably(self.root / key, value.to_bytes())
