"""Records in the folder of a sweep: its specification, its finished units and the last run.

A record identifies a unit by its block, the indices of its cell along the axes, and its sampler.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from shaped_attention.io.storage import write_durably
from shaped_attention.sweep.code_identity import code_records
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import FORMAT, Sweep
from shaped_attention.sweep.store_errors import StoreError


def kept_sweep(folder: Path) -> Sweep:
    """Return the sweep that the store has on disk now.

    Raises
    ------
    StoreError
        If the store has another format.
    """
    text = (folder / "sweep.json").read_text(encoding="utf-8")
    if (found := json.loads(text).get("format")) != FORMAT:
        raise StoreError(
            f"{folder}: this store has the format {found}, and this version of the package reads "
            f"only {FORMAT}; another folder, or the version that made it, is needed"
        )
    return Sweep.from_json(text)


def text_digest(folder: Path) -> str:
    """Return a digest of the specification on disk, which only an extension changes."""
    return hashlib.sha256((folder / "sweep.json").read_bytes()).hexdigest()


def first_versions(folder: Path) -> dict[str, str]:
    """Return the versions of packages that made the first units.

    Raises
    ------
    StoreError
        If the store has no record of its code.
    """
    if not (records := code_records(folder)):
        raise StoreError(f"{folder}: there is no record of its code (code.jsonl)")
    return dict(records[0]["versions"])


def unit_of(sweep: Sweep, record: dict[str, Any]) -> Unit:
    """Return the unit that a record names."""
    block, index, sampler = record["unit"]
    return Unit(block, sweep.number(index), sampler)


def name_of(sweep: Sweep, unit: Unit) -> list[Any]:
    """Return the name of a unit in records."""
    return [unit.block, sweep.index(unit.cell), unit.sampler]


def last_run(folder: Path) -> dict[str, Any]:
    """Return the record of the last run: `seconds`, `target`, `reasons`; empty before the first."""
    try:
        return dict(json.loads((folder / "run.json").read_bytes()))
    except (FileNotFoundError, ValueError):
        return {}


def write_run(folder: Path, record: dict[str, Any]) -> None:
    """Replace the record of the last run."""
    write_durably(folder / "run.json", json.dumps(record).encode())
