"""The loop of a run: units out to an engine, results into the store, until nothing is left."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray
from tqdm import tqdm

from shaped_attention.progress import duration, progress_bar
from shaped_attention.sweep.code_identity import Code, code_of, differences
from shaped_attention.sweep.engines import NO_GUARD, Engine
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.store_records import StoreError
from shaped_attention.sweep.work_order import Schedule
from shaped_attention.sweep.work_units import run_unit

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
"""How long the loop waits for a unit before it looks at the clock."""

_TELL_SECONDS = 0.1
"""Time between two movements of the bar."""

_LOG_SECONDS = 60.0
"""Time between two lines of the log."""

_OVERTIME = 1.1
"""A unit starts if it is expected to end within this multiple of the time limit."""

_BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{postfix}"

_MOST_BYTES = 256 * 1024**2
"""Size of the results that may wait for the writer before the loop waits too."""

_MOST_BREAKS = 3
"""Number of executors that may break in succession before any unit returns."""


@dataclass(frozen=True)
class Report:
    """Outcome of a run.

    Attributes
    ----------
    finished, failed, left
        Number of units in the store, given up in this run, and still to do.
    reasons
        Number of cells (counted per sampler) by the reason why they stopped: 'samples', 'target',
        'time', 'failed'.
    seconds
        Duration of the run.
    """

    finished: int
    failed: int
    left: int
    reasons: dict[str, int]
    seconds: float


def _timed_unit(
    sweep: Sweep, unit: Unit, code: Code, device: str | None, threads: int | None
) -> tuple[dict[str, NDArray[Any]], float]:
    """Run a unit and return its arrays and seconds; raise if the worker's code is different."""
    began = time.perf_counter()
    if changed := differences(code, code_of(sweep.layers, imported=True)):
        raise RuntimeError(f"the worker's code is not that of the run ({'; '.join(changed)})")
    arrays = run_unit(sweep, unit, device, threads)
    return arrays, time.perf_counter() - began


class Loop:
    """Loop over the units that a store lacks.

    Parameters
    ----------
    store, engine
        The store, whose lock is held, and the engine that runs the units.
    retries
        Number of further attempts at a unit that fails.
    code
        The code that workers must have.
    seconds
        Time limit of the run, or None.
    spent
        Seconds that the run has taken already.
    """

    def __init__(
        self, store: Store, engine: Engine, retries: int, code: Code, seconds: float | None,
        spent: float = 0.0,
    ) -> None:  # fmt: skip
        self.store, self.engine, self.retries, self.code = store, engine, retries, code
        self.seconds = seconds
        self.began = self.logged = self.told = time.monotonic() - spent
        self.schedule = Schedule(
            store.sweep, store.finished(), partial(store.arrays.read, "moments")
        )
        self.waiting: Iterator[Unit] = self.schedule.next_units()
        self.again: list[Unit] = []
        # Units that ran when a worker died: each runs alone next, to find the one that kills.
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
        self.before = self.schedule.total - self.schedule.left
        self.bar: tqdm[int] | None = None

    def run(self, progress: bool | None) -> Report:
        """Run until nothing is left or the time is up."""
        with progress_bar("sweep", progress, total=1.0, bar_format=_BAR) as self.bar:
            try:
                while self._submit() or self.running:
                    self._collect()
                self._commit(settle=True)
                self._tell(last=True)
            except StoreError:
                raise
            except BaseException:
                # Results that have come back are kept in any case.
                self._commit(settle=True)
                raise
            finally:
                for future in self.running:
                    future.cancel()
                self.writer.shutdown()
        self.store.note_run(self.reasons())
        return self._report()

    def _full(self) -> bool:
        """Return whether to wait: two units per worker keep it busy, and suspects run alone."""
        if self.suspects or self.alone:
            return bool(self.running)
        return len(self.running) >= 2 * self.engine.workers

    def _out_of_time(self, unit: Unit) -> bool:
        """Return whether a unit would end too late, after those that run or wait for a worker."""
        if self.seconds is None:
            return False
        passed = time.monotonic() - self.began
        turns = -(-(len(self.running) + 1) // self.engine.workers)
        expected = turns * self.schedule.seconds_of(unit)
        # Nothing is expected (NaN) before the first unit of all.
        return passed > self.seconds or passed + expected > _OVERTIME * self.seconds

    def _submit(self) -> bool:
        """Keep the engine busy; return whether anything was submitted."""
        submitted = False
        while not self._full():
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
            if self._out_of_time(unit):
                self.again.insert(0, unit)
                break
            future = self.engine.submit(_timed_unit, self.store.sweep, unit, self.code)
            self.running[future] = unit
            submitted = True
            if future.done():
                break
        return submitted

    def _collect(self) -> None:
        """Collect finished units, and repeat those that a dead worker cut off."""
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
                self._returned(unit, arrays, seconds)
        if cut_off:
            self._repair(cut_off)
        self._tell()
        # Batches form by themselves while the writer is busy with the last one.
        _, written = self.writing
        held = sum(array.nbytes for _, arrays, _ in self.ready for array in arrays.values())
        if written is None or written.done() or held > _MOST_BYTES:
            self._commit()

    def _returned(self, unit: Unit, arrays: dict[str, NDArray[Any]], seconds: float) -> None:
        _log.debug("%s: %.3g s", unit, seconds)
        self.schedule.took(unit, seconds)
        self.ready.append((unit, arrays, seconds))

    def _repair(self, cut_off: list[Unit]) -> None:
        """Replace a broken executor and repeat its units; a unit that ran alone is to blame."""
        lost = list(self.running.items())
        self.running.clear()
        self.breaks += 1
        if self.breaks > _MOST_BREAKS + self.retries:
            raise BrokenExecutor(f"workers die before any unit comes back; {NO_GUARD}")
        if not self.engine.recover():
            raise BrokenExecutor("the executor broke, and only its owner can replace it")
        for future, unit in lost:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._returned(unit, *future.result())
            else:
                cut_off.append(unit)
        if len(cut_off) > 1:
            self.suspects += sorted(cut_off)
            return
        (unit,) = cut_off
        self.deaths[unit] += 1
        if self.deaths[unit] > self.retries:
            self._give_up(unit, BrokenExecutor("its worker died every time it ran alone"))
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
        """Start writing finished units, while others run; with `settle`, wait for it."""
        self._settle()
        # An interrupt before this line loses nothing.
        ready, self.ready = self.ready, []
        if ready:
            units = [unit for unit, _, _ in ready]
            self.writing = (units, self.writer.submit(self.store.commit, ready))
        if settle:
            self._settle()

    def _settle(self) -> None:
        """Mark units as finished once their lines are in the ledger."""
        units, written = self.writing
        self.writing = ([], None)
        if written is not None:
            written.result()
            for unit in units:
                self.schedule.finish(unit)

    def _tell(self, last: bool = False) -> None:
        """Move the bar, whose length is the share of the time; a line in the log each minute."""
        now = time.monotonic()
        to_log = now - self.logged > _LOG_SECONDS
        hidden = self.bar is None or self.bar.disable
        if not (last or to_log) and (hidden or now - self.told < _TELL_SECONDS):
            return
        schedule, self.told = self.schedule, now
        # Units that have come back count, whether or not the disk has them yet.
        back = [unit for unit, _, _ in self.ready] + self.writing[0]
        done = schedule.total - schedule.left + len(back)
        seconds = schedule.seconds_left() - sum(map(schedule.seconds_of, back))
        left = seconds / self.engine.workers if done < schedule.total else 0.0
        rest = "unknown time" if math.isnan(left) else duration(left)
        if self.bar is not None and not hidden:
            spent = now - self.began
            self.bar.n = 0.0 if math.isnan(left) else spent / (spent + left)
            self.bar.set_description_str(f"sweep: {done}/{schedule.total} units", refresh=False)
            self.bar.set_postfix_str(f"{rest} left")
        if to_log:
            self.logged = now
            rate = (done - self.before) / (now - self.began)
            _log.info(
                "%d of %d units done, %.3g a second, %s left", done, schedule.total, rate, rest
            )

    def reasons(self) -> dict[tuple[int, int], str]:
        """Return why each cell and sampler stopped."""
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
