"""The parts of a study of a rare event: paths that pilot the score, and independent runs.

Finished runs are kept in a file, so that an interrupted call continues where it was.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import argument_error
from shaped_attention.io.records import append_records, read_records
from shaped_attention.io.storage import check_writable
from shaped_attention.numerics.seeds import canonical, derived_seed
from shaped_attention.numerics.threads import thread_count
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.loop import on_threads, sample, starting_paths
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import Stepper, stepper_of
from shaped_attention.samplers.task import task_of
from shaped_attention.statistics.distances import generator_of
from shaped_attention.statistics.reaction import Reaction
from shaped_attention.statistics.splitting import Replicas, Run, split

Array = NDArray[np.float64]

_MEDIAN = 0.4549
"""Median of the square of a standard normal; exploding paths do not move a median."""

PILOTS = 256
"""Number of pilot paths."""

_PROBE = 100
"""Plain paths that look for a frequent event, for each replica: a hundredth of a study's time."""

_FEWEST_HITS = 20
"""Events among the first plain paths from which their probability is known well enough."""

_COST_OF_A_REPLICA = 20.0
"""Time of a path of a replica over that of a plain one (measured at 4 tokens by the clock)."""


@dataclass(frozen=True)
class Study:
    """Maker of the paths of each part, which has its own seed."""

    spec: Specification
    width: int | None
    method: str = "direct"

    @property
    def horizon(self) -> float:
        """Time at which paths end."""
        return self.spec.steps * self.spec.dt

    def seed(self, **part: Any) -> int:
        """Return the seed of a part."""
        return derived_seed(self.spec.seed, {"study": "rare_event", **part})

    def stepper(self, seed: int, **changes: Any) -> tuple[Specification, Stepper]:
        """Return what moves paths with a seed."""
        spec = replace(self.spec, seed=seed, **changes)
        stream = "sde" if self.width is None else "chain"
        return spec, stepper_of(spec, task_of(spec, stream, self.width, self.method))


@dataclass(frozen=True)
class Pilot:
    """What a few paths show."""

    ends: Array
    """V at their ends."""
    deviation: float
    """Standard deviation, from the median, of the observable on its scale in a step."""
    varies: bool
    """Whether a given coordinate differs between paths at the same time."""


def pilot(
    study: Study, values: Callable[[Array], Array], coordinate: Callable[..., Array] | None
) -> Pilot:
    """Run pilot paths; `values` maps V to the observable on its scale."""
    paths = starting_paths(*study.stepper(study.seed(part="pilot")), 0, PILOTS)
    now = values(paths.covariances())
    squares: list[Array] = []
    varies = False
    while len(moved := paths.step()):
        v, left = paths.covariances()[moved], study.horizon - paths.times[moved]
        new = values(v)
        squares.append((new - now[moved]) ** 2)
        now[moved] = new
        if coordinate is not None and not varies:
            together = np.isclose(left, left[0], rtol=0.0, atol=1e-12)
            scores = coordinate(v[together], left[together])
            varies = bool((scores != scores[0]).any())
    return Pilot(
        paths.covariances(), math.sqrt(float(np.median(np.concatenate(squares))) / _MEDIAN), varies
    )


def plain_run(study: Study, seed: int, paths: int, reaction: Reaction) -> Run:
    """Estimate the probability of an event at the end by plain paths, in one run."""
    hits, stopped, steps, dt = 0, 0, 0, study.spec.dt
    block = max(1, min(paths, study.spec.options.memory // (16 * study.spec.tokens**2)))
    for start in range(0, paths, block):
        count = min(block, paths - start)
        part = derived_seed(seed, {"study": "plain paths", "start": start})
        spec, stepper = study.stepper(part, samples=count, saved=(study.spec.steps,))
        result = sample(spec, stepper, "paths", {})
        event = reaction.inside(reaction.value(result["V"].to_numpy()[0]))
        early = result["stopping_time"].to_numpy() < (1.0 - 1e-9) * study.spec.steps * dt
        hits += int(event.sum())
        stopped += int((event & early).sum())
        taken = result.get("steps_taken", None)
        steps += count * study.spec.steps if taken is None else int(taken.sum())
    return Run(hits / paths, steps, hits, [], [], stopped / hits if hits else 0.0)


def plain_paths(
    study: Study, reaction: Reaction, replicas: int, runs: int
) -> tuple[int | None, int]:
    """Return how many plain paths in each run have the error of splitting and take less time.

    The number is None if splitting is faster, or the event is at any time: plain paths are
    then no faster than the first generation of splitting. Also return the steps taken to find out.
    """
    if not reaction.at_end:
        return None, 0
    probe = plain_run(study, study.seed(part="plain"), _PROBE * replicas, reaction)
    if probe.hits < _FEWEST_HITS:
        return None, probe.steps
    p = probe.probability
    generations = -math.log(p) if p < 1.0 else 0.0
    paths = (1.0 - p) / p * replicas * runs / max(generations, 1.0)
    if paths > _COST_OF_A_REPLICA * replicas * runs * (1.0 + generations):
        return None, probe.steps
    return max(replicas, math.ceil(paths / runs)), probe.steps


def finished_runs(store: Path, call: dict[str, Any]) -> dict[int, Run]:
    """Return the runs in a file by their numbers, or begin it; refuse the file of another call."""
    if store.is_dir():
        raise argument_error("store", "a file, not a folder", str(store))
    check_writable(store.parent, "store")
    records = read_records(store)
    if not records:
        if store.exists() and store.stat().st_size:
            raise argument_error("store", "a file from rare_event, or a new one", str(store))
        append_records(store, [{"call": call}])
    stored = records[0].get("call", {}) if records else call
    changed = [x for x in call if canonical(stored.get(x)) != canonical(call[x])]
    if changed:
        text = f"a new file: this one holds the runs of a call with another {changed[0]}"
        raise argument_error("store", text, str(store))
    runs = {}
    for record in records[1:]:
        number = record.pop("run")
        runs[number] = Run(**record)
    return runs


def run_all(
    study: Study, reaction: Reaction, replicas: int, runs: dict[int, Run], count: int,
    store: Path | None, progress: bool | None, plain: int | None,
) -> list[Run]:  # fmt: skip
    """Return all runs; those that are not known yet are recorded as soon as they are finished.

    `plain` is the number of plain paths of a run; None for splitting.
    """
    missing, lock = sorted({*range(count)} - runs.keys()), threading.Lock()

    def one(number: int, go_on: Callable[[], None]) -> None:
        seed = study.seed(run=number)
        if plain is not None:
            run = plain_run(study, seed, plain, reaction)
        else:
            paths = Replicas(*study.stepper(seed), replicas, reaction.score)
            run = split(paths, generator_of(seed, 0), go_on)
        with lock:
            runs[number] = run
            if store is not None:
                append_records(store, [{"run": number} | asdict(run)])
            bar.update(1)

    done = count - len(missing)
    with progress_bar("rare event", progress, total=count, initial=done, unit="run") as bar:
        if plain is None:
            on_threads(one, missing, thread_count(study.spec.place))
        else:
            for number in missing:  # Plain paths are divided among threads by their sampler.
                one(number, lambda: None)
    return [runs[number] for number in range(count)]
