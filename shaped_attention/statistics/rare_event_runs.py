"""The parts of a study of a rare event: paths that pilot the score, and independent runs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.branches import Branching, GridBranching
from shaped_attention.samplers.chunks import thread_count
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.task import task_of
from shaped_attention.statistics.distances import generator_of
from shaped_attention.statistics.reaction import Reaction
from shaped_attention.statistics.run_records import RunRecords
from shaped_attention.statistics.splitting import Replicas, split

PILOTS = 256
"""Number of paths that show the drift of the score's coordinate."""


@dataclass(frozen=True)
class Study:
    """Maker of the paths of each part, which has its own seed."""

    request: Request
    width: int | None

    def seed(self, **part: Any) -> int:
        """Return the seed of a part."""
        return derived_seed(self.request.seed, {"study": "rare_event", **part})

    def paths(self, seed: int) -> Branching:
        """Return the paths with a seed."""
        request = replace(self.request, seed=seed)
        stream = "sde" if self.width is None else "chain"
        return GridBranching(request, task_of(request, stream, self.width))


def with_drift(study: Study, reaction: Reaction) -> Reaction:
    """Return the reaction with the drift of the coordinate, from pilot paths."""
    branching = study.paths(study.seed(part="pilot"))
    factors, marks = branching.first(PILOTS)
    paths = branching.begin(0, factors, np.zeros(PILOTS, dtype=np.int64), marks)
    while len(paths.advance()):
        pass
    v = np.concatenate([study.request.v0[None], paths.covariances()])
    gaps = reaction.gap(v, reaction.value(v))
    return replace(reaction, drift=float(gaps[0] - np.median(gaps[1:])) / reaction.horizon)


def check_coordinate(study: Study, reaction: Reaction, name: str) -> None:
    """Raise ValueError unless the given coordinate differs between paths at some step."""
    branching = study.paths(study.seed(part="pilot"))
    factors, marks = branching.first(PILOTS)
    paths = branching.begin(0, factors, np.zeros(PILOTS, dtype=np.int64), marks)
    while len(moved := paths.advance()):
        v, left = paths.covariances()[moved], reaction.horizon - paths.times[moved]
        same = left == left[0]
        scores = reaction.coordinate(v[same], left[same]) if reaction.coordinate else left
        if (scores != scores[0]).any():
            return
    raise ValueError(
        f"coordinate={name}: it has the same values on all paths; one that depends on V is needed"
    )


def run_all(
    study: Study, reaction: Reaction, replicas: int, records: RunRecords, runs: int,
    progress: bool | None,
) -> None:  # fmt: skip
    """Carry out the runs without a record on threads, and record each as soon as it is finished."""
    missing = [number for number in range(runs) if number not in records.runs]
    cancelled = threading.Event()

    def tick() -> None:
        if cancelled.is_set():
            raise _CancelledError

    def one(number: int) -> None:
        seed = study.seed(run=number)
        try:
            tick()
            paths = Replicas(study.paths(seed), replicas, reaction.score)
            records.add(number, split(paths, generator_of(seed, 0), tick))
        except BaseException:
            cancelled.set()
            raise

    done = runs - len(missing)
    with (
        progress_bar("rare event", progress, total=runs, initial=done, unit="run") as bar,
        ThreadPoolExecutor(thread_count(study.request.place)) as pool,
    ):
        futures = [pool.submit(one, number) for number in missing]
        try:
            for future in as_completed(futures):
                # The error that cancelled a run is raised, not the cancellation.
                with suppress(_CancelledError):
                    future.result()
                    bar.update(1)
        except BaseException:
            cancelled.set()
            for future in futures:
                future.cancel()
            raise


class _CancelledError(Exception):
    """Raised inside a run when another run fails or the user interrupts."""
