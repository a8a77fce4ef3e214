"""Run a sweep into its store, or what is left of it."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from shaped_attention.argument_types import with_types
from shaped_attention.checks import check_count, check_positive
from shaped_attention.samplers.devices import check_device, named_device
from shaped_attention.sweep.engines import Engine, ExecutorEngine, InProcess, Processes
from shaped_attention.sweep.run_loop import Loop, Report
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.toml import as_sweep


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
        What to run, or the path of its TOML file. The store keeps it and takes no other.
    path
        Folder of the store; it is made, or continued.
    engine
        Where units run: `InProcess` by default, `Processes`, an executor (`ExecutorEngine` says how
        many units it takes at a time) or `dask_engine`. It is not closed here. It does not change a
        result on the same type of device.
    retries
        How often a unit that raises an error, or whose worker dies while it runs alone, is tried
        again; then it is given up and its error stands in the store.
    progress
        Whether to show a bar; by default if the standard error stream is a terminal.
    accept_changed_code
        Whether to go on with a store whose units come from other code. The store keeps digests of
        the layer function and of what it reaches by name in its module, and the versions of this
        package and of NumPy, SciPy, PyTorch, Numba and torchsde. A difference is refused, or
        accepted and noted in the store with the number of units that are older.
    seconds
        Time after which this run begins no more units; by default `seconds` of the sweep.

    Returns
    -------
    Report

    Raises
    ------
    StoreError
        If the store belongs to another sweep, has units of other code, is in use, or cannot be
        written.
    BrokenExecutor
        If worker processes cannot start, as in a script without ``if __name__ == "__main__":``.
    ValueError
        If an argument is outside its range.
    """
    sweep = as_sweep(sweep)
    check_count("retries", retries, lowest=0)
    if seconds is not None:
        check_positive("seconds", seconds)
    used = InProcess() if engine is None else engine
    if isinstance(used, Executor):
        used = ExecutorEngine(used, getattr(used, "_max_workers", None) or os.cpu_count() or 1)
    if not hasattr(used, "devices"):
        raise ValueError(f"engine={engine!r}: an engine, an executor or None is needed")
    for device in used.devices or (sweep.device,):
        if named_device(device).type != named_device(sweep.device).type:
            raise ValueError(
                f"engine has the device {device!r}, the sweep {sweep.device!r}: the same type is "
                "needed, on which numbers are the same to the last bit"
            )
        if isinstance(used, InProcess | Processes):
            check_device(device)
    store = Store(path, sweep)
    with store.locked():
        store.check_current()
        limit = store.sweep.seconds if seconds is None else seconds
        loop = Loop(store, used, retries, store.settle_code(accept_changed_code), limit)
        store.note_run({})
        return loop.run(progress)


@with_types
def resume_sweep(path: str | Path, **options: Any) -> Report:
    """`run_sweep` for the sweep of an existing store.

    Raises
    ------
    StoreError
        If there is none, and as `run_sweep`.
    """
    return run_sweep(Store(path).sweep, path, **options)
