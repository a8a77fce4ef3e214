"""Run a sweep, or what is left of it, into its file."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from shaped_attention.checks import argument_error, check_count, check_positive, with_types
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.arguments import check_device, named_device
from shaped_attention.sweep.code import changes, code_here, code_of
from shaped_attention.sweep.file import SweepFile, SweepFileError
from shaped_attention.sweep.specification import Sweep, Unit
from shaped_attention.sweep.toml import read_sweep
from shaped_attention.sweep.units import Drawn, draw, end, processes, task_of

_log = logging.getLogger(__name__)

_MOST_READY, _LONGEST_WAIT = 64, 1.0
"""Units, and seconds, after which finished units are written."""

_TRIES = 3
"""How often a unit runs whose worker dies."""

_CACHED_CELLS = 4096
"""Number of cells that are kept for their later blocks."""

_UNKNOWN = 100
"""Workers of an executor that does not say how many it has."""


class Report(NamedTuple):
    """Units in the file after a run, given up in it, and still to do, and its seconds."""

    finished: int
    failed: int
    left: int
    seconds: float


@with_types
def run_sweep(
    sweep: Sweep | str | Path,
    path: str | Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    devices: Sequence[str] = (),
    layer: Callable[..., Any] | None = None,
    seconds: float | None = None,
    accept_changed_code: bool = False,
    progress: bool | None = None,
) -> Report:
    """Run a sweep, or what is left of it, into the file at `path`.

    Parameters
    ----------
    sweep
        The sweep, or the path of its TOML file, or of a ``.sweep`` to be continued.
    path
        File of the sweep, NAME.sweep, which is created or continued. A file of the same sweep with
        fewer samples, or fewer values at the ends of axes, grows into this one.
    executor
        Any `concurrent.futures.Executor` that can send functions and arguments to its workers, such
        as ``client.get_executor()`` of Dask. It does not change the results on the same type of
        device. The caller closes it.
    workers
        Number of local processes with one thread each; 1, the default, runs units in this process.
        With an `executor`, the number of its workers, if it does not say.
    devices
        Devices such as 'cuda:0', with one local process each, instead of `workers`.
    layer
        Function that returns the layer, if the sweep is that of a ``.sweep``, which has its name.
    seconds
        Time after which no unit starts; by default `seconds` of the sweep.
    accept_changed_code
        Whether to continue a file whose units come from other code: of this package, of the layer
        function's module, or of numerical libraries. The file records it.
    progress
        Whether to show a progress bar; by default only if the standard error stream is a terminal.

    Raises
    ------
    SweepFileError
        If the file belongs to another sweep, has units from other code, is in use, or cannot be
        written.
    BrokenExecutor
        If the executor of the caller breaks. What was committed is kept.
    ValueError
        If an argument is outside its range.
    """
    began = time.monotonic()
    sweep = sweep if isinstance(sweep, Sweep) else read_sweep(sweep)
    sweep = sweep if layer is None else sweep.with_layer(layer)
    sweep.check()
    if workers is not None:
        check_count("workers", workers)
    limit = sweep.seconds if seconds is None else seconds
    if limit is not None:
        check_positive("seconds", limit)
    for device in devices or (sweep.device,):
        check_device(device)
        if named_device(device).type != named_device(sweep.device).type:
            raise argument_error("devices", f"of the type of the sweep's, {sweep.device}", devices)
    with SweepFile(path, sweep) as file:
        done = {found.unit for found in file.units() if found.arrays is not None}
        now, records = code_of(sweep), file.codes()
        changed = changes(records[-1]["code"], now) if records and done else []
        if changed and not accept_changed_code:
            raise SweepFileError(
                f"{path}: its {len(done)} units come from other code ({'; '.join(changed)}); use "
                "another file, or --accept-changed-code (accept_changed_code=True)"
            )
        file.begin(now, changed, len(done))
        count = len(devices) or workers or 1
        local = executor is None and (bool(devices) or count > 1)
        deadline = None if limit is None else time.monotonic() + limit
        loop = Loop(file, deadline)
        if local:
            loop.local(partial(processes, count, devices), count)
        elif executor is not None:
            loop.others(executor, workers)
        waiting = deque(unit for unit in sweep.units() if unit not in done)
        with progress_bar("sweep", progress, total=sweep.unit_count, initial=len(done)) as bar:
            loop.run(waiting, bar.update)
    finished = len(done) + loop.finished
    left = sweep.unit_count - finished - loop.failed
    return Report(finished, loop.failed, left, time.monotonic() - began)


class Loop:
    """Units out to an executor, results into the file, until nothing is left or the time is up.

    Units run in this process unless `local` or `others` says where.
    """

    def __init__(self, file: SweepFile, deadline: float | None) -> None:
        self.file, self.sweep, self.deadline = file, file.sweep, deadline
        self.executor: Executor | None = None
        self.pool: Callable[[], ProcessPoolExecutor] | None = None
        self.most, self.finished, self.failed = 1, 0, 0
        self.cell, self.code = lru_cache(_CACHED_CELLS)(self.sweep.cell), code_here()
        self.ready: list[tuple[Unit, float, bytes]] = []
        self.given_up: list[tuple[Unit, str]] = []
        self.running: dict[Future[Drawn], Unit] = {}
        # Units that ran when a worker died run alone, until the one that kills is found.
        self.suspects, self.tries = deque[Unit](), Counter[Unit]()

    def local(self, pool: Callable[[], ProcessPoolExecutor], workers: int) -> None:
        """Run units in a pool of local processes, which is made again when one of them dies."""
        self.pool, self.most = pool, 2 * workers
        try:
            self.executor = pool()
        except BrokenExecutor:
            raise BrokenExecutor(
                'no process starts; a script needs `if __name__ == "__main__":` around its calls'
            ) from None

    def others(self, executor: Executor, workers: int | None) -> None:
        """Run units in an executor of the caller."""
        known = (getattr(executor, name, None) for name in ("_max_workers", "num_workers"))
        self.executor = executor
        self.most = 2 * (workers or next(filter(None, known), _UNKNOWN))

    def run(self, waiting: deque[Unit], advance: Callable[[int], object]) -> None:
        """Run units; `advance` is called for each one that has ended."""
        written = time.monotonic()
        try:
            while self._submit(waiting) or self.running:
                ended = [future for future in self.running if future.done()]
                ended = ended or [*wait(self.running, _LONGEST_WAIT, FIRST_COMPLETED).done]
                # A caller's executor that breaks ends the run: first what it has finished.
                in_order = sorted(ended, key=lambda future: not _came_back(future))
                broken = [unit for future in in_order if (unit := self._cut_off(future))]
                advance(len(ended) - len(broken))
                if broken:
                    self._replace(broken)
                if len(self.ready) >= _MOST_READY or time.monotonic() - written > _LONGEST_WAIT:
                    self._write()
                    written = time.monotonic()
        finally:
            try:
                # Results that have come back are kept in any case.
                for future in filter(_came_back, list(self.running)):
                    self._cut_off(future)
                self._write()
            finally:
                if self.pool is not None:
                    end(self.executor)  # type: ignore[arg-type]

    def _submit(self, waiting: deque[Unit]) -> bool:
        """Keep the executor busy; return whether a unit was submitted."""
        before = len(self.running)
        while len(self.running) < (1 if self.suspects else self.most):
            late = self.deadline is not None and time.monotonic() > self.deadline
            queue = self.suspects or waiting
            if late or not queue:
                break
            unit, future = queue.popleft(), Future[Drawn]()
            task = task_of(self.sweep, unit, self.cell(unit.cell))
            if self.executor is None:
                future.set_result(draw(task))
            else:
                try:
                    future = self.executor.submit(draw, task)
                except Exception as error:
                    future.set_exception(BrokenExecutor(str(error)))
            self.running[future] = unit
        return len(self.running) > before

    def _cut_off(self, future: Future[Drawn]) -> Unit | None:
        """Take the result of a unit or its error; return the unit if its worker died."""
        unit = self.running.pop(future)
        try:
            drawn = future.result()
        except (BrokenExecutor, CancelledError) as error:
            if self.pool is None:
                raise BrokenExecutor(
                    f"the executor broke ({error}); the units that it finished are in "
                    f"{self.file.path}, and another run continues"
                ) from error
            return unit
        except Exception as error:  # of sending
            drawn = Drawn(b"", 0.0, self.code, f"{type(error).__name__}: {error}")
        if drawn.error:
            self._give_up(unit, drawn.error)
        elif drawn.code != self.code:
            differing = changes(self.code, drawn.code)
            raise SweepFileError(f"a worker has other code than this process: {differing}")
        else:
            self.ready.append((unit, drawn.seconds, drawn.data))
            self.finished += 1
        return None

    def _replace(self, broken: list[Unit]) -> None:
        """Replace the local processes, and run the units again that they had."""
        broken += [unit for future in list(self.running) if (unit := self._cut_off(future))]
        _log.warning("a worker process died; the processes are replaced")
        for unit in sorted(broken):
            self.tries[unit] += 1
            if len(broken) == 1 and self.tries[unit] >= _TRIES:
                self._give_up(unit, "its worker died every time")
            else:
                self.suspects.append(unit)
        if self.pool is not None:
            end(self.executor)  # type: ignore[arg-type]
            self.executor = self.pool()

    def _give_up(self, unit: Unit, message: str) -> None:
        place = f"{unit.sampler}, {self.sweep.point(unit.cell)}, block {unit.block}"
        _log.warning("%s: %s", place, message)
        self.given_up.append((unit, message))
        self.failed += 1

    def _write(self) -> None:
        ready, self.ready = self.ready, []
        given_up, self.given_up = self.given_up, []
        if ready or given_up:
            self.file.commit(ready, given_up)


def _came_back(future: Future[Drawn]) -> bool:
    """Return whether a future has a result."""
    return future.done() and not future.cancelled() and future.exception() is None
