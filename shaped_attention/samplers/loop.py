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
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.numerics.threads import one_thread_of_worker, thread_count
from shaped_attention.samplers.memory import check_kept, free_bytes
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.results import Measure, Run, kept_of, make_result
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import Stepper
from shaped_attention.samplers.task import start_states

Array = NDArray[np.float64]
T = TypeVar("T")

_SLICE = 0.05
"""Seconds after which a compiled call returns."""

_SMALLER = 8
"""By how much chunks are smaller on a device whose memory was full."""

_log = logging.getLogger(__name__)


def sample(
    spec: Specification, stepper: Stepper, sampler: str, parameters: Mapping[str, Any]
) -> xr.Dataset:
    """Move all paths of a specification, and return what is kept of them as a result."""
    kept = kept_of(spec.options.keep, spec.tokens)
    check_kept(spec, kept.numbers(spec.tokens))
    run = run_paths(spec, stepper, sampler, {"kept": kept})
    return make_result(sampler, spec, run, parameters, kept.names)


def run_paths(
    spec: Specification,
    stepper: Stepper,
    label: str,
    measures: Mapping[str, Measure],
    with_state: bool = False,
) -> Run:
    """Move all paths to the last grid point, and measure them at the stored times.

    `with_state` keeps the states in which they end, too.

    On a device whose memory is full, as when others use it, chunks are smaller once.

    Raises
    ------
    MemoryError
        If the device's memory is full with smaller chunks too, or with a single sample.
    """
    size = stepper.chunk(spec)
    try:
        return _run_chunks(spec, stepper, label, measures, size, with_state)
    except RuntimeError as error:
        # Named, since most runs do not load torch.
        if type(error).__name__ != "OutOfMemoryError":
            raise
        if size == 1:
            needed, free = stepper.bytes_of_one(spec) + stepper.bytes_of_all, free_bytes(spec.place)
            there = "" if free is None else f"; {free / 2**30:.3g} GiB are free"
            raise MemoryError(
                f"{label}: the memory of {spec.place} is full with a single sample, which takes "
                f"about {needed / 2**30:.3g} GiB{there}; wait for other programs there to end, or "
                "use fewer tokens or a smaller width"
            ) from error
    smaller = max(1, size // _SMALLER)
    _log.warning(
        "%s: the memory of %s is full; the run goes on in chunks of %d samples instead of %d",
        label, spec.place, smaller, size,
    )  # fmt: skip
    try:
        return _run_chunks(spec, stepper, label, measures, smaller, with_state)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise MemoryError(
            f"{label}: the memory of {spec.place} is full even with {smaller} samples at a time; "
            "wait for other programs there to end, or pass a smaller chunk"
        ) from error


def _run_chunks(
    spec: Specification,
    stepper: Stepper,
    label: str,
    measures: Mapping[str, Measure],
    size: int,
    with_state: bool,
) -> Run:
    """Move all paths in chunks of a size."""
    samples = spec.samples
    run = Run({}, np.empty(samples))
    if stepper.clock:
        run.steps_taken, run.largest_speed = np.empty(samples, dtype=np.int64), np.empty(samples)
    starts = range(0, samples, size)
    lock = threading.Lock()
    total = samples * spec.steps
    bar, shows = None, spec.options.progress
    if shows or (shows is None and sys.stderr is not None and sys.stderr.isatty()):
        from shaped_attention.progress import progress_bar  # most runs need no bar

        bar = progress_bar(label, True, total=total, unit="step", unit_scale=True)

    def count_steps(steps: int) -> None:
        if bar is not None:
            with lock:
                bar.update(steps)

    def move(first: int, go_on: Callable[[], None]) -> None:
        """Move one chunk of paths."""
        count = min(size, samples - first)
        here, shown, budget = slice(first, first + count), 0, 1
        paths = starting_paths(spec, stepper, first, count)
        if stepper.clock:
            paths.store(spec.saved)
        for i, point in enumerate((*spec.saved, spec.steps)):
            # By the clock, quick paths do not wait at stored times for those beside them.
            target = spec.steps if stepper.clock else point
            while paths.behind(target):
                began = time.perf_counter()
                used = _advance(paths, target, budget)
                if used:
                    seconds = max(time.perf_counter() - began, 1e-9)
                    budget = max(1, int(budget * _SLICE / seconds))
                go_on()
                reached = paths.reached()
                count_steps(count * (reached - shown))
                shown = reached
            if i < len(spec.saved):
                for name, measure in measures.items():
                    values = measure(paths, point)
                    with lock:
                        if name not in run.measured:
                            shape = (len(spec.saved), samples, *values.shape[1:])
                            run.measured[name] = np.empty(shape, values.dtype)
                    # Samples are contiguous for each time: chunks write without false sharing.
                    run.measured[name][i, here] = values
        run.stopping_time[here] = paths.stopping_times()
        if run.steps_taken is not None and run.largest_speed is not None:
            run.steps_taken[here] = paths.taken[:count]
            run.largest_speed[here] = paths.largest[:count]
        count_steps(count * (spec.steps - shown))
        if with_state:
            state = paths.factors()
            with lock:
                if run.state is None:
                    run.state = np.empty((samples, *state.shape[1:]))
                run.state[here] = state

    with nullcontext() if bar is None else bar:
        on_threads(move, starts, thread_count(spec.place))
    stopped = int(np.isfinite(run.stopping_time).sum())
    _log.info("%s: %d samples, %d chunks, %d stopped", label, samples, len(starts), stopped)
    return run


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
            # An error holds this frame: with its future here neither, nor the arrays of its part,
            # would be freed before another attempt.
            while futures:
                # The error that cancelled a part is raised, not the cancellation.
                with suppress(_CancelledError):
                    futures.pop(0).result()
        except BaseException:
            cancelled.set()
            for future in futures:
                future.cancel()
            raise


def starting_paths(spec: Specification, stepper: Stepper, first: int, count: int) -> Paths:
    """Return the paths first, ..., first + count - 1 where they start."""
    states = start_states(spec, stepper.task, first, count)
    return Paths(stepper, first, stepper.starting(states))


def _advance(paths: Paths, point: int, budget: int) -> bool:
    """Move paths towards a grid point; return whether the whole budget was used."""
    if paths.task.method == "torchsde":
        from shaped_attention.samplers import torchsde_steps  # on first use: torchsde is slow

        return torchsde_steps.advance(paths, point, budget)
    return paths.advance(point, budget)


class _CancelledError(Exception):
    """Raised inside a part when another part fails or the user interrupts."""
