"""Records in the folder of a sweep: its specification, its ledger, and the last run.

The ledger says which units are finished, and has the checksums of the files that hold them. A new
store's ledger begins with the shapes of the chunks. A commit appends a line ``{"files": ...}`` with
the new checksums, writes the files, and appends a line for each unit, or ``{"settled": true}``. A
file may therefore have the checksum of the last commit that was completed, or of the one under way:
a process that dies in between leaves one of the two.

Files have their names in `data.zarr`; `SPECIFICATION`, beside it, has a checksum too. Records
identify a unit by its block, the indices of its cell along the axes, and its sampler.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shaped_attention.io.records import append_records, read_records
from shaped_attention.sweep.code_identity import code_records
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import FORMAT, Sweep

SPECIFICATION = "sweep.json"
"""File with the sweep that the store belongs to."""

DATA = "data.zarr"
"""Folder with the arrays."""

_LEDGER = "ledger.jsonl"


def checksum(content: bytes) -> list[int]:
    """Return the checksum of a file and its length."""
    return [zlib.crc32(content), len(content)]


class StoreError(RuntimeError):
    """The store cannot be used or written; the units in the ledger are intact."""


class UnwritableError(StoreError):
    """The disk is full, or the folder can no longer be written."""


class Ledger:
    """The ledger of the store in a folder, read again when it has grown."""

    def __init__(self, folder: Path) -> None:
        self._file, self._data = folder / _LEDGER, folder / DATA
        self._size = -1
        self._units: dict[tuple[int, tuple[int, ...], int], tuple[int, float]] = {}
        self._sums: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._chunks: dict[str, list[int]] = {}

    def begin(self, chunks: Mapping[str, Sequence[int]]) -> None:
        """Start a new ledger with the shapes of the chunks."""
        self._file.unlink(missing_ok=True)
        append_records(self._file, [{"chunks": chunks}])

    def chunks(self) -> dict[str, list[int]]:
        """Return the shape of a chunk of each array; StoreError if the ledger's line is gone."""
        self._read()
        if not self._chunks:
            raise StoreError(
                f"{self._file}: the first line is missing or damaged, so that no unit can be "
                "verified without a copy of the ledger (xarray can open data.zarr as it is)"
            )
        return self._chunks

    @property
    def empty(self) -> bool:
        """Whether no unit was ever finished."""
        self._read()
        return not self._units

    def units(self, sweep: Sweep) -> dict[Unit, tuple[int, float]]:
        """Return the units in the ledger, with their samples and seconds."""
        self._read()
        return {unit_of(sweep, name): entry for name, entry in self._units.items()}

    def sums(self, name: str) -> Collection[tuple[int, ...]]:
        """Return the checksums that a file may have now; none if it was never written."""
        self._read()
        return self._sums.get(name, ())

    def files(self) -> Collection[str]:
        """Return the files in `data.zarr` that have checksums."""
        self._read()
        return self._sums.keys() - {SPECIFICATION}

    def matches(self, name: str, content: bytes) -> bool:
        """Return whether a file may have this content now."""
        return tuple(checksum(content)) in self.sums(name)

    def missing(self) -> set[str]:
        """Return the files of the arrays that are not there, or have another length."""

        def differs(name: str) -> bool:
            try:
                length = os.stat(f"{self._data}/{name}").st_size
            except OSError:
                return True
            return all(length != due for _, due in self.sums(name))

        # Twice, since a run may have replaced a file between the two looks.
        return set(filter(differs, filter(differs, self.files())))

    def announce(self, files: Mapping[str, bytes]) -> None:
        """Append the checksums of files that are about to be written."""
        sums = {name: checksum(content) for name, content in files.items()}
        append_records(self._file, [{"files": sums}])

    def add(self, units: Iterable[dict[str, Any]] = ({"settled": True},)) -> None:
        """Append finished units, or none; the files announced last are on disk."""
        append_records(self._file, list(units))

    def _read(self) -> None:
        size = os.stat(self._file).st_size if self._file.exists() else 0
        if size == self._size:
            return
        self._size = size
        self._units, self._sums, self._chunks = {}, {}, {}
        pending: dict[str, tuple[int, ...]] = {}
        for record in read_records(self._file):
            if "files" in record:
                for name, entry in record["files"].items():
                    self._sums[name] = (*self._sums.get(name, ()), tuple(entry))
                    pending[name] = tuple(entry)
                continue
            if "chunks" in record:
                self._chunks = record["chunks"]
                continue
            self._sums |= {name: (entry,) for name, entry in pending.items()}
            pending = {}
            if "unit" in record:
                block, index, sampler = record["unit"]
                self._units[block, tuple(index), sampler] = (
                    int(record["samples"]), float(record["seconds"]),
                )  # fmt: skip


def kept_sweep(folder: Path) -> Sweep:
    """Return the sweep that the store has on disk now; StoreError if it has another format."""
    text = (folder / SPECIFICATION).read_text(encoding="utf-8")
    try:
        written = json.loads(text).get("format")
    except json.JSONDecodeError as error:
        raise ValueError(f"{error}; the attribute `sweep` of data.zarr has a copy") from None
    if written != FORMAT:
        raise StoreError(
            f"{folder}: this store has the format {written}, and this version of the package reads "
            f"only {FORMAT}; use another folder, or the version that made it"
        )
    return Sweep.from_json(text)


def text_digest(folder: Path) -> str:
    """Return a digest of the specification on disk, which only an extension changes."""
    return hashlib.sha256((folder / SPECIFICATION).read_bytes()).hexdigest()


def first_versions(folder: Path) -> dict[str, str]:
    """Return the versions of packages that made the first units; empty if the record is gone."""
    records = [record for record in code_records(folder) if not record["units"]]
    return dict(records[-1]["versions"]) if records else {}


def unit_of(sweep: Sweep, name: Iterable[Any]) -> Unit:
    """Return the unit that records call so."""
    block, index, sampler = name
    return Unit(block, sweep.number(index), sampler)


def name_of(sweep: Sweep, unit: Unit) -> list[Any]:
    """Return the name of a unit in records."""
    return [unit.block, sweep.index(unit.cell), unit.sampler]


def last_run(folder: Path) -> dict[str, Any]:
    """Return the record of the last run: `seconds`, `target`, `reasons`; empty before the first."""
    records = read_records(folder / "runs.jsonl")
    return records[-1] if records else {}
