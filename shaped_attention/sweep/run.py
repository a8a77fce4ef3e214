"""Run a sweep, or what is left of it, into its store."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from shaped_attention.checks import argument_error, check_count, check_positive, with_types
from shaped_attention.samplers.arguments import check_device, named_device
from shaped_attention.sweep.code_identity import (
    Code,
    changes_since,
    code_of,
    differences,
    last_code,
    note_code,
)
from shaped_attention.sweep.engines import Engine, ExecutorEngine, InProcess, Processes
from shaped_attention.sweep.run_loop import Loop, Report
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.store_records import StoreError
from shaped_attention.sweep.toml import as_sweep

_log = logging.getLogger(__name__)


@with_types
def run_sweep(
    sweep: Sweep | str | Path,
    path: str | Path,
    *,
    engine: Engine | Executor | None = None,
    retries: int = 2,
    progress: bool | None = None,
    accept_changed_code: bool = False,
    seconds: float | None = None,
) -> Report:
    """Run a sweep, or what is left of it, into the store at `path`.

    Parameters
    ----------
    sweep
        The sweep, or the path of its TOML file. A store that holds another sweep is rejected.
    path
        Folder of the store, which is created or continued.
    engine
        Where units run: `InProcess` (the default), `Processes`, an executor (with `ExecutorEngine`,
        you set how many units it runs at a time) or `dask_engine`. The caller closes the engine,
        which does not change the results on the same type of device.
    retries
        Number of further attempts at a unit that raises an error, or whose worker dies while it
        runs alone. Then the unit is abandoned, and the store records its error.
    progress
        Whether to show a progress bar; by default only if the standard error stream is a terminal.
    accept_changed_code
        Whether to continue a store whose units come from different code. The store keeps digests of
        this package, of the layer function's module and of the modules that it imports, except
        installed libraries, and the versions of NumPy, SciPy, PyTorch, Numba and torchsde. A
        difference raises StoreError unless it is accepted. The store then records it with the
        number of older units.
    seconds
        Time limit of this run; by default `seconds` of the sweep. No unit starts if it is expected
        to end more than 10 % beyond the limit.

    Returns
    -------
    Report

    Raises
    ------
    StoreError
        If the store belongs to another sweep, has units from different code, is in use, or cannot
        be written.
    BrokenExecutor
        If worker processes cannot start, as in a script without ``if __name__ == "__main__":``.
    ValueError
        If an argument is outside its range.
    """
    began = time.monotonic()
    sweep = as_sweep(sweep)
    check_count("retries", retries, lowest=0)
    if seconds is not None:
        check_positive("seconds", seconds)
    used = InProcess() if engine is None else engine
    if isinstance(used, Executor):
        used = ExecutorEngine(used, getattr(used, "_max_workers", None) or os.cpu_count() or 1)
    if not hasattr(used, "devices"):
        raise argument_error("engine", "an engine, an executor or None", engine)
    for device in used.devices or (sweep.device,):
        if named_device(device).type != named_device(sweep.device).type:
            raise ValueError(
                f"engine has the device {device!r} and the sweep {sweep.device!r}; only devices of "
                "the same type give bit-identical results; set device = "
                f"'{named_device(device).type}' in the sweep, or run it elsewhere"
            )
        if isinstance(used, InProcess | Processes):
            check_device(device)
    store = Store(path, sweep)
    with store.locked():
        store.check_current()
        limit = store.sweep.seconds if seconds is None else seconds
        code = settled_code(store, accept_changed_code)
        if edited := differences(code, code_of(store.sweep.layers, imported=True)):
            raise StoreError(
                f"{path}: the code of its cells changed after this process imported it "
                f"({'; '.join(edited)}); start a new process"
            )
        if lost := store.arrays.damaged():
            store.take_out(lost)
            _log.warning(
                "%s: %d files missing or damaged; their units are computed again", path, len(lost)
            )
        loop = Loop(store, used, retries, code, limit, spent=time.monotonic() - began)
        store.note_run({})
        return loop.run(progress)


def settled_code(store: Store, accept: bool) -> Code:
    """Return the code of a new run; record it if it differs from that of the stored units.

    StoreError if units that are there may have other numbers, unless `accept`.
    """
    now, before, units = code_of(store.sweep.layers), last_code(store.path), store.finished()
    layers = store.sweep.layers_of({unit.cell for unit in units})
    changed = changes_since(before, now, layers) if units else []
    if changed and not accept:
        raise StoreError(
            f"{store.path}: its {len(units)} units may come from different code "
            f"({'; '.join(changed)}); use another folder, or --accept-changed-code "
            "(accept_changed_code=True)"
        )
    if now != before:
        with store.writing():
            note_code(store.path, now, len(units), changed)
    return now


@with_types
def resume_sweep(path: str | Path, **options: Any) -> Report:
    """Continue the sweep of an existing store; `options` are those of `run_sweep`.

    Parameters
    ----------
    path
        Folder of the store.
    options
        Of `run_sweep`.

    Raises
    ------
    StoreError
        If there is no store, or as in `run_sweep`.
    ValueError
        If the store names code, as a layer function: `run_sweep` with the same sweep goes on.
    """
    sweep = Store(path).sweep
    sweep.check_own_code()
    return run_sweep(sweep, path, **options)
