"""Deep networks with frames that forget: forward once, and back with one or several gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jaxtyping import Float
from numpy.typing import ArrayLike

from shaped_attention.blocks.base import Layer, needs_means
from shaped_attention.checks import check_count
from shaped_attention.lazy.coordinates import count_entries
from shaped_attention.lazy.forgetting import Border
from shaped_attention.lazy.joining import cut_rows, stacked
from shaped_attention.lazy.low_rank import Factors
from shaped_attention.lazy.networks import (
    chunk_of_samples,
    readout_entries,
    start_of,
    through_layer,
)
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.sources import Source
from shaped_attention.lazy.tape import Tape
from shaped_attention.lazy.weights import Weights
from shaped_attention.libraries import Tensor
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.specification import Options, Specification, specify


class LayerGradients(NamedTuple):
    """Gradients of a layer: of its matrices, by name, and of the tokens that enter and leave it.

    A list has one entry for each gradient that was taken back.
    """

    number: int
    weights: dict[str, list[Factors]]
    entering: list[Rows]
    leaving: list[Rows]


class DeepNetwork:
    """Some samples of a network; memory and time are O(1) a layer, whatever the width.

    `passed` is called with the number of samples that have passed a layer, forward or back.
    """

    def __init__(
        self, spec: Specification, width: int, depth: int, first: int, count: int,
        passed: Callable[[int], object] = lambda count: None,
    ) -> None:  # fmt: skip
        memory = spec.options.memory
        self.source = Source(count, spec.seed, spec.dtype, spec.place, first, memory)
        self.passed = passed
        self._spec, self._width, self._depth = spec, width, depth
        self._tokens: list[Rows] = []
        self._layers: list[tuple[Tape, Rows, Weights, Border]] = []

    def forward(self, layers: int | None = None) -> Rows:
        """Return the tokens X_L, and keep what the way back needs.

        With `layers` go only so far; the next call goes on from there.
        """
        pattern, ones = self._spec.pattern, needs_means(self._spec.blocks)
        if not self._tokens:
            self._tokens = [start_of(self._spec, self._width, self.source).requires_grad_()]
        for number in range(len(self._layers), self._depth if layers is None else layers):
            weights = Weights(self.source)
            with Tape() as tape:
                blocks = pattern[number % len(pattern)]
                after = through_layer(self._tokens[-1], blocks, number, self._depth, weights)
            border = Border(after, ones, f"border.{number}")
            self._layers.append((tape, after, weights, border))
            self._tokens.append(border.rows)
            self.passed(self.source.samples)
        return self._tokens[-1]

    def entries(self) -> int:
        """Return how many numbers the way forward keeps."""
        layers = [(tape, weights) for tape, _, weights, _ in self._layers]
        results = [x for tape, _ in layers for x in tape.results()]
        known = [x for _, weights in layers for w in weights.matrices for x in w.known_rows()]
        return sum(count_entries([*results, *known]))

    def backward(self, gradients: Sequence[Rows]) -> Iterator[LayerGradients]:
        """Yield the gradients of each layer, from the last to the first, from those of X_L."""
        above, count = list(gradients), gradients[0].shape[1]
        for number in reversed(range(self._depth)):
            tape, after, weights, border = self._layers.pop()
            entering = []
            factors: dict[str, list[Factors]] = {name: [] for name in weights}
            # Together: what they have in common outside the span is then the same below.
            below = border.down(stacked(above))
            for start in range(0, len(above) * count, count):
                tape.add(after, cut_rows(below, start, start + count))
                tape.backward(keep=start + count < len(above) * count)
                gradient = tape.gradient(self._tokens[number])
                assert gradient is not None
                entering.append(gradient)
                for name, parameter in weights.items():
                    factors[name].append(parameter.gradient() or _nothing(gradient))
                for matrix in weights.matrices:
                    matrix.forget_gradient()
            self.passed(self.source.samples)
            yield LayerGradients(number, factors, entering, above)
            above = entering


def deep_networks(
    layer: Layer,
    v0: ArrayLike,
    width: int,
    depth: int,
    samples: int,
    seed: int,
    options: Options,
    passes: int,
    label: str,
    outputs: int = 0,
) -> Iterator[DeepNetwork]:
    """Yield the networks of all samples in chunks, for a number of passes forward and back.

    A progress bar with the label counts the layers of all samples, forward and back. A readout, if
    there is one, has some outputs.

    Raises
    ------
    ValueError
        If an argument is invalid, or one sample needs more than the memory of the options.
    """
    check_count("width", width)
    check_count("depth", depth)
    spec = specify(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        options=options,
    )  # fmt: skip
    readout = readout_entries(outputs, spec)
    first_one = DeepNetwork(spec, width, depth, 0, 1)
    first_one.forward(min(depth, len(spec.pattern)))
    layers = -(-depth // len(spec.pattern))
    size = chunk_of_samples(first_one.entries() * layers * passes + readout, spec)
    total = 2 * depth * samples
    with progress_bar(
        label, options.progress, total=total, unit="layer", unit_scale=True
    ) as bar:  # fmt: skip
        if samples == 1:
            bar.update(min(depth, len(spec.pattern)))
            first_one.passed = bar.update
            yield first_one
            return
        del first_one
        for first in range(0, samples, size):
            yield DeepNetwork(spec, width, depth, first, min(size, samples - first), bar.update)


def _nothing(rows: Rows) -> Factors:
    return Factors(0.0 * rows, 0.0 * rows)


def total_norm(rows: Rows) -> Float[Tensor, " B"]:
    """Return the Euclidean norm of all rows together."""
    return rows.squares().sum((1, 2)).sqrt()
