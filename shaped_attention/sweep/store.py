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

An extension appends to axes and samples, so it moves no unit. What may fail comes first: the larger
arrays are drafted. The extension is decided once `extension.json` exists. The remaining steps can
be repeated from any point, and are when the store is opened next; they call no function that the
store names.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numpy.typing import NDArray

from shaped_attention.io.records import append_records, read_records
from shaped_attention.io.storage import reason, sync, sync_below, write_durably
from shaped_attention.sweep.code_identity import code_of, note_code
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.specification_faults import SweepFaultsError
from shaped_attention.sweep.store_arrays import Arrays, chunk_shapes, draft_arrays, place_arrays
from shaped_attention.sweep.store_records import (
    DATA,
    SPECIFICATION,
    Ledger,
    StoreError,
    UnwritableError,
    first_versions,
    kept_sweep,
    last_run,
    name_of,
    unit_of,
)

_DRAFT = ".data.zarr.draft"
_BEGUN = {_DRAFT, ".sweep.json.draft", SPECIFICATION, DATA, "code.jsonl", "ledger.jsonl", "lock"}
"""Files that a process may leave behind if it dies while it creates a store."""

_PATIENCE = 0.2
"""Seconds to wait for a lock, because checking it (`running`) holds it for a moment."""

_EXTENSION_PATIENCE = 20.0
"""Seconds to wait for a lock whose holder is extending the store."""


class Store:
    """Folder of a sweep, opened or created; what it cannot do is a StoreError."""

    def __init__(self, path: str | Path, sweep: Sweep | None = None) -> None:
        self.path = Path(path)
        self.ledger = Ledger(self.path)
        self.sweep: Sweep
        self._data, self._extension = self.path / DATA, self.path / "extension.json"
        try:
            if not (self.path / SPECIFICATION).exists():
                if sweep is None:
                    copy = "; the attribute `sweep` of data.zarr has a copy of sweep.json"
                    there = self._data.exists()
                    raise StoreError(f"{self.path}: there is no sweep here{copy if there else ''}")
                self._begin(sweep)
        except (OSError, ValueError) as error:
            text = f"{self.path}: a sweep cannot be stored here ({reason(error)})"
            raise StoreError(text) from None
        try:
            if self.extending:
                with self.locked(_EXTENSION_PATIENCE):
                    self._finish_extension()
            self._read()
        except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            text = f"{self.path}: the sweep here cannot be read ({_sentence(error)})"
            raise StoreError(text) from None
        if sweep is not None and sweep.digest != self.sweep.digest:
            names = ", ".join(sweep.differing(self.sweep))
            way = "use `sweep extend` or" if sweep.enlarges(self.sweep) else "use"
            raise StoreError(
                f"{self.path}: this store belongs to another sweep (different: {names}); {way} "
                "another folder"
            )
        if sweep is not None:
            self.sweep = sweep

    def _read(self) -> None:
        self.sweep = kept_sweep(self.path)
        if not self.ledger.sums(SPECIFICATION):
            raise ValueError("ledger.jsonl is damaged: a line with checksums is missing")
        if not self.ledger.matches(SPECIFICATION, (self.path / SPECIFICATION).read_bytes()):
            raise ValueError(
                f"{SPECIFICATION} has changed since it was written; data.zarr/.zattrs has a copy"
            )
        # A sweep may return with another target or time limit; the latest apply.
        if last := last_run(self.path):
            self.sweep = self.sweep.with_limits(last["seconds"], last["target"])
        self.arrays = Arrays(self._data, self.sweep, self.ledger)

    def _begin(self, sweep: Sweep) -> None:
        """Create the store, unless another process was faster; start again if one was cut off."""
        foreign = StoreError(f"{self.path}: the folder is neither empty nor the store of a sweep")
        if self.path.exists() and {entry.name for entry in self.path.iterdir()} - _BEGUN:
            raise foreign
        self.path.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if (self.path / SPECIFICATION).exists():
                return
            if self._data.exists():
                # An interrupted creation leaves empty arrays; anything else must not be replaced.
                if not (self.path / "ledger.jsonl").exists() or not self.ledger.empty:
                    raise foreign
                shutil.rmtree(self._data)
            (self.path / "code.jsonl").unlink(missing_ok=True)
            note_code(self.path, code_of(sweep.layers), 0, [])
            self.ledger.begin(chunk_shapes(sweep))
            self._data.mkdir()
            text = sweep.to_json().encode()
            self._put_metadata(sweep, {SPECIFICATION: text})
            # Last: without it there is no store.
            write_durably(self.path / SPECIFICATION, text)
            sync(self.path)
            sync(self.path.parent)

    def extend(self, sweep: Sweep) -> None:
        """Extend the store to a larger sweep, completely or not at all; the lock is held."""
        with self.writing():
            self.announce(sweep)
            self._finish_extension()
        self._read()

    @property
    def extending(self) -> bool:
        """Whether an extension is decided and not yet complete."""
        return self._extension.exists()

    def announce(self, sweep: Sweep) -> None:
        """Decide to extend the store to a larger sweep, if the disk has room for its draft."""
        draft = self.path / _DRAFT
        try:
            draft_arrays(draft, sweep, first_versions(self.path), self.ledger)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        write_durably(self._extension, json.dumps({"sweep": sweep.to_json()}).encode())
        sync(self.path)

    def _finish_extension(self) -> None:
        """Complete an extension that is announced; the lock is held."""
        if not self.extending:
            return
        sweep = Sweep.from_json(json.loads(self._extension.read_bytes())["sweep"])
        text = sweep.to_json().encode()
        self._put_metadata(sweep, {SPECIFICATION: text})
        arrays = Arrays(self._data, sweep, self.ledger)
        for unit, (samples, _) in self.ledger.units(sweep).items():
            if samples < sweep.block_samples(unit.block):
                arrays.clear(unit)
        if chunks := arrays.changed():
            arrays.put(chunks)
        if last := last_run(self.path):
            # The reasons why cells stopped do not apply to the larger sweep.
            append_records(self.path / "runs.jsonl", [last | {"reasons": []}])
        sync_below(self._data)
        write_durably(self.path / SPECIFICATION, text)
        self.ledger.add()
        sync(self.path)
        self._extension.unlink()
        sync(self.path)

    def _put_metadata(self, sweep: Sweep, further: dict[str, bytes]) -> None:
        """Write coordinates and metadata again, after announcing them and `further` files."""
        draft = self.path / _DRAFT
        files = draft_arrays(draft, sweep, first_versions(self.path), self.ledger)
        self.ledger.announce(files | further)
        place_arrays(draft, files, self._data)

    @contextmanager
    def locked(self, patience: float = _PATIENCE) -> Iterator[None]:
        """Hold the store's lock, which the system frees when the process dies."""
        try:
            held = FileLock(self.path / "lock").acquire(timeout=patience)
        except Timeout:
            raise StoreError(f"{self.path}: another run is writing to this store") from None
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

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn an error of the system into one of the store."""
        try:
            yield
        except OSError as error:
            raise UnwritableError(
                f"{self.path}: cannot be written ({reason(error)}); the units in the ledger are "
                "intact, and the run can be resumed"
            ) from error

    def check_current(self) -> None:
        """Raise StoreError if the store was extended since it was opened; the lock is held."""
        if self.extending or kept_sweep(self.path).digest != self.sweep.digest:
            raise StoreError(f"{self.path}: this store has just been extended; try again")

    def finished(self, lost: Collection[str] | None = None) -> dict[Unit, float]:
        """Return the units of which no file is `lost` (by default missing), and their seconds."""
        lost = self.ledger.missing() if lost is None else lost
        sweep, there = self.sweep, set(self.ledger.files()).difference(lost)
        return {
            unit: seconds
            for unit, (samples, seconds) in self.ledger.units(sweep).items()
            if samples == sweep.block_samples(unit.block)
            and there.issuperset(self.arrays.keys(unit))
        }

    def take_out(self, files: Collection[str]) -> None:
        """Delete damaged files of samples, and rewrite the others; the lock is held."""
        samples = set(filter(self.arrays.are_samples, files))
        if samples.symmetric_difference(files):
            self._put_metadata(self.sweep, {})
            self.ledger.add()
        for name in samples:
            (self._data / name).unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Return units given up and not finished since: `unit`, `error` and `traceback`."""
        done = self.finished()
        records = read_records(self.path / "failures.jsonl")
        last = {unit_of(self.sweep, record["unit"]): record for record in records}
        return [record | {"unit": unit} for unit, record in last.items() if unit not in done]

    def commit(self, results: Iterable[tuple[Unit, dict[str, NDArray[Any]], float]]) -> None:
        """Write finished units, and then the ledger's lines."""
        lines = []
        with self.writing():
            for unit, arrays, seconds in results:
                self.arrays.write(unit, arrays)
                samples = self.sweep.block_samples(unit.block)
                record = {"unit": name_of(self.sweep, unit), "samples": samples}
                lines.append(record | {"seconds": round(seconds, 6)})
            self.arrays.put(self.arrays.changed())
            self.ledger.add(lines)

    def record_failure(self, unit: Unit, error: BaseException, trace: str) -> None:
        """Record a unit that was given up."""
        record = {"unit": name_of(self.sweep, unit), "error": f"{type(error).__name__}: {error}"}
        with self.writing():
            append_records(self.path / "failures.jsonl", [record | {"traceback": trace}])

    def note_run(self, reasons: dict[tuple[int, int], str]) -> None:
        """Record the target and time limit of the sweep, and why each (cell, sampler) stopped."""
        target = self.sweep.target
        record = {"seconds": self.sweep.seconds, "target": target and asdict(target)}
        listed = [
            (self.sweep.index(cell), sampler, why)
            for (cell, sampler), why in sorted(reasons.items())
        ]
        with self.writing():
            append_records(self.path / "runs.jsonl", [record | {"reasons": listed}])

    def reasons(self) -> dict[tuple[int, ...], str]:
        """Return why cells stopped in the last run, by sampler and indices along the axes."""
        last = last_run(self.path).get("reasons", [])
        return {(sampler, *index): why for index, sampler, why in last}


def _sentence(error: Exception) -> str:
    """Return what is wrong, in one line."""
    if isinstance(error, SweepFaultsError):
        return error.sentence
    named = isinstance(error, KeyError | TypeError | AttributeError)
    return f"{type(error).__name__}: {error}" if named else reason(error)
