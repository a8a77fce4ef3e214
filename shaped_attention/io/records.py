"""Files of records, one per line with a checksum; a dying process tears at most the last one."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any


def append_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Append whole lines, each with a checksum, after closing a torn line."""
    text = b""
    for record in records:
        body = json.dumps(record).encode()
        text += b"%08x %s\n" % (zlib.crc32(body), body)
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                text = b"\n" + text
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records with a valid checksum."""
    records = []
    if path.exists():
        for line in path.read_bytes().splitlines():
            checksum, _, body = line.partition(b" ")
            if body and checksum == b"%08x" % zlib.crc32(body):
                records.append(json.loads(body))
    return records
