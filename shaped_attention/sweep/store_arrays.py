"""The arrays of a sweep's store as Zarr files: drafted, written in chunks, and checked when read.

A chunk holds the units of several cells if these are small, and else one unit. It is rewritten
whole and moved into place, after the ledger has its checksum (`store_records`).
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import Zstd
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest
from zarr.storage import LocalStore

from shaped_attention.io.storage import sync, sync_below, write_durably
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_layout import Layout, attributes, coordinates, layouts
from shaped_attention.sweep.store_records import Ledger, StoreError

_LEVEL = 1
"""Of Zstandard, the compressor of the chunks."""

_COMPRESSOR: dict[str, Any] = {"id": "zstd", "level": _LEVEL}

_CHUNK_BYTES = 2**20
"""Size up to which units of neighbouring cells share a chunk."""

_HELD_BYTES = 2**28
"""Size of the chunks that the writer keeps in memory between commits."""

_LABELS = 4096
"""Values of an axis in a chunk of its coordinate."""

_SUMMARY = ".zmetadata"
"""The consolidated metadata: the file that xarray reads first."""


def draft_arrays(
    draft: Path, sweep: Sweep, versions: Mapping[str, str], ledger: Ledger
) -> dict[str, bytes]:
    """Write the arrays of a store without samples to `draft`, flushed; return its files.

    Their chunks have the shapes in the ledger: `chunk_shapes` of the sweep for which the store was
    made.
    """
    shutil.rmtree(draft, ignore_errors=True)
    labels = {name: {"chunks": (_LABELS,)} for name in sweep.axes}
    coordinates(sweep, versions).to_zarr(
        draft, mode="w", zarr_format=2, consolidated=False, encoding=labels
    )
    group = zarr.open_group(draft, mode="r+", zarr_format=2)
    for name, layout in layouts(sweep).items():
        group.create_array(
            name,
            shape=(len(sweep.samplers), *sweep.shape, *layout.shape),
            chunks=tuple(ledger.chunks()[name]),
            dtype=layout.dtype,
            fill_value=layout.fill,
            compressors=_COMPRESSOR,
            attributes={
                "_ARRAY_DIMENSIONS": ["sampler", *sweep.axes, *layout.dims], **attributes(name)
            },
        )  # fmt: skip
    zarr.consolidate_metadata(draft, zarr_format=2)
    sync_below(draft)
    files = sorted(file for file in draft.rglob("*") if file.is_file())
    return {file.relative_to(draft).as_posix(): file.read_bytes() for file in files}


def place_arrays(draft: Path, files: Collection[str], data: Path) -> None:
    """Move the files of a draft without samples into `data`, so that arrays there have its sizes.

    Chunks stay as they are, because their sizes and their places along axes and blocks are the same
    in every larger sweep.
    """
    # Until the last is moved, xarray reads the old sizes. The chunks come directly before it: those
    # of coordinates that change their type (longer text, or times that become fractions of the
    # horizon) cannot be read in between. Chunks of numbers on an axis can be read at all times.
    for name in sorted(files, key=lambda name: (name == _SUMMARY, Path(name).name[0] != ".", name)):
        (data / name).parent.mkdir(exist_ok=True)
        (draft / name).replace(data / name)
    sync_below(data)
    shutil.rmtree(draft)


def chunk_shapes(sweep: Sweep) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the chunks of a new store, by the names of its arrays."""
    return {
        name: (*_shared(sweep, layout), *layout.chunk) for name, layout in layouts(sweep).items()
    }


def _shared(sweep: Sweep, layout: Layout) -> tuple[int, ...]:
    """Return the sizes of a chunk along sampler and axes: whole last axes, as far as they fit."""
    size = np.dtype(layout.dtype).itemsize * math.prod(layout.chunk)
    sizes = []
    for length in reversed(sweep.shape):
        sizes.append(max(1, min(length, _CHUNK_BYTES // size)))
        size *= length
    return (1, *reversed(sizes))


class Arrays:
    """Arrays in the folder `data` of a store, into which the units of a sweep are written.

    The ledger has the shapes of the chunks, and the checksums that a file may have now.
    """

    def __init__(self, data: Path, sweep: Sweep, ledger: Ledger) -> None:
        self._data, self._sweep, self._ledger = data, sweep, ledger
        self._layouts, self._chunks = layouts(sweep), ledger.chunks()
        self._held: dict[str, NDArray[Any]] = {}
        self._changed: dict[str, None] = {}

    def write(self, unit: Unit, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put the arrays from `run_unit` into their chunks, which `changed` returns."""
        for name, (key, place) in self._places(unit).items():
            self._chunk(name, key)[place] = arrays[name]
            self._changed[key] = None

    def clear(self, unit: Unit) -> None:
        """Take the samples of a unit out of its chunks; a damaged chunk loses all its units."""
        for name, (key, place) in self._places(unit).items():
            if (self._data / key).exists():
                try:
                    self._chunk(name, key)[place] = self._layouts[name].fill or 0
                    self._changed[key] = None
                except StoreError:
                    (self._data / key).unlink()

    def changed(self) -> dict[str, bytes]:
        """Return the files of chunks that were written to since the last call."""
        files = {key: bytes(Zstd(_LEVEL).encode(self._held[key])) for key in self._changed}
        self._changed = {}
        if sum(chunk.nbytes for chunk in self._held.values()) > _HELD_BYTES:
            self._held = {}
        return files

    def put(self, files: Mapping[str, bytes]) -> None:
        """Announce files in the ledger and write them, each completely or not at all, to disk."""
        self._ledger.announce(files)
        for key, content in files.items():
            write_durably(self._data / key, content)
        for name in self._layouts:
            sync(self._data / name)

    def read(self, name: str, unit: Unit) -> NDArray[Any]:
        """Return one of the arrays of a finished unit, such as moments (time, observable, 2)."""
        key, place = self._places(unit)[name]
        return np.array(self._chunk(name, key)[place])

    def damaged(self) -> set[str]:
        """Return the files that are missing, or differ from their checksums or lack them."""
        ledger = self._ledger
        lost, known = ledger.missing(), set(ledger.files())
        for name in known - lost:
            # Twice, since a run may have replaced it between the two looks.
            if not any(ledger.matches(name, (self._data / name).read_bytes()) for _ in range(2)):
                lost.add(name)
        there = {f"{file.parent.name}/{file.name}" for file in self._data.glob("*/*")} - known
        # Again, since a run may have written them after the look at the ledger.
        return lost | set(filter(self.are_samples, there.difference(ledger.files())))

    def are_samples(self, key: str) -> bool:
        """Return whether a file is a chunk of units, and not a coordinate or metadata."""
        array, _, file = key.rpartition("/")
        return array in self._layouts and not file.startswith(".")

    def keys(self, unit: Unit) -> Iterator[str]:
        """Yield the names of the files that hold a unit, one per array."""
        return (key for key, _ in self._places(unit).values())

    def _places(self, unit: Unit) -> dict[str, tuple[str, tuple[int | slice, ...]]]:
        """Return the file of each array that holds a unit, and the unit's place in the chunk."""
        lead = (unit.sampler, *self._sweep.index(unit.cell))
        samples = slice(self._sweep.block_samples(unit.block))
        places: dict[str, int | slice] = {"block": 0, "sample": samples}
        files = {}
        for name, layout in self._layouts.items():
            outer = [divmod(i, size) for i, size in zip(lead, self._chunks[name], strict=False)]
            numbers = [number for number, _ in outer]
            numbers += [unit.block if dim in places else 0 for dim in layout.dims]
            inner = (places.get(dim, slice(None)) for dim in layout.dims)
            file = f"{name}/{'.'.join(map(str, numbers))}"
            files[name] = file, (*(place for _, place in outer), *inner)
        return files

    def _chunk(self, name: str, key: str) -> NDArray[Any]:
        """Return a chunk in memory: that of the file, or an empty one."""
        if key not in self._held:
            layout, file = self._layouts[name], self._data / key
            chunk = np.full(self._chunks[name], layout.fill or 0, dtype=layout.dtype)
            if file.exists():
                content = file.read_bytes()
                if not self._ledger.matches(key, content):
                    raise StoreError(f"{file}: damaged; `sweep repair` mends it")
                # Into memory of the size that is due, whatever the file declares.
                Zstd().decode(content, out=chunk)
            self._held[key] = chunk
        return self._held[key]


class CheckedFiles(LocalStore):
    """Files of a group for reading, each compared with the checksums that the ledger allows now."""

    def __init__(self, root: Path, ledger: Ledger) -> None:
        super().__init__(root, read_only=True)
        self._ledger = ledger

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return a file's content; raise StoreError if it is damaged or missing."""
        for attempt in range(3):
            whole = await super().get(key, prototype)
            known = bool(self._ledger.sums(key))
            if not known or (whole and self._ledger.matches(key, whole.to_bytes())):
                return await super().get(key, prototype, byte_range) if byte_range else whole
            # A run may have replaced it between the two looks.
            await asyncio.sleep(0.05 * attempt)
        state = "missing" if whole is None else "damaged"
        raise StoreError(
            f"{self.root / key}: {state} since it was written; `sweep repair` mends it"
        )
