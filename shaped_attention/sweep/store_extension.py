"""The extension of a store, whole or not at all whatever moment a process dies at.

It is decided once the file that announces it is there. The rest can be done again from any point,
and is, when the store is opened next.
"""

from __future__ import annotations

import os
from pathlib import Path

from shaped_attention.io.storage import sync, write_durably
from shaped_attention.sweep.code_identity import note_further_layers
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_arrays import DRAFT, Arrays, draft_arrays, enlarge_arrays
from shaped_attention.sweep.store_records import (
    first_versions,
    kept_sweep,
    last_run,
    ledger,
    write_run,
)

_ANNOUNCED = "extension.json"


def announced(folder: Path) -> bool:
    """Whether an extension is decided and not yet done."""
    return (folder / _ANNOUNCED).exists()


def announce(folder: Path, sweep: Sweep) -> None:
    """Decide that the store is extended to a larger sweep."""
    write_durably(folder / _ANNOUNCED, sweep.to_json().encode())
    sync(folder)


def enlarge(folder: Path) -> None:
    """Give the store to the larger sweep that is announced; the lock is held.

    Chunks of units that have more samples in it are deleted.
    """
    before = kept_sweep(folder)
    sweep = Sweep.from_json((folder / _ANNOUNCED).read_text(encoding="utf-8"))
    note_further_layers(folder, before, sweep)
    draft, data = folder / DRAFT, folder / "data.zarr"
    draft_arrays(draft, sweep, first_versions(folder))
    enlarge_arrays(draft, data)
    arrays = Arrays(data, sweep)
    for unit, (samples, _) in ledger(folder, sweep).items():
        if samples < sweep.block_samples(unit.block):
            for chunk in arrays.chunks(unit):
                chunk.unlink(missing_ok=True)
    if last := last_run(folder):
        # Why cells stopped is not known of the larger sweep.
        write_run(folder, last | {"reasons": []})
    os.sync()
    write_durably(folder / "sweep.json", sweep.to_json().encode())
    sync(folder)
    (folder / _ANNOUNCED).unlink()
    sync(folder)
