"""Run a sweep, or what is left of it, into its file."""

from __future__ import annotations

import inspect
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import ExitStack, suppress
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from shaped_attention.checks import argument_error, check_count, check_positive, with_types
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.arguments import check_device, named_device
from shaped_attention.sweep.data import Drawn
from shaped_attention.sweep.executors import Here, Processes
from shaped_attention.sweep.file import SweepFile, SweepFileError
from shaped_attention.sweep.specification import Sweep, Unit
from shaped_attention.sweep.toml import read_sweep
from shaped_attention.sweep.units import Task, changes, code_here, tasks_of

_log = logging.getLogger(__name__)

_MOST_READY, _LONGEST_WAIT = 64, 1.0
"""Units, and seconds, after which finished units are written."""

_MORE_TRIES = 2
"""How often a unit runs again whose worker has died."""

_UNKNOWN = 100
"""Workers of an executor that does not say how many it has."""


Pair = tuple[Unit, Task]


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
        File of the sweep, NAME.sweep, which is created or continued. With more samples, or more
        values at the ends of axes, it grows.
    executor
        Any `concurrent.futures.Executor`, such as ``client.get_executor()`` of Dask, which the
        caller closes. It does not change the results on the same type of device.
    workers
        Number of local processes with one thread each; 1, the default, is this process. With an
        `executor`, the number of its workers, if it does not say.
    devices
        Devices such as 'cuda:0', with one local process each, instead of `workers`.
    layer
        Function that returns the layer, if the sweep is that of a ``.sweep``, which has its name.
    seconds
        Time after which no unit starts; by default that of the sweep.
    accept_changed_code
        Whether to continue a file whose units come from other code: of this package, of the layer
        function's module, or of numerical libraries. The file records it.
    progress
        Whether to show a progress bar; by default if the standard error stream is a terminal.

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
    for device in devices or {sweep.device} - {"cpu"}:  # other names load torch
        check_device(device)
        if named_device(device).type != named_device(sweep.device).type:
            raise argument_error("devices", f"of the type of the sweep's, {sweep.device}", devices)
    with SweepFile(path, sweep) as file:
        done = {unit for unit, _, records in file.units() if records is not None}
        now = code_of(sweep)
        changed = changes(file.code(), now) if done else []
        if changed and not accept_changed_code:
            raise SweepFileError(
                f"{path}: its {len(done)} units come from other code ({'; '.join(changed)}); use "
                "another file, or --accept-changed-code (accept_changed_code=True)"
            )
        file.begin(now, changed, len(done))
        with ExitStack() as stack:
            if executor is None:
                here = not devices and workers in (None, 1)
                own = Here() if here else Processes(devices or [None] * (workers or 1))
                executor = stack.enter_context(own)
            bar = progress_bar("sweep", progress, total=sweep.unit_count, initial=len(done))
            advance = stack.enter_context(bar).update
            loop = Loop(file, executor, workers, limit, advance)
            loop.run(unit for unit in sweep.units() if unit not in done)
    finished = len(done) + loop.finished
    left = sweep.unit_count - finished - loop.failed
    return Report(finished, loop.failed, left, time.monotonic() - began)


def code_of(sweep: Sweep) -> dict[str, str]:
    """Return the code that determines the numbers of a sweep.

    Of the package and of the module of a function that returns a layer it is a digest of the source
    (of the function alone, where the module is the script that runs), of libraries the version.
    """
    code = code_here()
    for name, function in sweep.functions().items():
        script = function.__module__ == "__main__"
        try:
            source = inspect.getsource(function if script else sys.modules[function.__module__])
        except (OSError, TypeError):  # as of a function that was typed in
            source = "unknown"
        name = name if script else function.__module__
        code[name] = blake2b(source.encode(), digest_size=8).hexdigest()
    return code


class Loop:
    """Units out to an executor, results into the file, until nothing is left or the time is up.

    Where processes of ours die, the units that they had run alone, so that one which kills its own
    is found.
    """

    def __init__(
        self,
        file: SweepFile,
        executor: Executor,
        workers: int | None,
        seconds: float | None,
        advance: Callable[[], object],
    ) -> None:
        self.file, self.executor, self.advance = file, executor, advance
        said = (getattr(executor, name, None) for name in ("_max_workers", "num_workers"))
        self.most = 2 * (workers or next(filter(None, said), _UNKNOWN))
        self.deadline = math.inf if seconds is None else time.monotonic() + seconds
        self.running, self.ended = dict[Future[Drawn], Pair](), SimpleQueue[Future[Drawn]]()
        self.again, self.deaths = list[Pair](), Counter[Unit]()
        self.ready, self.written = list[tuple[Unit, Drawn]](), time.monotonic()
        self.finished = self.failed = 0

    def run(self, units: Iterator[Unit]) -> None:
        """Run units; those that have ended are written in any case."""
        task = tasks_of(self.file.sweep)
        each = ((unit, task(unit)) for unit in units)
        # Many are made at a time, while the processor's caches hold what makes them.
        pairs = chain.from_iterable(iter(lambda: list(islice(each, _MOST_READY)), []))
        try:
            while self._submit(pairs):
                with suppress(Empty):
                    self._take(self.ended.get(timeout=_LONGEST_WAIT))
                waited = time.monotonic() - self.written
                if len(self.ready) >= _MOST_READY or waited > _LONGEST_WAIT:
                    self._write()
        except (BrokenExecutor, CancelledError) as error:
            raise BrokenExecutor(
                f"the executor broke ({error}); the units that it finished are in "
                f"{self.file.path}, and another run continues"
            ) from error
        finally:
            while not self.ended.empty():
                with suppress(BrokenExecutor, CancelledError):
                    self._take(self.ended.get())
            self._write()

    def _submit(self, pairs: Iterator[Pair]) -> bool:
        """Submit the units that can start now; return whether any runs."""
        while time.monotonic() < self.deadline:
            died = self.deaths and any(self.deaths[unit] for unit, _ in self.running.values())
            if len(self.running) >= (1 if self.again or died else self.most):
                break
            pair = self.again.pop() if self.again else next(pairs, None)
            if pair is None:
                break
            try:
                future = self.executor.submit(pair[1])
            except RuntimeError as error:
                raise BrokenExecutor(str(error)) from error
            self.running[future] = pair
            future.add_done_callback(self.ended.put)
        return bool(self.running)

    def _take(self, future: Future[Drawn]) -> None:
        """Take the result of a unit, or its error."""
        unit, task = self.running.pop(future)
        try:
            drawn = future.result()
        except (BrokenExecutor, CancelledError):
            if not isinstance(self.executor, Processes):
                raise
            self.deaths[unit] += 1
            if self.deaths[unit] <= _MORE_TRIES:
                self.again.append((unit, task))
                return
            drawn = Drawn(b"", 0.0, "its worker died every time")
        except Exception as error:  # of sending
            drawn = Drawn(b"", 0.0, f"{type(error).__name__}: {error}")
        if drawn.error:
            place = f"{unit.sampler}, {self.file.sweep.point(unit.cell)}, block {unit.block}"
            _log.warning("%s: %s", place, drawn.error)
        self.ready.append((unit, drawn))
        self.failed += bool(drawn.error)
        self.finished += not drawn.error
        self.advance()

    def _write(self) -> None:
        ready, self.ready, self.written = self.ready, [], time.monotonic()
        if ready:
            self.file.commit(ready)
