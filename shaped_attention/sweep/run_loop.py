"""The loop of a run: units out to an engine, results into the store, until nothing is left."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import Counter
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
        raise RuntimeError(f"the worker's code differs from that of the run ({'; '.join(changed)})")
    arrays = run_unit(sweep, unit, device, threads)
    return arrays, time.perf_counter() - began


class Loop:
    """Loop over the units that a store lacks, whose lock is held.

    Workers must have the `code`; the run has a time limit of `seconds`, of which some are `spent`.
    """

    def __init__(
        self, store: Store, engine: Engine, retries: int, code: Code, seconds: float | None,
        spent: float,
    ) -> None:  # fmt: skip
        self.store, self.engine, self.retries, self.code = store, engine, retries, code
        self.seconds = seconds
        self.began = self.logged = self.told = time.monotonic() - spent
        moments = partial(store.arrays.read, "moments")
        self.schedule = Schedule(store.sweep, store.finished(), moments)
        self.before = self.schedule.total - self.schedule.left
        self.waiting = self.schedule.next_units()
        self.again: list[Unit] = []
        # Units that ran when a worker died: each runs alone, until the one that kills is found.
        self.suspects: list[Unit] = []
        self.running: dict[Future[Any], Unit] = {}
        self.attempts: Counter[Unit] = Counter()
        self.breaks = self.failed = 0
        self.ready: list[tuple[Unit, dict[str, NDArray[Any]], float]] = []
        self.writer = ThreadPoolExecutor(1)
        self.writing: tuple[list[Unit], Future[None] | None] = ([], None)
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
                if self.running:
                    self.engine.abandon(list(self.running))
                self.writer.shutdown()
        reasons = {key: self.schedule.reasons.get(key, "time") for key in self.schedule.keys}
        self.store.note_run(reasons)
        return Report(
            finished=len(self.store.finished()), failed=self.failed, left=self.schedule.left,
            reasons=dict(Counter(reasons.values())), seconds=time.monotonic() - self.began,
        )  # fmt: skip

    def _submit(self) -> bool:
        """Keep the engine busy with two units per worker; return whether any was submitted."""
        submitted = False
        while len(self.running) < (1 if self.suspects else 2 * self.engine.workers):
            unit = self._next()
            if unit is None:
                break
            if self._out_of_time(unit):
                if unit not in self.suspects:
                    self.again.insert(0, unit)
                break
            future = self.engine.submit(_timed_unit, self.store.sweep, unit, self.code)
            self.running[future] = unit
            submitted = True
            if future.done():
                break
        return submitted

    def _next(self) -> Unit | None:
        if self.suspects:
            return self.suspects[0]
        if self.again:
            return self.again.pop(0)
        unit = next(self.waiting, None)
        if unit is None:
            # A round may have been widened since the iterator began.
            self._commit(settle=True)
            self.waiting = self.schedule.next_units()
            unit = next(self.waiting, None)
        return unit

    def _out_of_time(self, unit: Unit) -> bool:
        """Return whether a unit would end too late, after those that run or wait for a worker."""
        if self.seconds is None:
            return False
        passed = time.monotonic() - self.began
        turns = -(-(len(self.running) + 1) // self.engine.workers)
        expected = turns * self.schedule.seconds_of(unit)
        # Nothing is expected (NaN) before the first unit of all.
        return passed > self.seconds or passed + expected > _OVERTIME * self.seconds

    def _collect(self) -> None:
        """Collect finished units, and repeat those that a dead worker cut off."""
        finished, _ = wait(self.running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
        cut_off = [unit for future in finished if (unit := self._ended(future)) is not None]
        if cut_off:
            self._replace_workers(cut_off)
        self._tell()
        # Batches form by themselves while the writer is busy with the last one.
        _, written = self.writing
        held = sum(array.nbytes for _, arrays, _ in self.ready for array in arrays.values())
        if written is None or written.done() or held > _MOST_BYTES:
            self._commit()

    def _ended(self, future: Future[Any]) -> Unit | None:
        """Take the result of a unit, or try it again; return the unit if its worker died."""
        unit = self.running.pop(future)
        if not future.done():
            return unit
        try:
            arrays, seconds = future.result()
        except (BrokenExecutor, CancelledError):
            return unit
        except Exception as error:
            _log.info("%s failed: %s", unit, error)
            self._failed(unit, error, self.again)
        else:
            _log.debug("%s: %.3g s", unit, seconds)
            self.breaks = 0
            self.schedule.took(unit, seconds)
            self.ready.append((unit, arrays, seconds))
        self.suspects = [other for other in self.suspects if other != unit]
        return None

    def _replace_workers(self, cut_off: list[Unit]) -> None:
        """Replace a broken executor and repeat its units; one that ran alone is to blame."""
        self.breaks += 1
        if self.breaks > _MOST_BREAKS + self.retries:
            raise BrokenExecutor(f"workers die before any unit comes back; {NO_GUARD}")
        if not self.engine.recover():
            raise BrokenExecutor("the executor broke, and only its owner can replace it")
        cut_off += [unit for future in list(self.running) if (unit := self._ended(future))]
        self.suspects = [unit for unit in self.suspects if unit not in cut_off]
        if len(cut_off) > 1:
            self.suspects = sorted(cut_off) + self.suspects
        else:
            error = BrokenExecutor("its worker died every time it ran alone")
            self._failed(cut_off[0], error, self.suspects)

    def _failed(self, unit: Unit, error: Exception, again: list[Unit]) -> None:
        """Put a unit among those to try again, or give it up after the last attempt."""
        self.attempts[unit] += 1
        if self.attempts[unit] <= self.retries:
            again.append(unit)
            return
        _log.warning("%s is abandoned: %s", unit, error)
        self.store.record_failure(unit, error, "".join(traceback.format_exception(error)))
        self.schedule.fail(unit)
        self.failed += 1

    def _commit(self, settle: bool = False) -> None:
        """Start writing finished units, while others run; with `settle`, wait for it."""
        self._settle()
        # An interrupt before this line loses nothing.
        ready, self.ready = self.ready, []
        if ready:
            future = self.writer.submit(self.store.commit, ready)
            self.writing = ([unit for unit, _, _ in ready], future)
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
