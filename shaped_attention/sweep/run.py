"""The loop of a sweep: units out to an engine, results into the store, until nothing is left."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from tqdm import tqdm

from shaped_attention.argument_types import with_types
from shaped_attention.checks import check_count
from shaped_attention.samplers.devices import check_device, named_device
from shaped_attention.sweep.code_identity import Code, differences, imported_code
from shaped_attention.sweep.engines import (
    NO_GUARD,
    Engine,
    ExecutorEngine,
    InProcess,
    Processes,
)
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store, StoreError
from shaped_attention.sweep.toml import as_sweep
from shaped_attention.sweep.work_order import Schedule
from shaped_attention.sweep.work_units import Unit, run_unit

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
"""How long the loop waits for a unit before it looks at the clock."""

_MOST_BYTES = 256 * 1024**2
"""Results that may wait for the writer; then the loop waits too."""

_MOST_BREAKS = 3
"""Executors that may break, one after the other, without any unit coming back."""


@dataclass(frozen=True)
class Report:
    """What a run did.

    Attributes
    ----------
    finished, failed, left
        Units that the store has, that were given up in this run, and that are still to do.
    reasons
        How many cells (with a sampler) stopped for which reason: 'samples', 'target', 'time',
        'failed'.
    seconds
        Of the run.
    """

    finished: int
    failed: int
    left: int
    reasons: dict[str, int]
    seconds: float


@with_types
def run_sweep(
    sweep: Sweep | str | Path,
    path: str | Path,
    *,
    engine: Engine | Executor | None = None,
    retries: int = 2,
    progress: bool | None = None,
    accept_changed_code: bool = False,
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
        run = _Run(store, used, retries, store.settle_code(accept_changed_code))
        store.note_run({})
        return run.loop(progress)


@with_types
def resume_sweep(path: str | Path, **options: Any) -> Report:
    """`run_sweep` for the sweep of an existing store.

    Raises
    ------
    StoreError
        If there is none, and as `run_sweep`.
    """
    return run_sweep(Store(path).sweep, path, **options)


def _timed_unit(
    sweep: Sweep, unit: Unit, code: Code, device: str | None, threads: int | None
) -> tuple[dict[str, NDArray[Any]], float]:
    """What an engine calls: a unit, and how long it took; refused where the code is other."""
    began = time.perf_counter()
    if changed := differences(code, imported_code(sweep)):
        raise RuntimeError(f"the worker has other code than the run ({'; '.join(changed)})")
    arrays = run_unit(sweep, unit, device, threads)
    return arrays, time.perf_counter() - began


class _Run:
    def __init__(self, store: Store, engine: Engine, retries: int, code: Code) -> None:
        self.store, self.engine, self.retries, self.code = store, engine, retries, code
        self.began = time.monotonic()
        self.schedule = Schedule(store.sweep, store.finished(), store.moments)
        self.waiting: Iterator[Unit] = self.schedule.next_units()
        self.again: list[Unit] = []
        # Units that ran when a worker died: each alone next, to tell which one kills.
        self.suspects: list[Unit] = []
        self.alone = False
        self.running: dict[Future[Any], Unit] = {}
        self.errors: Counter[Unit] = Counter()
        self.deaths: Counter[Unit] = Counter()
        self.ready: list[tuple[Unit, dict[str, NDArray[Any]], float]] = []
        self.breaks = 0
        self.writer = ThreadPoolExecutor(1)
        self.writing: tuple[list[Unit], Future[None] | None] = ([], None)
        self.failed = 0
        self.tell: Callable[[], None] = lambda: None

    def loop(self, progress: bool | None) -> Report:
        """Run until nothing is left or the time is over."""
        schedule = self.schedule
        show = progress if progress is not None else sys.stderr.isatty()
        done = schedule.total - schedule.left
        with tqdm(
            total=schedule.total, initial=done, desc="sweep", unit="unit", disable=not show
        ) as bar:
            self.tell = lambda: _advance(bar, schedule)
            try:
                while self._submit() or self.running:
                    self._collect()
                self._commit(settle=True)
            except StoreError:
                raise
            except BaseException:
                # What has come back is kept whatever happened.
                self._commit(settle=True)
                raise
            finally:
                for future in self.running:
                    future.cancel()
                self.writer.shutdown()
        self.store.note_run(self.reasons())
        return self._report()

    def _full(self) -> bool:
        """Two units a worker, so that none waits for this loop; suspects run alone."""
        if self.suspects or self.alone:
            return bool(self.running)
        return len(self.running) >= 2 * self.engine.workers

    def _out_of_time(self) -> bool:
        limit = self.store.sweep.seconds
        return limit is not None and time.monotonic() - self.began > limit

    def _submit(self) -> bool:
        """Keep the engine busy; whether anything was submitted."""
        submitted = False
        while not self._full() and not self._out_of_time():
            self.alone = bool(self.suspects)
            held = self.suspects or self.again
            unit = held.pop(0) if held else next(self.waiting, None)
            if unit is None:
                # A round may have been widened since the iterator began.
                self._commit(settle=True)
                self.waiting = self.schedule.next_units()
                unit = next(self.waiting, None)
                if unit is None:
                    break
            future = self.engine.submit(_timed_unit, self.store.sweep, unit, self.code)
            self.running[future] = unit
            submitted = True
            if future.done():
                break
        return submitted

    def _collect(self) -> None:
        """Take what is finished, and give back what a dead worker cut off."""
        finished, _ = wait(self.running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
        cut_off: list[Unit] = []
        for future in finished:
            unit = self.running.pop(future)
            try:
                arrays, seconds = future.result()
            except (BrokenExecutor, CancelledError):
                cut_off.append(unit)
            except Exception as error:
                self._erred(unit, error)
            else:
                self.breaks = 0
                self.ready.append((unit, arrays, seconds))
        if cut_off:
            self._repair(cut_off)
        # Batches form by themselves while the writer is busy with the last one.
        _, written = self.writing
        held = sum(array.nbytes for _, arrays, _ in self.ready for array in arrays.values())
        if written is None or written.done() or held > _MOST_BYTES:
            self._commit()

    def _repair(self, cut_off: list[Unit]) -> None:
        """All that runs in a broken executor is lost with it; a unit that was alone is to blame."""
        lost = list(self.running.items())
        self.running.clear()
        self.breaks += 1
        if self.breaks > _MOST_BREAKS + self.retries:
            raise BrokenExecutor(f"workers die before any unit comes back; {NO_GUARD}")
        if not self.engine.recover():
            raise BrokenExecutor("the executor broke, and is not this run's to replace")
        for future, unit in lost:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.ready.append((unit, *future.result()))
            else:
                cut_off.append(unit)
        if len(cut_off) > 1:
            self.suspects += sorted(cut_off)
            return
        (unit,) = cut_off
        self.deaths[unit] += 1
        if self.deaths[unit] > self.retries:
            self._give_up(unit, BrokenExecutor("its worker died each time that it ran alone"))
        else:
            self.suspects.append(unit)

    def _erred(self, unit: Unit, error: Exception) -> None:
        self.errors[unit] += 1
        _log.info("%s failed: %s", unit, error)
        if self.errors[unit] > self.retries:
            self._give_up(unit, error)
        else:
            self.again.append(unit)

    def _give_up(self, unit: Unit, error: BaseException) -> None:
        _log.warning("%s is given up: %s", unit, error)
        trace = "".join(traceback.format_exception(error))
        self.store.record_failure(unit, error, trace)
        self.schedule.fail(unit)
        self.failed += 1

    def _commit(self, settle: bool = False) -> None:
        """Have what is ready written, while units run; with `settle`, wait for it."""
        ready, self.ready = self.ready, []
        self._settle()
        if ready:
            units = [unit for unit, _, _ in ready]
            self.writing = (units, self.writer.submit(self.store.commit, ready))
        if settle:
            self._settle()

    def _settle(self) -> None:
        """Units count as finished once their line is in the ledger."""
        units, written = self.writing
        self.writing = ([], None)
        if written is not None:
            written.result()
            for unit in units:
                self.schedule.finish(unit)
            self.tell()

    def reasons(self) -> dict[tuple[int, int], str]:
        """Why each cell and sampler stopped."""
        return {key: self.schedule.reasons.get(key, "time") for key in self.schedule.keys}

    def _report(self) -> Report:
        schedule = self.schedule
        return Report(
            finished=len(self.store.finished()),
            failed=self.failed,
            left=schedule.left,
            reasons=dict(Counter(self.reasons().values())),
            seconds=time.monotonic() - self.began,
        )


def _advance(bar: Any, schedule: Schedule) -> None:
    bar.total = schedule.total
    bar.update(schedule.total - schedule.left - bar.n)
