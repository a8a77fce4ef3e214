"""Units saved from a damaged file, page by page.

The digest of a row proves that it is whole, whatever page it is on. The damaged file is therefore
copied, the copy gets a sound first page, and SQLite reads each leaf page as if it were the entire
table of units. Damage to the header or to the interior of the B-tree does no harm. Sections 1.3 and
1.6 of https://www.sqlite.org/fileformat2.html describe the format.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from shaped_attention.checks import with_types
from shaped_attention.sweep.data import Drawn, digest_of
from shaped_attention.sweep.file import SCHEMA, SweepFile, SweepFileError
from shaped_attention.sweep.specification import Sweep, Unit

_LEAF = 0x0D
"""First byte of a page with rows of a table."""

_PAGE = 4096
"""Size of the pages that SQLite writes unless it is asked for others."""


@with_types
def repair_sweep(path: str | Path, new: str | Path, sweep: Sweep | None = None) -> tuple[int, int]:
    """Copy every intact unit of a damaged file into a new one, which a run completes.

    No run may write the file. Its specification is used, or `sweep` where it is lost.

    Returns
    -------
    Number of units saved, and of units that the sweep has.

    Raises
    ------
    SweepFileError
        If no intact specification is found, the new file exists, or one cannot be read or written.
    """
    source, target, rows, code = Path(path), Path(new), list[tuple[Any, ...]](), "{}"
    if target.exists():
        raise SweepFileError(f"{target} exists; give the name of a new file")
    if source.is_symlink() or not source.is_file():
        raise SweepFileError(f"{source} is not a file")
    for row in _rows(source.read_bytes()):
        match row:
            case [str(text), bytes(digest), None, *_] if digest == digest_of(text):
                with suppress(ValueError):
                    sweep = Sweep.from_json(text)
            case [None, str(code), str(), int(), str(), *_]:
                pass
            case _:
                rows.append(row)
    if sweep is None:
        raise SweepFileError(f"{path} has no intact specification; name its TOML file")
    with SweepFile(target, sweep) as file:
        units = set(sweep.units())
        saved = {row[:4]: row for row in rows if row[:4] in units and file.intact(row)}
        file.begin(json.loads(code), ["saved from a damaged file"], len(saved))
        file.commit((Unit(*row[:4]), Drawn(row[6], row[4])) for row in saved.values())
    return len(saved), sweep.unit_count


def _rows(content: bytes) -> Iterator[tuple[Any, ...]]:
    """Yield the rows on all leaf pages that SQLite can read."""
    content += bytes(-len(content) % _PAGE)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute(SCHEMA["unit"])
        first = bytearray(copy.read_bytes()[:_PAGE])
        # The number of pages, which counts if bytes 92 to 95 repeat the counter of changes.
        first[28:32], first[92:96] = struct.pack(">I", len(content) // _PAGE), first[24:28]
        copy.write_bytes(first + content[_PAGE:])
        for page in range(2, len(content) // _PAGE + 1):
            if content[(page - 1) * _PAGE] != _LEAF:
                continue
            with closing(sqlite3.connect(copy, isolation_level=None)) as db:
                db.execute("PRAGMA writable_schema = on")
                db.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'unit'", (page,))
            with closing(sqlite3.connect(copy)) as db, suppress(sqlite3.Error):
                db.text_factory = lambda text: text.decode(errors="replace")
                yield from db.execute("SELECT * FROM unit NOT INDEXED")
