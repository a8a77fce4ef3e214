"""One layer of a deep network, forward and back, as two programs for compiled code.

All layers of a network run the same text on other numbers. So a few samples go through one layer
in torch, forward and back, while a `Recorder` writes down what happens; the graph becomes two
programs. The one for the backward pass goes forward again to the values that it needs: between the
layers only the coordinates of the tokens are kept.

Tokens in general position are recorded. A program is used only if it gives what torch gives for
three other samples, so that a branch of Python that was taken for the recorded ones is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.base import needs_means
from shaped_attention.lazy.compiled.recorder import Recorder, RecordingSource
from shaped_attention.lazy.compiled.translator import RecordingError
from shaped_attention.lazy.deep import Measure, PassedLayer
from shaped_attention.lazy.forgetting import entering_rows, seen_below
from shaped_attention.lazy.joining import stacked
from shaped_attention.lazy.networks import residual_space, start_of
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.sources import Source, number_key
from shaped_attention.numerics.mover import Mover
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.numerics.threads import thread_count
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]
Shape = tuple[int, ...]

_SAMPLES = 3
"""Samples that are recorded: more than one, so that what differs between them is noticed."""

_MOST_ROWS = 2**17
"""Rows of the buffer of a tile, beyond which torch's products are as fast (measured)."""

_TOLERANCE = 1e-7
"""Largest difference between a program and torch, relative to the entries of a result."""

_ROUNDING = 1e-8
"""Size of a result, relative to the largest, below which it is only rounding."""


@dataclass
class LayerProgram:
    """Programs of a layer: tokens to tokens, and tokens with gradients to gradients and measures.

    Attributes
    ----------
    forward, back
        Places of the programs in the code of all.
    entering, leaving
        Shapes of the coordinates of the tokens, for each part of the space.
    above, below
        Shapes of those of the gradients.
    measures
        Shapes of what is measured, by name.
    """

    forward: int
    back: int
    entering: list[Shape]
    leaving: list[Shape]
    above: list[Shape]
    below: list[Shape]
    measures: dict[str, Shape]


class LayerPrograms:
    """The programs of all layers of a network.

    Attributes
    ----------
    code
        All programs.
    entries
        Numbers that a sample keeps, with copies in another order.
    """

    def __init__(
        self, spec: Specification, width: int, depth: int, gradients: int, measure: Measure
    ) -> None:
        """Record the layers; RecordingError if one does what cannot be recorded."""
        self._spec, self._width, self._depth = spec, width, depth
        self._count, self._measure = gradients, measure
        self._programs: list[Program] = []
        self._layers: list[LayerProgram] = []
        shapes = _shapes(start_of(spec, width, Source(1, spec.seed)).parts)
        for number in range(min(depth, len(spec.pattern) + 1)):
            self._record(number, shapes)
            shapes = self._layers[-1].leaving
        for number in range(1, depth):
            below, here = self.of(number - 1), self.of(number)
            if below.leaving != here.entering or here.below != below.above:
                raise RecordingError("a layer whose sizes are not those of the next one")
        depths = np.arange(depth) / depth
        self.code = Mover(self._programs, partial(number_key, spec.seed), depths)
        self.entries = 2 * sum(
            size_of([*x.leaving, *x.measures.values()]) for x in map(self.of, range(depth))
        )
        rows, lanes = self.code.rows, self.code.lanes
        if rows > _MOST_ROWS:
            raise RecordingError("matrices as large as these")
        # Samples move in whole vectors.
        if 8.0 * lanes * (rows * thread_count("cpu") + self.entries) > spec.memory:
            raise RecordingError("vectors of samples that do not fit into the memory")
        for number in range(len(self._layers)):
            self._check(number)

    def of(self, number: int) -> LayerProgram:
        """Return the programs of a layer; the first begins otherwise than all others."""
        place = number if number == 0 else 1 + (number - 1) % len(self._spec.pattern)
        return self._layers[place]

    def _record(self, number: int, shapes: Sequence[Shape]) -> None:
        """Record a layer that coordinates of these shapes enter."""
        recorder = Recorder(_SAMPLES)
        source = RecordingSource(recorder, self._spec.seed)
        values = [recorder.input(x) for x in self._values(number, shapes, 0)]
        with recorder:
            passed = self._passed(number, source, values)
        leaving = passed.border.values
        above = [recorder.input(x) for x in self._gradients(passed, number)]
        with recorder:
            below, measured = self._back(passed, values, above)
        entering = [recorder.value(x) for x in values]
        forward = assemble(recorder.graph, entering, [recorder.value(x) for x in leaving])
        back = assemble(
            recorder.graph, [*entering, *(recorder.value(x) for x in above)],
            [recorder.value(x) for x in (*below, *measured.values())],
        )  # fmt: skip
        self._layers.append(
            LayerProgram(
                len(self._programs), len(self._programs) + 1, _shapes(values), _shapes(leaving),
                _shapes(above), _shapes(below),
                {name: tuple(x.shape[1:]) for name, x in measured.items()},
            )
        )  # fmt: skip
        self._programs += [forward, back]

    def _passed(self, number: int, source: Source, values: Sequence[Tensor]) -> PassedLayer:
        """Take tokens with these coordinates through a layer."""
        spec, ones = self._spec, needs_means(self._spec.blocks)
        space = residual_space(source, self._width, spec.groups)
        tokens = entering_rows(list(space), values, ones and number > 0)
        blocks = spec.pattern[number % len(spec.pattern)]
        passed = PassedLayer(tokens, blocks, number, self._depth, source, ones)
        if any(part.explicit for part in tokens.space):
            raise RecordingError("functions of entries of tokens")
        return passed

    def _back(
        self, passed: PassedLayer, values: Sequence[Tensor], above: Sequence[Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Take gradients back; return what the layer below sees, and what is measured."""
        layer = passed.back(Rows(passed.border.rows.space, tuple(above)), self._count)
        return seen_below(stacked(layer.entering), values), self._measure(layer)

    def _values(self, number: int, shapes: Sequence[Shape], first: int) -> list[Tensor]:
        """Return coordinates of tokens in general position, other ones for each sample."""
        generator = np.random.default_rng((number, first))
        ones = needs_means(self._spec.blocks) and number > 0
        values = []
        for shape in shapes:
            entries = np.tril(generator.standard_normal((_SAMPLES, *shape)))
            entries *= (self._width / self._spec.groups) ** 0.5
            if ones:
                entries[:, 0] = np.eye(1, shape[1])
            values.append(torch.from_numpy(entries))
        return values

    def _gradients(self, passed: PassedLayer, number: int) -> list[Tensor]:
        """Return gradients in general position, as the layer above returns them."""
        generator = np.random.default_rng((number, passed.source.first, 1))
        rows = self._count * passed.border.rows.shape[1]
        result = []
        for space, value in zip(passed.border.rows.space, passed.border.values, strict=True):
            shared = value.shape[-1]
            if space.n - shared < rows:
                raise RecordingError("gradients that span the width")
            entries = generator.standard_normal((_SAMPLES, rows, shared + rows))
            entries[..., shared:] = np.tril(np.abs(entries[..., shared:]))
            space.grow(rows)
            result.append(torch.from_numpy(entries))
        return result

    def _check(self, number: int) -> None:
        """Raise RecordingError unless torch gives what the programs give for other samples."""
        layer = self._layers[number]
        source = Source(_SAMPLES, self._spec.seed, first=_SAMPLES)
        values = self._values(number, layer.entering, _SAMPLES)
        passed = self._passed(number, source, values)
        above = self._gradients(passed, number)
        below, measured = self._back(passed, values, above)
        _compare(self.code, layer.forward, number, values, passed.border.values)
        _compare(self.code, layer.back, number, [*values, *above], [*below, *measured.values()])


def _compare(
    code: Mover, which: int, number: int, inputs: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    """Raise RecordingError unless a program gives these results, each to its own size."""
    shapes = _shapes(results)
    states = in_vectors([x.detach().numpy() for x in inputs], code.lanes)
    out = np.empty((len(states), size_of(shapes), code.lanes))
    code.apply(which, states, _SAMPLES, number, out)
    expected = [x.detach().numpy() for x in results]
    largest = max((np.abs(x).max() for x in expected), default=0.0)
    for value, other in zip(apart(out, shapes, _SAMPLES), expected, strict=True):
        # What is 0 in exact arithmetic has only rounding.
        size = max(np.abs(other).max(), _ROUNDING * largest)
        worst = np.abs(value - other).max() / size if size else 0.0
        if not worst < _TOLERANCE:
            raise RecordingError(f"compiled code that differs by {worst:.1e} from torch")


def in_vectors(parts: Sequence[Array], lanes: int) -> Array:
    """Return parts (B, ...) as one array (vectors, entries of all parts, lanes)."""
    flat = np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1)
    count = -(-len(flat) // lanes) * lanes
    # The last tile is filled up with copies of the last sample.
    whole = flat[np.minimum(np.arange(count), len(flat) - 1)]
    result: Array = np.ascontiguousarray(whole.reshape(-1, lanes, flat.shape[1]).swapaxes(1, 2))
    return result


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


def _shapes(parts: Iterable[Tensor]) -> list[Shape]:
    return [tuple(x.shape[1:]) for x in parts]
