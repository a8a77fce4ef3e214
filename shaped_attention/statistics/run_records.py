"""Finished runs of `rare_event` in a file, so that an interrupted call continues where it was."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shaped_attention.io.records import append_records, read_records
from shaped_attention.io.storage import check_writable
from shaped_attention.numerics.seeds import canonical
from shaped_attention.statistics.splitting import Run


class RunRecords:
    """Finished runs by number, also in the file `store` if there is one."""

    def __init__(self, store: str | Path | None, call: dict[str, Any]) -> None:
        """Read the runs of a call from its file.

        Raises
        ------
        ValueError
            If the file has runs of another call, or cannot be written.
        """
        self.runs: dict[int, Run] = {}
        self._path = None if store is None else Path(store)
        self._lock = threading.Lock()
        if self._path is None:
            return
        if self._path.is_dir():
            raise ValueError(f"store={str(store)!r}: a file is needed, not a folder")
        check_writable(self._path.parent, "store")
        records = read_records(self._path)
        if not records:
            if self._path.exists() and self._path.stat().st_size:
                raise ValueError(f"store={str(store)!r}: a file of rare_event or none is needed")
            append_records(self._path, [{"call": call}])
            return
        stored = records[0].get("call", {})
        changed = [x for x in call if canonical(stored.get(x)) != canonical(call[x])]
        if changed:
            raise ValueError(
                f"store={str(store)!r}: it has the runs of a call with another {changed[0]}; "
                "a new file is needed"
            )
        for record in records[1:]:
            number = record.pop("run")
            self.runs[number] = Run(**record)

    def add(self, number: int, run: Run) -> None:
        """Keep a finished run; threads may call it at the same time."""
        with self._lock:
            self.runs[number] = run
            if self._path is not None:
                append_records(self._path, [{"run": number} | asdict(run)])
