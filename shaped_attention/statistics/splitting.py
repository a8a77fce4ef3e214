"""Adaptive multilevel splitting: the probability of a rare event of a Markov chain [1]_ [2]_.

A score tells how close a path has come to the event; paths in the event have the score infinity.
Of N replicas, all whose score is at most the k-th smallest are killed, ties included. Each is
replaced by a survivor, chosen uniformly, up to the first time at which its score exceeds that
level; from there on it has new random numbers. A generation that kills K replicas multiplies the
weight by 1 - K / N, and the algorithm ends when the k-th smallest score is infinite. The weight
times the fraction of replicas in the event is then an unbiased estimator of its probability,
whatever the score [2]_; the score sets only the variance, at best about -log(p) / N relative to
the square of the probability p.

References
----------
.. [1] F. Cérou, A. Guyader. Adaptive multilevel splitting for rare event analysis. Stochastic
   Analysis and Applications 25 (2007) 417-443.
.. [2] C.-E. Bréhier, M. Gazeau, L. Goudenège, T. Lelièvre, M. Rousset. Unbiasedness of some
   generalized adaptive multilevel splitting algorithms. Annals of Applied Probability 26 (2016)
   3559-3601.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import Indices, Stepper

Array = NDArray[np.float64]

Score = Callable[[Array, Array, NDArray[np.bool_]], Array]
"""Scores (n,) of V (n, m, m) at times (n,); the last argument marks paths that end there. An
infinite score is the event."""

KILLED = 0.25
"""Fraction of the replicas that a generation kills, at least."""

_MORE_STEPS = 1.25
"""Steps of a path by the clock for which room is reserved, over the points of the grid."""

_LEAST_WEIGHT = 1e-100
"""A run whose weight falls below it ends with the probability 0."""


@dataclass(frozen=True)
class Run:
    """An estimate, the steps that it took, and how many of the first N, independent paths hit.

    With the level of each generation, the number of replicas that it killed, and the share of paths
    that had stopped at the radius among those in the event at the end.
    """

    probability: float
    steps: int
    hits: int
    levels: list[float]
    killed: list[int]
    stopped: float = 0.0


class Replicas:
    """The paths of the replicas: scores and states at each of their steps."""

    def __init__(self, spec: Specification, stepper: Stepper, count: int, score: Score) -> None:
        self._stepper, self._score, self.count = stepper, score, count
        paths = starting_paths(spec, stepper, 0, count)
        usual = int(_MORE_STEPS * spec.steps) if stepper.clock else spec.steps
        room = (usual + 1, count)
        self.scores = np.full(room, -np.inf)
        self._horizon = spec.steps * spec.dt
        # What a path needs to go on from a step, as arguments of `Paths`.
        self._records: dict[str, NDArray[Any]] = {
            "factors": np.zeros((*room, *paths.factors().shape[1:])),
            "grid": np.zeros(room, dtype=np.int64), "left": np.full(room, spec.dt),
        }  # fmt: skip
        self._records["factors"][0] = paths.factors()
        self._born = 0
        self.steps = 0
        self._early = np.zeros(count, dtype=bool)

    def begin(self, go_on: Callable[[], None]) -> None:
        """Run all replicas from time 0."""
        self._run(np.arange(self.count), np.zeros(self.count, dtype=np.int64), go_on)

    def branch(
        self, dead: Indices, parents: Indices, level: float, go_on: Callable[[], None]
    ) -> None:
        """Replace replicas by their parents up to a level, and run them from there."""
        starts = np.argmax(self.scores[:, parents] > level, axis=0)
        # Paths that begin together are neighbours, so that tiles wait as a whole.
        order = np.argsort(starts, kind="stable")
        parents, starts = parents[order], starts[order]
        known = np.arange(len(self.scores))[:, None] <= starts
        self.scores[:, dead] = np.where(known, self.scores[:, parents], -np.inf)
        for record in self._records.values():
            record[:, dead] = record[:, parents]
        self._early[dead] = self._early[parents]
        self._run(dead, starts, go_on)

    def best(self) -> Array:
        """Return the score of each replica, the largest along its path."""
        return self.scores.max(axis=0)

    def stopped(self) -> float:
        """Return the share of paths that stopped before the horizon among those in the event."""
        event = self.best() == np.inf
        return float(self._early[event].mean()) if event.any() else 0.0

    def _run(self, which: Indices, starts: Indices, go_on: Callable[[], None]) -> None:
        """Run replicas from given steps of their records to their ends."""
        here = {name: record[starts, which] for name, record in self._records.items()}
        paths = Paths(self._stepper, self._born, taken=starts, **here)
        self._born += len(which)
        paths.end(np.flatnonzero(self.scores[starts, which] == np.inf))
        while len(moved := paths.step()):
            self._record(which, paths, moved)
            go_on()

    def _record(self, which: Indices, paths: Paths, moved: Indices) -> None:
        steps, times = paths.taken[moved], paths.times[moved]
        while steps.max() >= len(self.scores):
            self.scores = np.concatenate([self.scores, np.full_like(self.scores, -np.inf)])
            for name, record in self._records.items():
                self._records[name] = np.concatenate([record, np.zeros_like(record)])
        ended = paths.ended[moved]
        scores = self._score(paths.covariances()[moved], times, ended)
        # Nothing branches off where a path ended outside the event.
        scores = np.where(ended & (scores < np.inf), -np.inf, scores)
        self._early[which[moved]] = ended & (times < (1.0 - 1e-9) * self._horizon)
        paths.end(moved[scores == np.inf])
        self.scores[steps, which[moved]] = scores
        now = {"factors": paths.factors(), "grid": paths.grid, "left": paths.left}
        for name, record in self._records.items():
            record[steps, which[moved]] = now[name][moved]
        self.steps += len(moved)


def split(replicas: Replicas, generator: np.random.Generator, go_on: Callable[[], None]) -> Run:
    """Estimate the probability of an infinite score; `go_on` is called after each step."""
    count = replicas.count
    replicas.begin(go_on)
    weight, best = 1.0, replicas.best()
    hits = int((best == np.inf).sum())
    levels: list[float] = []
    killed: list[int] = []
    rank = max(1, int(KILLED * count)) - 1
    while weight > _LEAST_WEIGHT:
        level = float(np.partition(best, rank)[rank])
        if level == np.inf:
            break
        dead = np.flatnonzero(best <= level)
        alive = np.flatnonzero(best > level)
        weight *= len(alive) / count
        levels.append(level)
        killed.append(len(dead))
        if not len(alive):
            break
        parents = alive[generator.integers(0, len(alive), len(dead))]
        replicas.branch(dead, parents, level, go_on)
        best = replicas.best()
    probability = weight * float((best == np.inf).mean()) if weight > _LEAST_WEIGHT else 0.0
    return Run(probability, replicas.steps, hits, levels, killed, replicas.stopped())
