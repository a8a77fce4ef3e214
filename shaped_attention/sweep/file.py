"""A sweep in one SQLite file: the specification, a row a unit, failures, and changes of code.

Only rows are read: no name in a file is imported, no path in it is followed. A file whose schema is
not exactly this one is refused, and so is a journal that SQLite would have to follow elsewhere.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from shaped_attention.sweep.data import (
    Arrays,
    cell_text,
    decode,
    digest_of,
    intact,
    seal_of,
    sealed,
    shapes,
)
from shaped_attention.sweep.specification import Sweep, Unit

SCHEMA = {
    "specification": "CREATE TABLE specification (sweep TEXT NOT NULL, digest BLOB NOT NULL)",
    "unit": "CREATE TABLE unit (sampler TEXT NOT NULL, cell TEXT NOT NULL, block INTEGER NOT NULL, "
    "samples INTEGER NOT NULL, seconds REAL NOT NULL, code INTEGER NOT NULL, data BLOB NOT NULL, "
    "digest BLOB NOT NULL, PRIMARY KEY (sampler, cell, block))",
    "failure": "CREATE TABLE failure (sampler TEXT NOT NULL, cell TEXT NOT NULL, "
    "block INTEGER NOT NULL, message TEXT NOT NULL)",
    "code": "CREATE TABLE code (id INTEGER PRIMARY KEY, code TEXT NOT NULL, "
    "changed TEXT NOT NULL, units INTEGER NOT NULL, at TEXT NOT NULL)",
}
"""Tables: `code` of a unit is the row of the code that drew it."""

_HEADER = b"SQLite format 3\0"

_JOURNAL_OF_OTHERS = bytes.fromhex("d9d505f920a163d7")
"""End of a journal that names another file, which SQLite might delete; runs write none."""

_BUSY = 600.0
"""Seconds that a writer waits for readers, and a reader for a writer."""

_PAUSE = 0.3

_MOST_CODES = 10_000

_open = Counter[tuple[int, int]]()
"""Files that are open in this process: closing another handle of theirs would drop their locks."""


class SweepFileError(ValueError):
    """A file of a sweep that cannot be read or written, or that holds something else."""


class Found(NamedTuple):
    """A unit in a file, its seconds, and its arrays, None if they are damaged."""

    unit: Unit
    seconds: float
    arrays: Arrays | None


class SweepFile:
    """A file of a sweep, open for reading or, with a `sweep`, for the one writer.

    Any number of readers may read while the writer runs.

    Raises
    ------
    SweepFileError
        If the file is missing, damaged, of another kind or in use by another writer, or holds a
        sweep that does not grow into this one.
    """

    def __init__(self, path: str | Path, sweep: Sweep | None = None) -> None:
        self.path, self._writes = Path(path), sweep is not None
        self._check_place()
        place = f"file:{quote(str(self.path.absolute()))}?mode={'rwc' if sweep else 'ro'}"
        with self._reported():
            self._db = sqlite3.connect(
                place, timeout=0.0 if sweep else _BUSY, uri=True, isolation_level=None
            )
        self._db.text_factory = lambda text: text.decode(errors="replace")
        try:
            with self._reported():
                for pragma in (
                    "trusted_schema = off",
                    "cell_size_check = on",
                    "synchronous = full",
                ):
                    self._db.execute(f"PRAGMA {pragma}")
                if sweep is None:
                    self._check_schema()
                else:
                    self._become_writer()
                    self._grow_into(sweep)
                self.sweep = sweep or self._sweep()
                self._seal = seal_of(self.sweep)
            about = self.path.stat()
        except BaseException:
            self._db.close()
            raise
        self._place = (about.st_dev, about.st_ino)
        _open[self._place] += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()
        _open[self._place] -= 1

    def units(self, wanted: Callable[[Unit], bool] = lambda unit: True) -> Iterator[Found]:
        """Yield each unit of the sweep that is in the file."""
        sweep, seen = self.sweep, set[Unit]()
        most, blocks = sweep.unit_count, sweep.blocks
        cells = {cell_text(cell): cell for cell in sweep.indices()}
        sizes = lru_cache(partial(shapes, sweep))
        with self._reported():
            rows = self._db.execute(f"SELECT * FROM unit NOT INDEXED LIMIT {most + 1}")
            for number, row in enumerate(rows):
                if number == most:
                    raise ValueError("it has more rows than units")
                sampler, text, block, samples, seconds, _, data, _ = row
                known = sampler in sweep.samplers and text in cells and type(block) is int
                if not (known and 0 <= block < blocks):
                    continue
                unit = sweep.unit(sampler, cells[text], block)
                if samples != unit.samples or unit in seen or not wanted(unit):
                    continue
                seen.add(unit)
                good = intact(self._seal(unit.cell), row)
                arrays = decode(sizes(unit.samples), data) if good else None
                yield Found(unit, seconds if good else 0.0, arrays)

    def failures(self) -> list[tuple[str, str, int, str]]:
        """Return sampler, cell, block and message of the units that failed in the last run."""
        with self._reported():
            query = f"SELECT * FROM failure LIMIT {self.sweep.unit_count}"
            return self._db.execute(query).fetchall()

    def codes(self) -> list[dict[str, Any]]:
        """Return the code that made the units, and its accepted changes, in order.

        Each has `code` (digests and versions by name), `changed` (phrases), the number of `units`
        finished before, and the time `at`.
        """
        with self._reported():
            query = f"SELECT code, changed, units, at FROM code LIMIT {_MOST_CODES}"
            return [
                {"code": dict(json.loads(code)), "changed": list(json.loads(changed))}
                | {"units": units, "at": at}
                for code, changed, units, at in self._db.execute(query).fetchall()
            ]

    def begin(self, code: dict[str, str], changed: list[str], units: int) -> None:
        """Write the sweep and the code that runs it; the failures of the last run are forgotten."""
        with self._reported():
            text = self.sweep.to_json()
            self._db.execute("DELETE FROM specification")
            self._db.execute("INSERT INTO specification VALUES (?, ?)", (text, digest_of(text)))
            rows, text = self._db.execute("SELECT id, code FROM code").fetchall(), json.dumps(code)
            self._code = len(rows) + (not rows or rows[-1][1] != text)
            if self._code > len(rows):
                now = datetime.now(UTC).isoformat(timespec="seconds")
                row = (self._code, text, json.dumps(changed), units, now)
                self._db.execute("INSERT INTO code VALUES (?, ?, ?, ?, ?)", row)
            self._db.execute("DELETE FROM failure")
            self._commit()

    def commit(
        self,
        drawn: Iterable[tuple[Unit, float, bytes]],
        failures: Iterable[tuple[Unit, str]] = (),
    ) -> None:
        """Write units (with seconds and data) and failures in one transaction."""
        rows = [
            sealed(self._seal(unit.cell), unit, seconds, self._code, data)
            for unit, seconds, data in drawn
        ]
        failed = [(x.sampler, cell_text(x.cell), x.block, text) for x, text in failures]
        with self._reported():
            self._db.executemany(
                "INSERT OR REPLACE INTO unit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            self._db.executemany("INSERT INTO failure VALUES (?, ?, ?, ?)", failed)
            self._commit()

    def _commit(self) -> None:
        """Write the transaction, and take the writer's lock again."""
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")

    def _become_writer(self) -> None:
        """Take the lock that one connection can have next to readers.

        A writer lets it go for an instant between two transactions. Whoever gets it twice, a pause
        apart, is the only one.
        """
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("ROLLBACK")
        time.sleep(_PAUSE)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(f"PRAGMA busy_timeout = {1000 * _BUSY:.0f}")

    def _grow_into(self, sweep: Sweep) -> None:
        """Make the tables of a new file, or refuse another sweep; `begin` writes."""
        if not self._db.execute("SELECT * FROM sqlite_schema LIMIT 1").fetchone():
            for table in SCHEMA.values():
                self._db.execute(table)
            return
        self._check_schema()
        if differing := sweep.differing(self._sweep()):
            other = ", ".join(differing)
            raise SweepFileError(
                f"{self.path} holds another sweep ({other}; only more samples, and more values at "
                "the ends of axes, continue it); name a new file"
            )

    def _check_schema(self) -> None:
        rows = self._db.execute("SELECT name, sql FROM sqlite_schema LIMIT 99").fetchall()
        # The index of the primary key has no text.
        if sorted(rows, key=str) != sorted(
            [*SCHEMA.items(), ("sqlite_autoindex_unit_1", None)], key=str
        ):
            raise SweepFileError(f"{self.path} is not the file of a sweep: its tables are others")

    def _sweep(self) -> Sweep:
        ((text, digest),) = self._db.execute("SELECT * FROM specification LIMIT 2").fetchall()
        if digest != digest_of(text):
            raise ValueError("its specification has changed")
        return Sweep.from_json(text)

    def _check_place(self) -> None:
        """Refuse what SQLite should not open: links, other files, and journals of others."""
        path = self.path
        try:
            if os.path.lexists(path) or not self._writes:
                if path.is_symlink() or not path.is_file():
                    raise SweepFileError(f"{path} is not a file")
                about = path.stat()
                if _open[about.st_dev, about.st_ino]:
                    return
                with path.open("rb") as file:
                    head = file.read(20)
                # Bytes 18 and 19 say whether transactions are written ahead, in other files.
                right = head[:16] == _HEADER and head[18:20] == b"\1\1"
                if not right and (head or not self._writes):
                    repair = (
                        f", or its first page is damaged; `sweep repair {path} NEW` saves units"
                    )
                    raise SweepFileError(
                        f"{path} is not the file of a sweep{repair * (path.suffix != '.toml')}"
                    )
            ahead, journal = (path.with_name(path.name + end) for end in ("-wal", "-journal"))
            foreign = ahead if os.path.lexists(ahead) else None
            if foreign is None and os.path.lexists(journal):
                foreign = journal
                if journal.is_file() and not journal.is_symlink():
                    with journal.open("rb") as file:
                        file.seek(max(0, journal.stat().st_size - 8))
                        foreign = journal if file.read() == _JOURNAL_OF_OTHERS else None
            if foreign is not None:
                raise SweepFileError(f"{foreign} is not a journal that a run has left; remove it")
        except OSError as error:
            raise SweepFileError(f"{path} cannot be opened ({error.strerror})") from None

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Report an error of SQLite, and whatever damaged rows cause, in a sentence."""
        try:
            yield
        except SweepFileError:
            raise
        except (
            sqlite3.Error, ValueError, TypeError, KeyError, OverflowError, RecursionError
        ) as error:  # fmt: skip
            raise SweepFileError(f"{self.path} {self._sentence(error)}") from None

    def _sentence(self, error: Exception) -> str:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF, self._writes:
            case sqlite3.SQLITE_BUSY, _:
                return "is in use by another run"
            case ((sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR), True):
                return f"cannot be written ({error}); what was committed is kept"
            case sqlite3.SQLITE_READONLY, False:
                return (
                    "has an unfinished transaction, left by a run that was killed; "
                    "`shaped-attention sweep run` undoes it and continues"
                )
            case ((sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY), _):
                return f"cannot be opened ({error})"
        return (
            f"is damaged ({error}); `shaped-attention sweep repair {self.path} NEW` saves all "
            "units that are intact"
        )
