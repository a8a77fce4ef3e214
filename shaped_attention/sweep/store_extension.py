"""The extension of a store, complete or absent whenever a process dies.

What may fail comes first: the larger arrays are drafted and flushed to disk. The extension is
decided once the file that announces it exists. The remaining steps can be repeated from any point,
and are repeated when the store is opened next; they call no function that the store names.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from shaped_attention.io.storage import sync, write_durably
from shaped_attention.sweep.code_identity import further_modules, note_further_modules
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_arrays import (
    DRAFT,
    Arrays,
    checksum,
    checksums,
    draft_arrays,
    enlarge_arrays,
)
from shaped_attention.sweep.store_records import (
    SPECIFICATION,
    Ledger,
    first_versions,
    kept_sweep,
    last_run,
    write_run,
)

_ANNOUNCED = "extension.json"


def announced(folder: Path) -> bool:
    """Return whether an extension is decided and not yet complete."""
    return (folder / _ANNOUNCED).exists()


def announce(folder: Path, sweep: Sweep) -> None:
    """Draft the arrays of a larger sweep, and decide to extend the store to it; the lock is held.

    Raises
    ------
    StoreError
        If the ledger is damaged.
    """
    digests = further_modules(kept_sweep(folder), sweep)
    draft = folder / DRAFT
    try:
        draft_arrays(draft, sweep, first_versions(folder), Ledger(folder).chunks())
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    entries = {"sweep": sweep.to_json(), "modules": digests}
    write_durably(folder / _ANNOUNCED, json.dumps(entries).encode())
    sync(folder)


def enlarge(folder: Path) -> None:
    """Extend the store to the larger sweep that is announced; the lock is held.

    Units with more samples in the larger sweep are taken out of their chunks.
    """
    entries = json.loads((folder / _ANNOUNCED).read_bytes())
    sweep = Sweep.from_json(entries["sweep"])
    note_further_modules(folder, entries["modules"])
    draft, data, ledger = folder / DRAFT, folder / "data.zarr", Ledger(folder)
    if not draft.exists():
        # Under another name, because a process may die before the draft is complete.
        fresh = folder / f"{DRAFT}.new"
        draft_arrays(fresh, sweep, first_versions(folder), ledger.chunks())
        fresh.rename(draft)
    text = sweep.to_json().encode()
    ledger.announce(checksums(draft) | {SPECIFICATION: checksum(text)})
    enlarge_arrays(draft, data)
    arrays = Arrays(data, sweep, ledger.chunks(), ledger.sums)
    for unit, (samples, _) in ledger.units(sweep).items():
        if samples < sweep.block_samples(unit.block):
            arrays.clear(unit)
    if chunks := arrays.changed():
        ledger.announce({name: checksum(content) for name, content in chunks.items()})
        arrays.put(chunks)
    if last := last_run(folder):
        # The reasons why cells stopped do not apply to the larger sweep.
        write_run(folder, last | {"reasons": []})
    os.sync()
    write_durably(folder / SPECIFICATION, text)
    ledger.settle()
    sync(folder)
    (folder / _ANNOUNCED).unlink()
    sync(folder)


def rewrite_metadata(folder: Path, sweep: Sweep) -> None:
    """Write coordinates and metadata of a store anew; the lock is held."""
    draft, ledger = folder / DRAFT, Ledger(folder)
    draft_arrays(draft, sweep, first_versions(folder), ledger.chunks())
    ledger.announce(checksums(draft))
    enlarge_arrays(draft, folder / "data.zarr")
    ledger.settle()
