"""Deep networks by compiled code: samples go through the programs of the layers in vectors.

A chunk is a stack of vectors, which threads share. Each goes through all layers and back by itself,
so that results do not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.base import needs_means
from shaped_attention.lazy.forgetting import entering_rows, seen_below
from shaped_attention.lazy.layer_programs import LayerPrograms, apart, in_vectors, size_of
from shaped_attention.lazy.networks import residual_space, start_of
from shaped_attention.numerics.threads import Team, thread_count
from shaped_attention.rows.joining import stacked
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]


class CompiledNetwork:
    """Some samples of a network, as `deep.DeepNetwork`; only what is measured comes back.

    `passed` is called with the number of samples that have passed a layer, forward or back.
    """

    def __init__(
        self, programs: LayerPrograms, spec: Specification, width: int, depth: int, first: int,
        count: int, passed: Callable[[int], object] = lambda count: None,
    ) -> None:  # fmt: skip
        self.source = Source(count, spec.seed, spec.dtype, spec.place, first, spec.memory)
        self.passed, self._lock = passed, Lock()
        self._programs, self._spec, self._lanes = programs, spec, programs.code.lanes
        self._layers = [programs.of(number) for number in range(depth)]
        self._width, self._count = width, count
        self._values: list[Tensor] = []
        self._states: list[Array] = []

    def forward(self) -> Rows:
        """Return the tokens X_L, and keep those of all layers."""
        start = in_vectors(
            [x.numpy() for x in start_of(self._spec, self._width, self.source).parts], self._lanes
        )
        sizes = [size_of(program.leaving) for program in self._layers]
        self._states = [start, *(np.empty((len(start), size, self._lanes)) for size in sizes)]

        def through(vectors: slice) -> None:
            for number, layer in enumerate(self._layers):
                before, after = (x[vectors] for x in self._states[number : number + 2])
                self._apply(layer.forward, before, vectors, number, after)

        self._in_threads(through)
        last, shapes = self._states.pop(), self._layers[-1].leaving
        self._values = [torch.from_numpy(x) for x in apart(last, shapes, self._count)]
        space = residual_space(self.source, self._width, self._spec.groups)
        return entering_rows(list(space), self._values, needs_means(self._spec.blocks))

    def measured(self, gradients: Sequence[Rows]) -> Iterator[dict[str, Tensor]]:
        """Yield what is measured of the gradients of each layer, from the last to the first."""
        above = in_vectors(
            [x.numpy() for x in seen_below(stacked(gradients), self._values)], self._lanes
        )
        measures = [list(layer.measures.values()) for layer in self._layers]
        results = [np.empty((len(above), size_of(shapes), self._lanes)) for shapes in measures]

        def through(vectors: slice) -> None:
            gradient = above[vectors]
            for number in reversed(range(len(self._layers))):
                layer = self._layers[number]
                state = np.concatenate([self._states[number][vectors], gradient], axis=1)
                size = size_of(layer.below)
                out = np.empty((len(state), size + results[number].shape[1], self._lanes))
                self._apply(layer.back, state, vectors, number, out)
                gradient, results[number][vectors] = out[:, :size], out[:, size:]

        self._in_threads(through)
        for layer, shapes, result in zip(
            reversed(self._layers), reversed(measures), reversed(results), strict=True
        ):
            parts = apart(result, shapes, self._count)
            yield {k: torch.from_numpy(x) for k, x in zip(layer.measures, parts, strict=True)}

    def _apply(self, which: int, state: Array, vectors: slice, number: int, out: Array) -> None:
        first = self.source.first + self._lanes * vectors.start
        self._programs.code.apply(which, state, first, number, out)
        with self._lock:
            self.passed(min(self._count, self._lanes * vectors.stop) - self._lanes * vectors.start)

    def _in_threads(self, through: Callable[[slice], None]) -> None:
        """Take all vectors through the layers."""
        vectors = len(self._states[0])
        threads = min(thread_count("cpu"), vectors)
        ends = [vectors * k // threads for k in range(threads + 1)]
        parts = [slice(a, b) for a, b in pairwise(ends)]
        Team(threads).together([partial(through, part) for part in parts])
