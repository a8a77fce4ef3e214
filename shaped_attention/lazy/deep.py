"""Deep networks with frames that forget: forward once, and back with one or several gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from shaped_attention.blocks.base import needs_means
from shaped_attention.lazy.forgetting import Border
from shaped_attention.lazy.low_rank import Factors
from shaped_attention.lazy.networks import start_of, through_layer
from shaped_attention.lazy.weights import Weights
from shaped_attention.numerics.primitives import column_sums, sqrt
from shaped_attention.rows.coordinates import Coordinates, count_entries
from shaped_attention.rows.joining import cut_rows, stacked
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.tape import Tape
from shaped_attention.rows.values import Plain
from shaped_attention.samplers.specification import Specification


class LayerGradients(NamedTuple):
    """Gradients of a layer: of its matrices, by name, and of the tokens that enter it.

    A list has one entry for each gradient that was taken back. A name is "block.matrix", or that of
    a library. `sizes` are the numbers of entries of the matrices.
    """

    number: int
    weights: dict[str, list[Factors]]
    sizes: dict[str, int]
    entering: list[Rows]


Through: TypeAlias = Callable[[Rows, int, Weights], Rows]
"""Takes tokens through the layer of a number, whose matrices are in the weights."""

Measure: TypeAlias = Callable[[LayerGradients], dict[str, Any]]
"""What is kept of the gradients of a layer: plain matrices by name."""


class PassedLayer:
    """A layer through which some samples have passed, and what the backward pass needs.

    Its random numbers come from `source`; the next layer begins above its `border`.
    """

    def __init__(
        self, tokens: Rows, through: Through, number: int, source: Source, with_ones: bool
    ) -> None:
        self._tokens, self._number, self.source = tokens, number, source
        self._weights = Weights(source)
        with source.inside(number):
            with Tape() as self._tape:
                self._after = through(tokens, number, self._weights)
            self.border = Border(self._after, with_ones)

    def kept(self) -> Iterator[Coordinates | Tensor]:
        """Yield what is kept for the backward pass."""
        yield from self._tape.results()
        for matrix in self._weights.matrices:
            yield from matrix.known_rows()

    def back(self, above: Rows, count: int) -> LayerGradients:
        """Take `count` gradients back, which are rows of the space above the border."""
        factors: dict[str, list[Factors]] = {name: [] for name in self._weights}
        entering = []
        with self.source.inside(self._number):
            # Together: what they have in common outside the span is then the same below.
            below = self.border.down(above)
            rows = below.shape[1] // count
            for k in range(count):
                self._tape.add(self._after, cut_rows(below, k * rows, (k + 1) * rows))
                self._tape.backward(keep=k + 1 < count)
                gradient = self._tape.gradient(self._tokens)
                assert gradient is not None
                entering.append(gradient)
                nothing = Factors(0.0 * gradient, 0.0 * gradient)
                for name, parameter in self._weights.items():
                    factors[name].append(parameter.gradient() or nothing)
                for matrix in self._weights.matrices:
                    matrix.forget_gradient()
        sizes = {name: math.prod(weight.shape) for name, weight in self._weights.items()}
        return LayerGradients(self._number, factors, sizes, entering)


class DeepNetwork:
    """Some samples of a network; memory and time are O(1) a layer, whatever the width.

    `start` are the tokens X_0, and `means` says whether the layers see those of their entries.
    `passed` is called with the number of samples that have passed a layer, forward or back.
    """

    def __init__(
        self, start: Rows, through: Through, depth: int, means: bool,
        passed: Callable[[int], object] = lambda count: None, measure: Measure | None = None,
    ) -> None:  # fmt: skip
        self.source = start.space.source
        self.passed = passed
        self._start, self._through, self._depth, self._means = start, through, depth, means
        self._measure = measure
        self._layers: list[PassedLayer] = []

    @classmethod
    def specified(
        cls, spec: Specification, width: int, depth: int, first: int, count: int,
        passed: Callable[[int], object] = lambda count: None, measure: Measure | None = None,
    ) -> DeepNetwork:  # fmt: skip
        """Return the network of a specification."""
        source = Source(count, spec.seed, spec.dtype, spec.place, first, spec.memory)
        start = start_of(spec, width, source)
        means = needs_means(spec.blocks)
        return cls(start, through_pattern(spec, depth), depth, means, passed, measure)

    def forward(self, layers: int | None = None) -> Rows:
        """Return the tokens X_L, and keep what the backward pass needs.

        With `layers` go only so far; the next call goes on from there.
        """
        tokens = self._layers[-1].border.rows if self._layers else self._start.requires_grad_()
        for number in range(len(self._layers), self._depth if layers is None else layers):
            layer = PassedLayer(tokens, self._through, number, self.source, self._means)
            self._layers.append(layer)
            tokens = self._layers[-1].border.rows
            self.passed(self.source.samples)
        return tokens

    def tokens(self) -> list[Rows]:
        """Return the rows that entered each layer, and those after the last one passed."""
        return [self._start, *(layer.border.rows for layer in self._layers)]

    def entries(self) -> int:
        """Return how many numbers the way forward keeps."""
        return sum(count_entries(x for layer in self._layers for x in layer.kept()))

    def operands(self) -> int:
        """Return how many rows and matrices the way forward keeps."""
        return sum(1 for layer in self._layers for _ in layer.kept())

    def backward(self, gradients: Sequence[Rows]) -> Iterator[LayerGradients]:
        """Yield the gradients of each layer, from the last to the first, from those of X_L."""
        above = list(gradients)
        while self._layers:
            layer = self._layers.pop().back(stacked(above), len(above))
            self.passed(self.source.samples)
            yield layer
            above = layer.entering

    def measured(self, gradients: Sequence[Rows]) -> Iterator[dict[str, Tensor]]:
        """Yield what is measured of the gradients of each layer, from the last to the first."""
        assert self._measure is not None
        return map(self._measure, self.backward(gradients))


def through_pattern(spec: Specification, depth: int) -> Through:
    """Return what takes tokens through the layers of a specification."""
    pattern = spec.pattern
    return lambda tokens, number, weights: through_layer(
        tokens, pattern[number % len(pattern)], number, depth, weights, ""
    )


def total_norm(rows: Rows) -> Plain:
    """Return the Euclidean norm of all rows together, a matrix (1, 1)."""
    return sqrt(column_sums(rows.squares()))
