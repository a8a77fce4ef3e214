"""Networks whose weights change: forward, back, and an update, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.lazy.entrywise import of_entries
from shaped_attention.lazy.low_rank import Factors
from shaped_attention.lazy.named_model import LibraryModel
from shaped_attention.lazy.networks import (
    chunk_of_samples,
    classification,
    in_chunks,
    start_of,
    through_layer,
)
from shaped_attention.lazy.optimizers import Muon, Rule, State, check_parameters
from shaped_attention.lazy.weights import Weights
from shaped_attention.numerics.threads import few_threads
from shaped_attention.progress import progress_bar
from shaped_attention.rows.coordinates import count_entries, inner
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame
from shaped_attention.rows.tape import Tape
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]

_HELD = {False: (3, 6), True: (6, 12)}
"""Numbers held in each step for each that the way forward keeps, with SGD and with Muon: gradients,
updates, what was asked in both directions, and copies; those of explicit spaces, and of frames.
Measured (tests/test_memory.py)."""


class LayerNetwork:
    """Some samples of a network of layers, with given tokens and a readout."""

    def __init__(
        self, spec: Specification, width: int, depth: int, outputs: int, source: Source
    ) -> None:
        self.width, self.depth, self._spec = width, depth, spec
        self._start = start_of(spec, width, source)
        self._outputs = Frame(outputs, source, explicit=True)
        self.weights = Weights(source)

    def start(self) -> Rows:
        """Return the tokens X_0."""
        return self._start

    def through(self, x: Rows, layer: int) -> Rows:
        """Return the tokens after a layer."""
        pattern = self._spec.pattern
        return through_layer(x, pattern[layer % len(pattern)], layer, self.depth, self.weights)

    def outputs(self, x: Rows) -> Tensor:
        """Return f = X_L W / sqrt n."""
        f = self.weights.product(x, self._outputs, "readout", hidden=False)
        return f.entries() / self.width**0.5


Network: TypeAlias = LayerNetwork | LibraryModel
"""Some samples of what is trained, as rows."""

N = TypeVar("N", bound=Network)


class TrainingRun:
    """Some samples of a network that is trained."""

    def __init__(self, network: Network, goal: Tensor) -> None:
        self._network, self._goal, self.weights = network, goal, network.weights
        self._states: dict[str, State] = {}
        self._reference: list[Rows] = []
        self._tape = Tape()
        self._made: tuple[Tensor, list[Rows]] | None = None

    def forward(self) -> None:
        """Go forward, and keep the loss and the tokens after each layer."""
        network = self._network
        with Tape() as self._tape:
            tokens = [network.start()]
            for layer in range(network.depth):
                tokens.append(network.through(tokens[-1], layer))
            f = network.outputs(tokens[-1])
            goal = self._goal.to(f.device)
            if goal.dtype == torch.int64:
                loss = classification(f, goal)
            else:
                loss = 0.5 * ((f[..., 0] - goal.to(f.dtype)) ** 2).sum(-1)
        self._made = loss, [x.detached() for x in tokens]

    @property
    def width(self) -> int:
        """The width n of the tokens."""
        return self._network.width

    def mean_entries(self) -> float:
        """Return how many numbers the result of an operation of the way forward has on average."""
        results = self._tape.results()
        return sum(count_entries(results)) / len(results)

    def entries_until(self, steps: int, rule: Rule) -> int:
        """Return how many numbers are held at once, at most, until a number of steps.

        Each step adds as many directions to every matrix as the first; their coordinates in frames
        become longer by as much with each step, those in explicit spaces do not.
        """
        known = [x for w in self.weights.matrices for x in w.known_rows()]
        passes = steps + 1
        explicit, coordinates = count_entries([*self._tape.results(), *known], passes)
        whole, part = _HELD[isinstance(rule, Muon)]
        return passes * (whole * explicit + part * coordinates)

    def advance(self, rule: Rule) -> xr.Dataset:
        """Return what is known before an update, and take it."""
        if self._made is None:
            self.forward()
        assert self._made is not None
        (loss, tokens), self._made = self._made, None
        self._tape.backward(loss)
        gradients: dict[str, Factors] = {}
        for name, parameter in self.weights.items():
            self._states.setdefault(name, State(parameter))
            gradient = parameter.gradient()
            assert gradient is not None
            gradients[name] = gradient
        for matrix in self.weights.matrices:
            matrix.forget_gradient()
        norms = {name: g.norm() for name, g in gradients.items()}
        updates = rule.step(self._states, gradients)
        self._reference = self._reference or tokens
        n, m = self._network.width, tokens[0].shape[1]
        changes = [
            ((x - y).squares().sum((1, 2)) / (n * m)).sqrt()
            for x, y in zip(tokens, self._reference, strict=True)
        ]
        each = ("parameter", "sample")
        return xr.Dataset(
            {
                "loss": (("sample",), _numpy(loss)),
                "gradient_norm": (each, np.stack([_numpy(x) for x in norms.values()])),
                "update_norm": (each, np.stack([_numpy(x) for x in updates.values()])),
                "V": (
                    ("position", "sample", "row", "col"),
                    np.stack([_numpy(inner(x, x)) / n for x in tokens]),
                ),
                "activation_change": (
                    ("position", "sample"),
                    np.stack([_numpy(x) for x in changes]),
                ),
                "directions": ((), sum(part.size for part in tokens[0].space)),
            },
            coords={"parameter": list(norms)},
        )


def trained(
    spec: Specification, goal: Tensor, network: Callable[[Source], N], rule: Rule, steps: int,
    measure: Callable[[N, xr.Dataset], xr.Dataset] = lambda _, step: step,
) -> xr.Dataset:  # fmt: skip
    """Return what is measured of all samples before each of some steps, and after the last.

    `measure` takes a network and what `TrainingRun.advance` returns. Raise ValueError if one sample
    needs more than the memory of the specification, and FloatingPointError if a loss is not finite.
    """
    explicit = of_entries(rule)

    def made(first: int, count: int) -> tuple[N, TrainingRun]:
        source = Source(count, spec.seed, spec.dtype, spec.place, first, spec.memory, explicit)
        samples = network(source)
        return samples, TrainingRun(samples, goal)

    probe = made(0, 1)
    width = probe[1].width
    with few_threads(spec.tokens * max(block.widest(width) for block in spec.blocks)):
        probe[1].forward()
    check_parameters(rule, probe[1].weights)
    entries = probe[1].entries_until(steps, rule)
    size = chunk_of_samples(entries, spec, "fewer steps or hidden units")
    total = spec.samples * (steps + 1)
    with progress_bar("training", spec.progress, total=total, unit="step", unit_scale=True) as bar:

        def of_chunk(first: int, count: int) -> xr.Dataset:
            samples, run = probe if (first, count) == (0, 1) else made(first, count)
            rows = []
            for _ in range(steps + 1):
                step = run.advance(rule)
                if not np.isfinite(step["loss"]).all():
                    raise FloatingPointError(
                        "the loss is not finite after some steps; a smaller learning rate would "
                        "keep it finite"
                    )
                rows.append(measure(samples, step))
                bar.update(count)
            return xr.concat(rows, "step")

        parts = in_chunks(spec, size, probe[1].mean_entries(), of_chunk)
    return xr.concat(parts, "sample", data_vars="minimal", coords="minimal", compat="override")


def _numpy(x: Tensor) -> Array:
    return x.detach().double().cpu().numpy()
