"""One layer of a deep network, forward and back, as two programs for compiled code.

All layers of a network run the same text on other numbers, so a layer runs once on matrices of a
graph, forward and back. The program for the way back goes forward again to the values that it
needs: between the layers only the coordinates of the tokens are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import needs_means
from shaped_attention.lazy.deep import Measure, PassedLayer, through_pattern
from shaped_attention.lazy.forgetting import entering_rows, seen_below
from shaped_attention.lazy.networks import residual_space, start_of
from shaped_attention.numerics.graph import Graph, Shape, roots_alone
from shaped_attention.numerics.mover import Mover
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.numerics.threads import thread_count
from shaped_attention.rows.joining import stacked
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source, number_key
from shaped_attention.rows.traced import TracedSource
from shaped_attention.rows.values import Plain
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]

_MOST_ROWS = 2**17
"""Rows of the buffer of a tile, beyond which torch's products are as fast (measured)."""


@dataclass
class LayerProgram:
    """Programs of a layer: tokens to tokens, and tokens with gradients to gradients and measures.

    `forward` and `back` are their places in the code of all. The others are shapes, for each part
    of the space: of the coordinates of the tokens, of those of the gradients, and of what is
    measured, by name.
    """

    forward: int
    back: int
    entering: list[Shape]
    leaving: list[Shape]
    above: list[Shape]
    below: list[Shape]
    measures: dict[str, Shape]


class LayerPrograms:
    """The programs of all layers of a network, `code`.

    `entries` are the numbers that a sample keeps, with copies in another order.
    """

    def __init__(
        self, spec: Specification, width: int, depth: int, gradients: int, measure: Measure
    ) -> None:
        self._spec, self._width, self._depth = spec, width, depth
        self._count, self._measure = gradients, measure
        self._programs: list[Program] = []
        self._layers: list[LayerProgram] = []
        shapes = _shapes(start_of(spec, width, Source(1, spec.seed)).parts)
        for number in range(min(depth, len(spec.pattern) + 1)):
            self._trace(number, shapes)
            shapes = self._layers[-1].leaving
        for number in range(1, depth):
            below, here = self.of(number - 1), self.of(number)
            if below.leaving != here.entering or here.below != below.above:
                raise ValueError("its sizes are not those of the next layer")
        depths = np.arange(depth) / depth
        self.code = Mover(self._programs, partial(number_key, spec.seed), depths)
        self.entries = 2 * sum(
            size_of([*x.leaving, *x.measures.values()]) for x in map(self.of, range(depth))
        )
        rows, lanes = self.code.rows, self.code.lanes
        if rows > _MOST_ROWS:
            raise ValueError("its matrices are large")
        # Samples move in whole vectors.
        if 8.0 * lanes * (rows * thread_count("cpu") + self.entries) > spec.memory:
            raise ValueError("vectors of samples do not fit into the memory")

    def of(self, number: int) -> LayerProgram:
        """Return the programs of a layer; the first begins otherwise than all others."""
        place = number if number == 0 else 1 + (number - 1) % len(self._spec.pattern)
        return self._layers[place]

    def _trace(self, number: int, shapes: Sequence[Shape]) -> None:
        """Take coordinates of these shapes through a layer of a graph, and gradients back."""
        spec, ones, graph = self._spec, needs_means(self._spec.blocks), Graph()
        source = TracedSource(graph, spec.seed)
        values: list[Any] = [graph.node("input", (), shape) for shape in shapes]
        space = residual_space(source, self._width, spec.groups)
        tokens = entering_rows(list(space), values, ones and number > 0)
        through = through_pattern(spec, self._depth)
        passed = PassedLayer(tokens, through, number, source, ones)
        if any(part.explicit for part in tokens.space):
            raise ValueError("it has functions of entries of tokens")
        leaving: list[Any] = passed.border.values
        rows = self._count * tokens.shape[1]
        above: list[Any] = []
        for part, value in zip(passed.border.rows.space, leaving, strict=True):
            if part.n - value.shape[-1] < rows:
                raise ValueError("its gradients span the width")
            part.grow(rows)
            above.append(graph.node("input", (), (rows, part.size)))
        layer = passed.back(Rows(passed.border.rows.space, tuple(above)), self._count)
        below: list[Any] = seen_below(stacked(layer.entering), values)
        measured = self._measure(layer)
        self._layers.append(
            LayerProgram(
                len(self._programs), len(self._programs) + 1, _shapes(values), _shapes(leaving),
                _shapes(above), _shapes(below), {name: x.shape for name, x in measured.items()},
            )
        )  # fmt: skip
        back = assemble(graph, [*values, *above], [*below, *measured.values()])
        self._programs += [assemble(graph, values, roots_alone(graph, leaving)), back]


def in_vectors(parts: Sequence[Array], lanes: int) -> Array:
    """Return parts (B, ...) as one array (vectors, entries of all parts, lanes)."""
    flat = np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1)
    count = -(-len(flat) // lanes) * lanes
    # The last tile is filled up with copies of the last sample.
    whole = flat[np.minimum(np.arange(count), len(flat) - 1)]
    return np.ascontiguousarray(whole.reshape(-1, lanes, flat.shape[1]).swapaxes(1, 2))


def apart(state: Array, shapes: Sequence[Shape], count: int) -> list[Array]:
    """Return parts (B, ...) of an array (vectors, entries of all parts, lanes)."""
    if not shapes:
        return []
    flat = state.swapaxes(1, 2).reshape(-1, state.shape[1])[:count]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(flat, ends[:-1], axis=1)
    return [part.reshape(count, *shape) for part, shape in zip(parts, shapes, strict=True)]


def size_of(shapes: Iterable[Shape]) -> int:
    """Return the number of entries of parts with these shapes."""
    return sum(math.prod(shape) for shape in shapes)


def _shapes(parts: Iterable[Plain]) -> list[Shape]:
    return [(x.shape[-2], x.shape[-1]) for x in parts]
