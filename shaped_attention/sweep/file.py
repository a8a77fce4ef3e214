"""A sweep in one SQLite file: the specification, a row a unit, failures, and changes of code.

Only rows are read: no name in a file is imported. A file whose schema is not exactly this one is
refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.seeds import canonical
from shaped_attention.sweep.axes import MOST_CELLS
from shaped_attention.sweep.data import Drawn, decode, digest_of, record_of
from shaped_attention.sweep.specification import MOST_UNITS, Sweep, Unit

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

_BUSY = 600.0
"""Seconds that a writer waits for readers, and a reader for a writer."""


class SweepFileError(ValueError):
    """A file of a sweep that cannot be read or written, or that holds something else."""


class SweepFile:
    """A file of a sweep, open for reading or, with a `sweep`, for the one writer.

    Any number of readers may read while the writer runs. SweepFileError is raised if the file is
    missing, damaged, of another kind or in use by another writer, or holds a sweep that does not
    grow into this one.
    """

    def __init__(self, path: str | Path, sweep: Sweep | None = None) -> None:
        self.path, self._writes = Path(path), sweep is not None
        with self._reported():
            if not (self.path.is_file() or (self._writes and not self.path.exists())):
                raise SweepFileError(f"{path} is not a file")
            self._db = sqlite3.connect(
                f"file:{quote(str(self.path.absolute()))}?mode={'rwc' if sweep else 'ro'}",
                timeout=0.0 if sweep else _BUSY, uri=True, isolation_level=None,
            )  # fmt: skip
            try:
                self._db.text_factory = lambda text: text.decode(errors="replace")
                self._db.execute("PRAGMA trusted_schema = off")
                self._db.execute("PRAGMA cell_size_check = on")
                self._db.execute("PRAGMA synchronous = full")
                if sweep:  # the lock that one connection can have next to readers
                    self._db.execute("BEGIN IMMEDIATE")
                    self._db.execute(f"PRAGMA busy_timeout = {1000 * _BUSY:.0f}")
                self.sweep = self._opened(sweep)
            except BaseException:
                self._db.close()
                raise
        # Of a cell, all that its samples depend on; the ends of axes do not matter.
        whole = canonical(self.sweep.model_dump(exclude={"axes", "samples", "seconds"}))
        point = self.sweep.point
        self._seal = lru_cache(MOST_CELLS)(lambda cell: digest_of(whole, canonical(point(cell))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def units(
        self, wanted: Callable[[Unit], bool] = lambda unit: True
    ) -> Iterator[tuple[Unit, float, NDArray[np.void] | None]]:
        """Yield each unit in the file, its seconds, and its records, None if they are damaged."""
        units, record = set(filter(wanted, self.sweep.units())), record_of(self.sweep)
        with self._reported():
            for row in self._db.execute(f"SELECT * FROM unit NOT INDEXED LIMIT {MOST_UNITS}"):
                if row[:4] in units:
                    unit, good = Unit(*row[:4]), self.intact(row)
                    units.remove(unit)
                    records = decode(record, unit.samples, row[6]) if good else None
                    yield unit, row[4] if good else 0.0, records

    def intact(self, row: tuple[Any, ...]) -> bool:
        """Return whether the row of a unit of the sweep has its digest."""
        return bool(row[-1] == digest_of(self._seal(row[1]), *row[:-1]))

    def failures(self) -> list[tuple[str, str, int, str]]:
        """Return sampler, cell, block and message of the units that failed in the last run."""
        with self._reported():
            return self._db.execute(f"SELECT * FROM failure LIMIT {MOST_UNITS}").fetchall()

    def code(self) -> dict[str, str]:
        """Return the code of the last run, digests and versions by name; none of a new file."""
        with self._reported():
            row = self._db.execute("SELECT code FROM code ORDER BY id DESC").fetchone()
            return dict(json.loads(row[0])) if row else {}

    def code_changes(self) -> list[dict[str, Any]]:
        """Return what has `changed`, in phrases, after how many `units`, and the time `at`."""
        with self._reported():
            query = "SELECT changed, units, at FROM code WHERE changed <> '[]' ORDER BY id"
            return [
                {"changed": list(json.loads(changed)), "units": units, "at": at}
                for changed, units, at in self._db.execute(f"{query} LIMIT {MOST_UNITS}")
            ]

    def begin(self, code: dict[str, str], changed: list[str], units: int) -> None:
        """Write the sweep and the code that runs it; the failures of the last run are forgotten."""
        with self._reported():
            text = self.sweep.to_json()
            self._db.execute("DELETE FROM specification")
            self._db.execute("INSERT INTO specification VALUES (?, ?)", (text, digest_of(text)))
            if changed or code != self.code():
                now = datetime.now(UTC).isoformat(timespec="seconds")
                row = (json.dumps(code), json.dumps(changed), units, now)
                self._db.execute("INSERT INTO code VALUES (NULL, ?, ?, ?, ?)", row)
            ((self._code,),) = self._db.execute("SELECT max(id) FROM code")
            self._db.execute("DELETE FROM failure")
            self._commit()

    def commit(self, drawn: Iterable[tuple[Unit, Drawn]]) -> None:
        """Write units and failures in one transaction."""
        whole = "INSERT OR REPLACE INTO unit VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        with self._reported():
            for unit, (data, seconds, error) in drawn:
                if error:
                    failure = (*unit[:3], error)
                    self._db.execute("INSERT INTO failure VALUES (?, ?, ?, ?)", failure)
                else:
                    row = (*unit, seconds, self._code, data)
                    self._db.execute(whole, (*row, digest_of(self._seal(unit.cell), *row)))
            self._commit()

    def _commit(self) -> None:
        """Write the transaction, and take the writer's lock again."""
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")

    def _opened(self, sweep: Sweep | None) -> Sweep:
        """Return the sweep; make the tables of a new file, refuse others and a sweep of others."""
        tables = {*self._db.execute("SELECT name, sql FROM sqlite_schema LIMIT 99")}
        if sweep and not tables:
            for table in SCHEMA.values():
                self._db.execute(table)
            return sweep
        # The index of the primary key has no text.
        if tables != {*SCHEMA.items(), ("sqlite_autoindex_unit_1", None)}:
            raise SweepFileError(f"{self.path} is not the file of a sweep: its tables are others")
        ((text, digest),) = self._db.execute("SELECT * FROM specification LIMIT 2").fetchall()
        if digest != digest_of(text):
            raise ValueError("its specification has changed")
        held = Sweep.from_json(text)
        if sweep and (differing := sweep.differing(held)):
            raise SweepFileError(
                f"{self.path} holds another sweep ({', '.join(differing)}; only more samples, and "
                "more values at the ends of axes, continue it); name a new file"
            )
        return sweep or held

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Report an error of SQLite, and whatever damaged rows cause, in a sentence."""
        try:
            yield
        except SweepFileError:
            raise
        except OSError as error:
            raise SweepFileError(f"{self.path} cannot be opened ({error.strerror})") from None
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
            case sqlite3.SQLITE_NOTADB, _:
                return "is not the file of a sweep, or its first page is damaged"
            case _:
                return f"is damaged ({error})"
