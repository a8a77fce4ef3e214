"""Branches made at random: projections, norms, means, hidden units, scores, sums, selections.

A branch is a list of steps, each of which makes new rows from those before; rows 0 are the tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

import shaped_attention as sa
from shaped_attention.numerics.primitives import (
    by_mean_square,
    exp,
    leaky,
    normal_cdf,
    row_squares,
    sigmoid,
    softmax,
    tanh,
)

WIDTH = 8
UNITS: list[Callable[[Any], Any]] = [
    tanh, normal_cdf, lambda x: leaky(x, 1.0, 0.1), lambda x: x * sigmoid(x),
]  # fmt: skip
ORDERS = [[2, 0, 1], [0, 0, 1], [1, 1, 1]]

Step = Callable[[list[Any], Any], Any]
"""Takes all rows and `project`, and returns new rows."""


@dataclass(frozen=True)
class _Kind:
    """Numbers of columns of rows, and whether they are tokens with factors, or may have a mean."""

    columns: int
    tokens: bool


class Writer:
    """Writes the steps of a branch for a seed; `means` allows means of the tokens."""

    def __init__(self, seed: int, means: bool) -> None:
        self.random, self.means = random.Random(seed), means
        self.kinds = [_Kind(WIDTH, tokens=True)]
        self.steps: list[Step] = []
        for _ in range(self.random.randint(2, 7)):
            k = self.random.randrange(len(self.kinds))
            name = self.random.choice([*["project"] * 4, *_MADE])
            self.add(*_MADE[name](self, k, self.kinds[k]))
        last = self.random.choice(range(len(self.kinds))[-3:])
        self.ends = [(last, True), (self.random.randrange(len(self.kinds)), True)]
        direct = [k for k, kind in enumerate(self.kinds) if kind == _Kind(WIDTH, tokens=False)]
        if direct and self.random.random() < 0.5:
            self.ends.append((self.random.choice(direct), False))

    def add(self, step: Step, kind: _Kind) -> None:
        """Add a step that makes rows of some kind."""
        self.steps.append(step)
        self.kinds.append(kind)

    def as_wide(self, k: int) -> int:
        """Return the number of rows as wide as rows k."""
        columns = self.kinds[k].columns
        return self.random.choice(
            [j for j, kind in enumerate(self.kinds) if kind.columns == columns]
        )

    def project(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return a projection."""
        columns, root = self.random.choice([1, 2, 3, 5, 8, 8, 12]), kind.columns**0.5
        return lambda x, project: project(x[k], columns) / root, _Kind(columns, tokens=False)

    def norm(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return rows divided by the root of their mean square."""
        eps = self.random.choice([0.0, 0.1]) if kind.columns > 1 else 0.1
        return lambda x, _: by_mean_square(x[k], eps), kind

    def centre(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return rows less their means."""
        if kind.columns == 1 or (kind.tokens and not self.means):
            return self.project(k, kind)
        return lambda x, _: x[k] - x[k].mean(-1, keepdim=True), kind

    def units(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return a function of entries."""
        if kind.tokens:
            return self.project(k, kind)
        function = self.random.choice(UNITS)
        return lambda x, _: function(x[k]), kind

    def mix(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return rows mixed by attention with queries and keys of equal width."""
        q = self.random.randrange(len(self.kinds))
        other, columns = self.as_wide(q), self.kinds[q].columns
        seen = np.ones((3, 3), dtype=bool)
        return lambda x, _: softmax(x[q] @ x[other].mT / columns, seen) @ x[k], kind

    def sum(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return a sum of rows."""
        other, weight = self.as_wide(k), self.random.choice([1.0, -0.6, 0.7])
        tokens = kind.tokens and self.kinds[other].tokens
        return lambda x, _: x[k] + weight * x[other], _Kind(kind.columns, tokens)

    def select(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return the rows in another order, or some of them repeated."""
        order = self.random.choice(ORDERS)
        return lambda x, _: x[k][:, order], kind

    def join(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return rows side by side."""
        other = self.random.randrange(len(self.kinds))
        if kind.tokens or self.kinds[other].tokens:
            return self.project(k, kind)
        columns = kind.columns + self.kinds[other].columns
        return lambda x, _: torch.cat([x[k], x[other]], -1), _Kind(columns, tokens=False)

    def shrink(self, k: int, kind: _Kind) -> tuple[Step, _Kind]:
        """Return rows times a function of the lengths of others."""
        other = self.random.randrange(len(self.kinds))
        columns = self.kinds[other].columns
        return lambda x, _: exp(-0.3 * row_squares(x[other]) / columns) * x[k], kind

    def run(self, tokens: Any, project: Any) -> Any:
        """Return the branch of tokens."""
        x = [tokens]
        for step in self.steps:
            x.append(step(x, project))
        terms = [
            project(x[k], WIDTH) / self.kinds[k].columns ** 0.5 if projected else x[k]
            for k, projected in self.ends
        ]
        return 0.6 * terms[0] + sum(terms[1:-1], 0.5 * terms[-1])


_MADE: dict[str, Callable[[Writer, int, _Kind], tuple[Step, _Kind]]] = {
    "project": Writer.project, "norm": Writer.norm, "centre": Writer.centre,
    "units": Writer.units, "mix": Writer.mix, "sum": Writer.sum, "select": Writer.select,
    "join": Writer.join, "shrink": Writer.shrink,
}  # fmt: skip

_written = cache(Writer)


@dataclass(frozen=True)
class RandomBranch(sa.Block):
    """A block with the branch of a seed."""

    seed: int
    centred: bool = False
    gamma: float = 0.7
    limit = "not needed"

    @property
    def means(self) -> bool:
        """Whether its law depends on the means of the tokens."""
        return self.centred

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        """Return the branch."""
        return _written(self.seed, self.centred).run(tokens, project)


def random_branches(count: int, accepted: Callable[[RandomBranch], bool]) -> Iterator[RandomBranch]:
    """Yield the first blocks that are accepted, of which every other takes means of the tokens."""
    made, seed = 0, 0
    while made < count:
        block = RandomBranch(seed, centred=bool(seed % 2))
        seed += 1
        if accepted(block):
            made += 1
            yield block
