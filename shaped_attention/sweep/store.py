"""The store of a sweep: a Zarr group for xarray, and a ledger of the units that are in it.

    FOLDER/sweep.json      the sweep that the store belongs to
    FOLDER/data.zarr/      arrays with the dimensions sampler, axes, block or sample, ...
    FOLDER/code.jsonl      digests of the code and versions of packages that made the units; a
                           further line for each change that was accepted
    FOLDER/ledger.jsonl    a line for each finished unit, with a checksum
    FOLDER/failures.jsonl  a line for each unit that was given up, with its traceback
    FOLDER/runs.jsonl      a line for each run: its target and time limit, and why each cell stopped
    FOLDER/extension.json  a larger sweep, to which the store is being extended
    FOLDER/lock            held while a run writes

A unit owns one chunk of every array. A chunk is written next to its place, flushed to disk and
moved there; only then does the ledger get its line. The units in the ledger are therefore complete,
whenever a process dies, and a unit that is written twice leaves the same bytes.

Records identify a unit by its block, the indices of its cell along the axes, and its sampler. The
ledger also has its number of samples. An extension appends to axes and samples, so it moves no
unit. It is decided once `extension.json` exists: if the process dies then, the extension is
completed when the store is opened next.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numpy.typing import NDArray

from shaped_attention.io.records import append_records, read_records
from shaped_attention.io.storage import reason, sync, write_durably
from shaped_attention.sweep.code_identity import Code, changes_since, code_of, note_code
from shaped_attention.sweep.faults import SweepFaultsError
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_arrays import (
    DRAFT,
    Arrays,
    checksum,
    checksums,
    chunk_shapes,
    draft_arrays,
)
from shaped_attention.sweep.store_extension import (
    announce,
    announced,
    enlarge,
    rewrite_metadata,
)
from shaped_attention.sweep.store_records import (
    SPECIFICATION,
    Ledger,
    StoreError,
    UnwritableError,
    first_versions,
    kept_sweep,
    last_run,
    name_of,
    unit_of,
    write_run,
)

_BEGUN = (DRAFT, ".sweep.json.draft", "code.jsonl", "ledger.jsonl", "lock")
"""Files that a process may leave behind if it dies while it creates a store."""

_UNREADABLE = (OSError, AttributeError, KeyError, TypeError, ValueError)
"""Exceptions from reading a file that is not a specification of a sweep."""

_PATIENCE = 0.2
"""Seconds to wait for a lock, because checking it (`running`) holds it for a moment."""

_EXTENSION_PATIENCE = 20.0
"""Seconds to wait for a lock whose holder is extending the store."""


class Store:
    """Folder of a sweep, opened or created.

    Raises
    ------
    StoreError
        If the folder belongs to another sweep, is not a store, or cannot be read or written.
    """

    def __init__(self, path: str | Path, sweep: Sweep | None = None) -> None:
        self.path = Path(path)
        self.ledger = Ledger(self.path)
        try:
            if not (self.path / "sweep.json").exists():
                if sweep is None:
                    copy = "; the attribute `sweep` of data.zarr has a copy of sweep.json"
                    there = (self.path / "data.zarr").exists()
                    raise StoreError(f"{self.path}: there is no sweep here{copy if there else ''}")
                self._begin(sweep)
        except (OSError, ValueError) as error:
            text = f"{self.path}: a sweep cannot be stored here ({reason(error)})"
            raise StoreError(text) from None
        try:
            self._finish_extension()
            self.sweep = self._read()
        except _UNREADABLE as error:
            text = f"{self.path}: the sweep here cannot be read ({_sentence(error)})"
            raise StoreError(text) from None
        if sweep is not None and sweep.digest != self.sweep.digest:
            names = ", ".join(sweep.differing(self.sweep))
            way = "`sweep extend` or " if sweep.enlarges(self.sweep) else ""
            raise StoreError(
                f"{self.path}: this store belongs to another sweep (different: {names}); {way}"
                "another folder is needed"
            )
        if sweep is not None:
            self.sweep = sweep
        self.arrays = self._arrays()

    def _arrays(self) -> Arrays:
        chunks = self.ledger.chunks()
        return Arrays(self.path / "data.zarr", self.sweep, chunks, self.ledger.sums)

    def _read(self) -> Sweep:
        sweep = kept_sweep(self.path)
        if not (allowed := self.ledger.sums(SPECIFICATION)):
            raise ValueError("ledger.jsonl is damaged: a line with checksums is missing")
        if tuple(checksum((self.path / SPECIFICATION).read_bytes())) not in allowed:
            raise ValueError(
                f"{SPECIFICATION} has changed since it was written; data.zarr/.zattrs has a copy"
            )
        # A sweep may return with another target or time limit; the latest apply.
        if last := last_run(self.path):
            sweep = sweep.with_limits(last["seconds"], last["target"])
        return sweep

    def _begin(self, sweep: Sweep) -> None:
        """Create the store, unless another process was faster; start again if one was cut off."""
        if self.path.exists() and any(
            entry.name not in (*_BEGUN, "sweep.json", "data.zarr") for entry in self.path.iterdir()
        ):
            raise StoreError(f"{self.path}: the folder is neither empty nor the store of a sweep")
        self.path.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if not (self.path / "sweep.json").exists():
                self._make(sweep)

    def _make(self, sweep: Sweep) -> None:
        data = self.path / "data.zarr"
        if data.exists():
            # An interrupted creation leaves empty arrays; anything else must not be replaced.
            if (self.path / "ledger.jsonl").exists() and self.ledger.empty:
                shutil.rmtree(data)
            else:
                raise StoreError(
                    f"{self.path}: the folder is neither empty nor the store of a sweep"
                )
        draft = self.path / DRAFT
        (self.path / "code.jsonl").unlink(missing_ok=True)
        note_code(self.path, code_of(sweep), 0, [])
        chunks, text = chunk_shapes(sweep), sweep.to_json().encode()
        draft_arrays(draft, sweep, first_versions(self.path), chunks)
        self.ledger.begin(chunks, checksums(draft) | {SPECIFICATION: checksum(text)})
        draft.rename(data)
        # Last: without it there is no store.
        write_durably(self.path / SPECIFICATION, text)
        sync(self.path)
        sync(self.path.parent)

    def extend(self, sweep: Sweep) -> None:
        """Extend the store to a larger sweep, completely or not at all, whenever a process dies.

        Units whose block has more samples in the larger sweep are to be drawn again.

        Raises
        ------
        StoreError
            If the folder cannot be written.
        """
        try:
            announce(self.path, sweep)
            enlarge(self.path)
        except OSError as error:
            raise UnwritableError(_unwritable(self.path, error)) from error
        self.sweep = self._read()
        self.arrays = self._arrays()

    def _finish_extension(self) -> None:
        """Complete an extension during which a process died."""
        if announced(self.path):
            with self.locked(_EXTENSION_PATIENCE):
                if announced(self.path):
                    enlarge(self.path)

    @contextmanager
    def locked(self, patience: float = _PATIENCE) -> Iterator[None]:
        """Hold the store's lock, which the system frees when the process dies.

        Raises
        ------
        StoreError
            If another run holds it for longer than `patience` seconds, or it cannot be created.
        """
        try:
            held = FileLock(self.path / "lock").acquire(timeout=patience)
        except Timeout:
            message = f"{self.path}: another run is writing to this store"
            raise StoreError(message) from None
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({reason(error)})") from None
        with held:
            yield

    @property
    def running(self) -> bool:
        """Whether a run holds the lock now."""
        try:
            with FileLock(self.path / "lock", timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def settle_code(self, accept: bool) -> Code:
        """Return the code of a new run; record it if it differs from that of the stored units.

        Raises
        ------
        StoreError
            If it differs and `accept` is false.
        """
        now = code_of(self.sweep)
        if changed := changes_since(self.path, now):
            units = len(self.finished())
            if units and not accept:
                raise StoreError(
                    f"{self.path}: its {units} units may come from different code "
                    f"({'; '.join(changed)}); another folder, or --accept-changed-code "
                    "(accept_changed_code=True), is needed"
                )
            try:
                note_code(self.path, now, units, changed if units else [])
            except OSError as error:
                raise UnwritableError(_unwritable(self.path, error)) from error
        return now

    def check_current(self) -> None:
        """Raise StoreError if the store was extended since it was opened; the lock is held."""
        pending = announced(self.path)
        if pending or kept_sweep(self.path).digest != self.sweep.digest:
            raise StoreError(f"{self.path}: this store has just been extended; try again")

    def finished(self) -> dict[Unit, float]:
        """Return the units whose samples are all in the store, and the seconds each took.

        A torn last line of the ledger does not count, nor does a unit of which a file is missing.
        """
        return self.finished_without(self.missing())

    def finished_without(self, lost: Collection[str]) -> dict[Unit, float]:
        """Return the finished units that need none of the files `lost`, and their seconds."""
        sweep, there = self.sweep, set(self.ledger.files()).difference(lost)
        return {
            unit: seconds
            for unit, (samples, seconds) in self.ledger.units(sweep).items()
            if samples == sweep.block_samples(unit.block)
            and there.issuperset(self.arrays.keys(unit))
        }

    def missing(self) -> set[str]:
        """Return the files of the arrays that are not there, or have another length."""
        data, there = self.path / "data.zarr", dict[str, int]()
        names = set(self.ledger.files()) - {SPECIFICATION}
        for folder in {name.rpartition("/")[0] for name in names}:
            if (data / folder).is_dir():
                for entry in os.scandir(data / folder):
                    there[f"{folder}/{entry.name}".lstrip("/")] = entry.stat().st_size

        def differs(name: str) -> bool:
            return there.get(name) not in {length for _, length in self.ledger.sums(name)}

        lost = set(filter(differs, names))
        # A run may have replaced a file after the look at its folder.
        there = {name: (data / name).stat().st_size for name in lost if (data / name).exists()}
        return set(filter(differs, lost))

    def damaged(self) -> set[str]:
        """Return the files that are missing, or differ from their checksums or lack them."""
        data, lost = self.path / "data.zarr", self.missing()
        known = set(self.ledger.files()) - {SPECIFICATION}
        for name in known - lost:
            # Twice, since a run may have replaced it between the two looks.
            if not any(self._matches(name, (data / name).read_bytes()) for _ in range(2)):
                lost.add(name)
        there = {f"{file.parent.name}/{file.name}" for file in data.glob("*/*")} - known
        # Again, since a run may have written them after the look at the ledger.
        return lost | set(filter(self.arrays.are_samples, there.difference(self.ledger.files())))

    def _matches(self, name: str, content: bytes) -> bool:
        return tuple(checksum(content)) in self.ledger.sums(name)

    def take_out(self, files: Collection[str]) -> None:
        """Delete damaged files, so that their units are drawn again; the lock is held.

        Damaged coordinates and metadata are written anew.
        """
        if not all(self.arrays.are_samples(name) for name in files):
            rewrite_metadata(self.path, self.sweep)
        for name in filter(self.arrays.are_samples, files):
            (self.path / "data.zarr" / name).unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Return units given up and not finished since: `unit`, `error` and `traceback`."""
        done = self.finished()
        records = read_records(self.path / "failures.jsonl")
        found = {unit_of(self.sweep, record): record for record in records}
        return [record | {"unit": unit} for unit, record in found.items() if unit not in done]

    def commit(self, results: Iterable[tuple[Unit, dict[str, NDArray[Any]], float]]) -> None:
        """Write finished units, and then the ledger's lines.

        Raises
        ------
        StoreError
            If the disk is full or the folder cannot be written.
        """
        lines = []
        try:
            for unit, arrays, seconds in results:
                self.arrays.write(unit, arrays)
                samples = self.sweep.block_samples(unit.block)
                record = {"unit": name_of(self.sweep, unit), "samples": samples}
                lines.append(record | {"seconds": round(seconds, 6)})
            files = self.arrays.changed()
            self.ledger.announce({name: checksum(content) for name, content in files.items()})
            self.arrays.put(files)
            self.ledger.add(lines)
        except OSError as error:
            raise UnwritableError(_unwritable(self.path, error)) from error

    def record_failure(self, unit: Unit, error: BaseException, trace: str) -> None:
        """Record a unit that was given up."""
        record = {
            "unit": name_of(self.sweep, unit),
            "error": f"{type(error).__name__}: {error}",
            "traceback": trace,
        }
        try:
            append_records(self.path / "failures.jsonl", [record])
        except OSError as cause:
            raise UnwritableError(_unwritable(self.path, cause)) from cause

    def note_run(self, reasons: dict[tuple[int, int], str]) -> None:
        """Record the target and time limit of the sweep, and why each (cell, sampler) stopped."""
        target = self.sweep.target
        rows = [
            [self.sweep.index(cell), sampler, why]
            for (cell, sampler), why in sorted(reasons.items())
        ]
        try:
            write_run(
                self.path,
                {
                    "seconds": self.sweep.seconds,
                    "target": None if target is None else asdict(target),
                    "reasons": rows,
                },
            )
        except OSError as error:
            raise UnwritableError(_unwritable(self.path, error)) from error

    def reasons(self) -> dict[tuple[int, ...], str]:
        """Return why cells stopped in the last run, by sampler and indices along the axes."""
        return {
            (sampler, *index): why for index, sampler, why in last_run(self.path).get("reasons", [])
        }


def _sentence(error: Exception) -> str:
    """Return what is wrong, in one line."""
    if isinstance(error, SweepFaultsError):
        return "; ".join(sentence for _, sentence in error.faults)
    if isinstance(error, KeyError | TypeError | AttributeError):
        return f"{type(error).__name__}: {error}"
    return reason(error)


def _unwritable(path: Path, error: OSError) -> str:
    return (
        f"{path}: cannot be written ({reason(error)}); the units in the ledger are intact, and the "
        "run can be resumed"
    )
