"""Programs on few tokens for one path, run by compiled code on one thread or several.

Tiles of 64 paths serve many samples. A layer of a large model has so many hidden units and heads
that one path has work for all threads. Here the instructions of a layer run one after the other up
to the hidden units of an MLP, which are done in parts. Heads of attention are divided among
threads: each computes what its own results need, on a buffer of its own, so that a value that two
threads need is computed twice, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics import entries
from shaped_attention.numerics.blas_values import Memory
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.hidden_tiles import hidden_gram
from shaped_attention.numerics.jit import LANES
from shaped_attention.numerics.path_interpreter import copy, run, run_apart
from shaped_attention.numerics.path_shares import Share, shares
from shaped_attention.numerics.path_team import ALONE, Team
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.numerics.scalars import Depths
from shaped_attention.numerics.threefry import path_words

Array = NDArray[np.float64]

_MOST_PARTS = 16
_FEWEST_NUMBERS = 2**15
"""Random numbers of a part of the hidden units, which take ten times as long as a call."""


@dataclass(frozen=True)
class Place:
    """Sample and step of a run."""

    sample: int
    step: int

    def numbers(self, table: Array) -> Array:
        """Return the scalars of the step; a table with one row has those of all steps."""
        row: Array = table[self.step if len(table) > 1 else 0]
        return row


class PathPlan:
    """A program on few tokens, ready to run.

    Parameters
    ----------
    program
        Instructions of a step; its random numbers are those of a chain.
    key
        Function from an address to its key.
    depths
        Relative depths of the steps, at which scalars are evaluated.
    """

    def __init__(self, program: Program, key: Callable[[Any], Any], depths: Depths) -> None:
        self.program = program
        self._table = _constant_once(program.table(depths))
        keys = [key(address) for address in program.addresses]
        self._keys = np.stack(keys) if keys else np.zeros((1, 2), dtype=np.uint64)
        self._hidden = {
            k: _HiddenUnits(program, k, key, depths)
            for k, node in enumerate(program.nodes)
            if node.kind == "activated_gram"
        }
        self._by_threads: dict[int, list[list[Share] | int]] = {}

    def run(
        self, inputs: Sequence[Array], sample: int, step: int, memory: Memory, team: Team = ALONE
    ) -> list[Array]:
        """Return the results for one sample; they do not depend on the threads of `team`."""
        place = Place(sample, step)
        numbers = place.numbers(self._table)
        buf = memory.take((self.program.rows,))
        for (start, _), array in zip(self.program.inputs, inputs, strict=True):
            buf[start : start + array.size] = array.reshape(-1)
        for start, array in self.program.constants:
            buf[start : start + array.size] = array.reshape(-1)
        for stage in self._stages(team.threads):
            if isinstance(stage, int):
                self._hidden[stage].write(buf, place, team)
            elif len(stage) == 1:
                run(stage[0].code, numbers, self._keys, buf, sample, step)
            else:
                self._divided(stage, buf, place, memory, team)
        results = [memory.take(shape) for _, shape in self.program.outputs]
        for (start, _), result in zip(self.program.outputs, results, strict=True):
            result.reshape(-1)[:] = buf[start : start + result.size]
        memory.give_back(buf)
        return results

    def give_back(self, results: Sequence[Array], memory: Memory) -> None:
        """Give back the memory of results."""
        for array in results:
            memory.give_back(array)

    def _divided(
        self, stage: list[Share], buf: Array, place: Place, memory: Memory, team: Team
    ) -> None:
        """Run shares of the program on threads, and collect their results."""
        numbers = place.numbers(self._table)
        own = [memory.take(buf.shape) for _ in stage]
        team.together([
            partial(
                run_apart, share.code, numbers, self._keys, buf, other, share.before,
                place.sample, place.step,
            )
            for share, other in zip(stage, own, strict=True)
        ])  # fmt: skip
        # Only now: the place of a result may be that of a value that another share reads.
        for share, other in zip(stage, own, strict=True):
            copy(share.after, other, buf)
            memory.give_back(other)

    def _stages(self, threads: int) -> list[list[Share] | int]:
        """Return the shares of the threads from one set of hidden units to the next."""
        if threads not in self._by_threads:
            self._by_threads[threads] = shares(self.program, threads)
        return self._by_threads[threads]


class _HiddenUnits:
    """The Gram matrix of the hidden units of a node, in parts that depend on sizes alone."""

    def __init__(self, program: Program, k: int, key: Callable[[Any], Any], depths: Depths) -> None:
        node = program.nodes[k]
        assert node.inside is not None
        graph, result = node.inside
        arguments = [Matrix(graph, x) for x in graph.nodes if x.kind == "input"]
        self._inside = assemble(graph, arguments, [Matrix(graph, result)])
        self._table = _constant_once(self._inside.table(depths))
        self._arguments = np.array([start for start, _ in self._inside.inputs])
        self._lower, self._key = node.inputs[0].lower, key(node.address)
        self._slot, count, copies = node.integers
        position = {id(x): region for x, region in zip(program.nodes, program.regions, strict=True)}
        self._factor, self._out = position[id(node.inputs[0])], position[id(node)]
        self._parts = list(pairwise(_ends(count, count * copies * self._factor[2])))

    def write(self, buf: Array, place: Place, team: Team) -> None:
        """Write the Gram matrix into the buffer."""
        start, rows, columns, _ = self._factor
        factor = buf[start : start + rows * columns].reshape(rows, columns)
        path = path_words(place.sample, 1, place.step)[0]
        sums = np.empty((len(self._parts), rows, rows))
        numbers = place.numbers(self._table)
        left = iter(enumerate(self._parts))

        def work() -> None:
            for k, (first, last) in left:
                hidden_gram(
                    self._inside.code, numbers, self._inside.rows, self._arguments,
                    self._inside.outputs[0][0], factor, self._lower, self._key, path, self._slot,
                    first, last, sums[k],
                )  # fmt: skip

        team.together([work] * min(team.threads, len(self._parts)))
        out = buf[self._out[0] : self._out[0] + rows * rows].reshape(rows, rows)
        np.sum(sums, axis=0, out=out)
        entries.mirror(out)


def _ends(count: int, numbers: int) -> list[int]:
    """Return where the parts of `count` hidden units end, which are whole tiles, from 0 on."""
    tiles = -(-count // LANES)
    parts = max(1, min(_MOST_PARTS, tiles, numbers // _FEWEST_NUMBERS))
    return [min(count, tiles * k // parts * LANES) for k in range(parts + 1)]


def _constant_once(table: Array) -> Array:
    """Return a table of scalars with a single row if all rows are equal."""
    return table[:1] if (table == table[0]).all() else table
