"""The loop that all samplers share: paths move from one stored time to the next, in chunks.

Compiled calls return about every 50 ms, so that a run can be interrupted and shows its progress.
An interrupt or an error in one chunk stops all chunks.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.numerics.threads import one_thread_of_worker, thread_count
from shaped_attention.samplers.memory import check_kept
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.results import kept_of, make_result
from shaped_attention.samplers.steppers import AnyStepper

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Measure = Callable[[Paths, int], Array]
"""A function of paths at a stored grid point, with values (count, ...)."""

T = TypeVar("T")

_SLICE = 0.05
"""Seconds after which a compiled call returns."""

_log = logging.getLogger(__name__)


def sample(
    stepper: AnyStepper,
    parameters: Mapping[str, float | str],
    measures: Mapping[str, Measure] = {},
    with_state: bool = False,
) -> tuple[xr.Dataset, dict[str, Array]]:
    """Move all paths; return what is kept of them as a result, and everything that `run_paths` has.

    `parameters` are recorded besides those that all samplers have.
    """
    spec = stepper.spec
    kept, names = kept_of(spec.keep, spec.tokens)
    check_kept(spec, len(names) or spec.tokens**2)

    def of_covariances(paths: Paths, point: int) -> Array:
        return kept(paths.covariances(point))

    values = run_paths(stepper, {"kept": of_covariances, **measures}, with_state=with_state)
    return make_result(spec, values, parameters, names), values


def run_paths(
    stepper: AnyStepper, measures: Mapping[str, Measure], with_state: bool = False
) -> dict[str, Array]:
    """Move all paths to the last grid point, and measure them at the stored times.

    Returns
    -------
    Values at the stored times (time, sample, ...) by the name of their measure, and by sample

    - `stopping_time`, infinite for paths that did not stop;
    - by the clock `steps_taken` and `largest_speed`;
    - `state` (sample, groups, m, c) at the end, if it is asked for.
    """
    spec, kept = stepper.spec, dict[str, Array]()
    samples, label, size = spec.samples, spec.sampler, stepper.chunk()
    starts = range(0, samples, size)
    lock = threading.Lock()
    total = samples * spec.steps
    bar, shows = None, spec.progress
    if shows or (shows is None and sys.stderr is not None and sys.stderr.isatty()):
        from shaped_attention.progress import progress_bar  # most runs need no bar

        bar = progress_bar(label, True, total=total, unit="step", unit_scale=True)

    def count_steps(steps: int) -> None:
        if bar is not None:
            with lock:
                bar.update(steps)

    def keep(name: str, first: int, values: Array | Indices, at: int | None = None) -> None:
        """Write the values of a chunk, of those at stored times at one of these."""
        times = () if at is None else (len(spec.saved),)
        with lock:
            if name not in kept:
                kept[name] = np.empty((*times, samples, *values.shape[1:]), values.dtype)
        # Samples are contiguous for each time: chunks write without false sharing.
        whole = kept[name] if at is None else kept[name][at]
        whole[first : first + len(values)] = values

    def move(first: int, go_on: Callable[[], None]) -> None:
        """Move one chunk of paths."""
        count, shown, budget = min(size, samples - first), 0, 1
        paths = Paths(stepper, first, count)
        if stepper.clock:
            paths.store(spec.saved)
        for i, point in enumerate((*spec.saved, spec.steps)):
            # By the clock, quick paths do not wait at stored times for those beside them.
            target = spec.steps if stepper.clock else point
            while paths.behind(target):
                began = time.perf_counter()
                if paths.advance(target, budget):
                    seconds = max(time.perf_counter() - began, 1e-9)
                    budget = max(1, int(budget * _SLICE / seconds))
                go_on()
                reached = paths.reached()
                count_steps(count * (reached - shown))
                shown = reached
            if i < len(spec.saved):
                for name, measure in measures.items():
                    keep(name, first, measure(paths, point), i)
        keep("stopping_time", first, paths.stopping_times())
        if stepper.clock:
            keep("steps_taken", first, paths.taken[:count])
            keep("largest_speed", first, paths.largest[:count])
        count_steps(count * (spec.steps - shown))
        if with_state:
            keep("state", first, paths.factors())

    with nullcontext() if bar is None else bar:
        on_threads(move, starts, thread_count(spec.place))
    stopped = int(np.isfinite(kept["stopping_time"]).sum())
    _log.info("%s: %d samples, %d chunks, %d stopped", label, samples, len(starts), stopped)
    return kept


def on_threads(
    work: Callable[[T, Callable[[], None]], None], parts: Iterable[T], threads: int
) -> None:
    """Work on all parts; an error in one, or an interrupt, stops the others.

    The second argument of `work`, which it calls often, raises once another part has failed.
    """
    cancelled = threading.Event()

    def go_on() -> None:
        if cancelled.is_set():
            raise _CancelledError

    def work_or_cancel(part: T) -> None:
        try:
            go_on()
            with one_thread_of_worker():
                work(part, go_on)
        except BaseException:
            cancelled.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work_or_cancel, part) for part in parts]
        try:
            for future in futures:
                # The error that cancelled a part is raised, not the cancellation.
                with suppress(_CancelledError):
                    future.result()
        except BaseException:
            cancelled.set()
            for future in futures:
                future.cancel()
            raise


class _CancelledError(Exception):
    """Raised inside a part when another part fails or the user interrupts."""
