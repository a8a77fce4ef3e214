"""The store of a sweep: a Zarr group for xarray, and a ledger of the units that are in it.

    FOLDER/sweep.json      the sweep, which the store belongs to for good
    FOLDER/data.zarr/      arrays with the dimensions sampler, axes, block or sample, ...
    FOLDER/code.jsonl      digests of the code and versions of packages that made the units; a
                           further line for each change that was accepted
    FOLDER/ledger.jsonl    a line for each finished unit, with a checksum
    FOLDER/failures.jsonl  a line for each unit that was given up, with its traceback
    FOLDER/run.json        target and time limit of the last run, and why each cell stopped
    FOLDER/lock            held while a run writes

A unit owns one chunk of every array. Zarr writes it through `_DurableFiles`, next to its place, to
the disk, and moves it there; only then does the ledger get its line: what the ledger has is whole,
whatever moment a process dies at, and a unit that is written twice leaves the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from shaped_attention.io.records import append_records, read_records
from shaped_attention.io.storage import reason, sync, write_durably
from shaped_attention.sweep.code_identity import Code, changes_since, code_of, note_code
from shaped_attention.sweep.faults import SweepFaultsError
from shaped_attention.sweep.specification import FORMAT, Sweep
from shaped_attention.sweep.store_layout import coordinates, layouts
from shaped_attention.sweep.work_units import Unit

_DRAFT = ".data.zarr.draft"

_BEGUN = (_DRAFT, ".sweep.json.draft", "code.jsonl", "ledger.jsonl", "lock")
"""What a process that died while it made a store may leave behind."""

_UNREADABLE = (OSError, AttributeError, KeyError, TypeError, ValueError)
"""What reading a file raises that is no specification of a sweep."""

_PATIENCE = 0.2
"""Seconds to wait for a lock, which a look whether it is held (`running`) holds for a moment."""

_COMPRESSOR: dict[str, Any] = {"id": "zstd", "level": 1}


class StoreError(RuntimeError):
    """The store cannot be used or written; what the ledger has is intact."""


class UnwritableError(StoreError):
    """The disk is full, or the folder can no longer be written."""


class Store:
    """A sweep's folder, opened or made.

    Raises
    ------
    StoreError
        If the folder belongs to another sweep, is no store, or cannot be read or written.
    """

    def __init__(self, path: str | Path, sweep: Sweep | None = None) -> None:
        self.path = Path(path)
        try:
            if not (self.path / "sweep.json").exists():
                if sweep is None:
                    raise StoreError(f"{self.path}: there is no sweep here")
                self._begin(sweep)
        except (OSError, ValueError) as error:
            text = f"{self.path}: no sweep can be kept here ({reason(error)})"
            raise StoreError(text) from None
        try:
            self.sweep = self._read()
        except _UNREADABLE as error:
            text = f"{self.path}: the sweep here cannot be read ({_sentence(error)})"
            raise StoreError(text) from None
        if sweep is not None and sweep.digest != self.sweep.digest:
            names = ", ".join(sweep.differing(self.sweep))
            raise StoreError(
                f"{self.path}: this store belongs to another sweep (other: {names}); another "
                "folder is needed"
            )
        if sweep is not None:
            self.sweep = sweep
        self._layouts = layouts(self.sweep)
        self._files = _DurableFiles(self.path / "data.zarr")

    def _read(self) -> Sweep:
        text = (self.path / "sweep.json").read_text(encoding="utf-8")
        if json.loads(text).get("format") != FORMAT:
            raise StoreError(f"{self.path}: written by another version of this package")
        sweep = Sweep.from_json(text)
        # A target or a time limit may change from run to run; the last ones hold.
        if last := self.last_run():
            sweep = replace(sweep, seconds=last["seconds"], target=last["target"])
        return sweep

    def _begin(self, sweep: Sweep) -> None:
        """Make the store, unless another process was faster; a beginning cut off is made again."""
        if self.path.exists() and any(
            entry.name not in (*_BEGUN, "sweep.json", "data.zarr") for entry in self.path.iterdir()
        ):
            raise StoreError(f"{self.path}: the folder is not empty, and no store of a sweep")
        self.path.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if not (self.path / "sweep.json").exists():
                self._make(sweep)

    def _make(self, sweep: Sweep) -> None:
        data = self.path / "data.zarr"
        if data.exists():
            # Of a making that died after the arrays, empty; anything else is not ours to replace.
            if (self.path / "ledger.jsonl").exists() and not self.finished():
                shutil.rmtree(data)
            else:
                raise StoreError(f"{self.path}: the folder is not empty, and no store of a sweep")
        lead = ("sampler", *sweep.axes)
        draft = self.path / _DRAFT
        coordinates(sweep).to_zarr(draft, mode="w", zarr_format=2, consolidated=False)
        group = zarr.open_group(draft, mode="r+", zarr_format=2)
        for name, layout in layouts(sweep).items():
            group.create_array(
                name,
                shape=(len(sweep.samplers), *sweep.shape, *layout.shape),
                chunks=(*(1 for _ in lead), *layout.chunk),
                dtype=layout.dtype,
                fill_value=layout.fill,
                compressors=_COMPRESSOR,
                attributes={"_ARRAY_DIMENSIONS": [*lead, *layout.dims]},
            )
        (self.path / "code.jsonl").unlink(missing_ok=True)
        note_code(self.path, code_of(sweep), 0, [])
        (self.path / "ledger.jsonl").touch()
        os.sync()
        draft.rename(data)
        # Last: without it there is no store.
        write_durably(self.path / "sweep.json", sweep.to_json().encode())
        sync(self.path)
        sync(self.path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's lock, which the system frees when the process dies.

        Raises
        ------
        StoreError
            If another run holds it, or it cannot be made.
        """
        try:
            held = FileLock(self.path / "lock").acquire(timeout=_PATIENCE)
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
        """The code of a run that begins, noted if it differs from that of the units in the store.

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
                    f"{self.path}: its {units} units may come from other code than the next would "
                    f"({'; '.join(changed)}); another folder, or --accept-changed-code "
                    "(accept_changed_code=True), is needed"
                )
            try:
                note_code(self.path, now, units, changed if units else [])
            except OSError as error:
                raise UnwritableError(_unwritable(self.path, error)) from error
        return now

    def finished(self) -> dict[Unit, float]:
        """The units in the ledger, and the seconds each took; a torn last line does not count."""
        done = {}
        for record in read_records(self.path / "ledger.jsonl"):
            block, cell, sampler = record["unit"]
            done[Unit(block, cell, sampler)] = float(record["seconds"])
        return done

    def failures(self) -> list[dict[str, Any]]:
        """Units given up and not finished since, with `unit`, `error` and `traceback`, in order."""
        done = self.finished()
        found = {
            tuple(record["unit"]): record for record in read_records(self.path / "failures.jsonl")
        }
        return [record for key, record in found.items() if Unit(*key) not in done]

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
                for name, array in self._arrays.items():
                    array[self._region(unit, name)] = arrays[name]
                unit_record = [unit.block, unit.cell, unit.sampler]
                lines.append({"unit": unit_record, "seconds": round(seconds, 6)})
            for name in self._arrays:
                sync(self._files.root / name)
            append_records(self.path / "ledger.jsonl", lines)
        except OSError as error:
            raise UnwritableError(_unwritable(self.path, error)) from error

    def record_failure(self, unit: Unit, error: BaseException, trace: str) -> None:
        """Note a unit that is given up."""
        record = {
            "unit": [unit.block, unit.cell, unit.sampler],
            "error": f"{type(error).__name__}: {error}",
            "traceback": trace,
        }
        try:
            append_records(self.path / "failures.jsonl", [record])
        except OSError as cause:
            raise UnwritableError(_unwritable(self.path, cause)) from cause

    def note_run(self, reasons: dict[tuple[int, int], str]) -> None:
        """Keep the target and time limit of a run, and why cells (cell, sampler) stopped."""
        record = {
            "seconds": self.sweep.seconds,
            "target": None if self.sweep.target is None else asdict(self.sweep.target),
            "reasons": [[cell, sampler, why] for (cell, sampler), why in sorted(reasons.items())],
        }
        try:
            write_durably(self.path / "run.json", json.dumps(record).encode())
        except OSError as error:
            raise UnwritableError(_unwritable(self.path, error)) from error

    def last_run(self) -> dict[str, Any]:
        """What `note_run` kept; empty before the first run."""
        try:
            return dict(json.loads((self.path / "run.json").read_bytes()))
        except (FileNotFoundError, ValueError):
            return {}

    def moments(self, unit: Unit) -> NDArray[np.float64]:
        """Moments (time, observable, 2) of a finished unit."""
        return np.asarray(self._arrays["moments"][self._region(unit, "moments")])

    @cached_property
    def _arrays(self) -> dict[str, zarr.Array[Any]]:
        config: Any = {"write_empty_chunks": True}
        return {
            name: zarr.open_array(self._files, path=name, mode="r+", zarr_format=2, config=config)
            for name in self._layouts
        }

    def _region(self, unit: Unit, name: str) -> tuple[int | slice, ...]:
        """Where the unit is in an array."""
        first = unit.block * self.sweep.block
        samples = slice(first, first + self.sweep.block_samples(unit.block))
        own: dict[str, int | slice] = {"block": unit.block, "sample": samples}
        dims = self._layouts[name].dims
        lead = (unit.sampler, *self.sweep.index(unit.cell))
        return (*lead, *(own.get(dim, slice(None)) for dim in dims))


class _DurableFiles(LocalStore):
    """Zarr's files, of which a process that dies leaves none in part."""

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file to the disk."""
        write_durably(self.root / key, value.to_bytes())


def _sentence(error: Exception) -> str:
    """What is wrong, in one line."""
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
