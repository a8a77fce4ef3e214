"""All samples of deep networks in chunks, by compiled code where a layer has a program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from numpy.typing import ArrayLike

from shaped_attention.blocks.base import Layer
from shaped_attention.lazy.compiled_network import CompiledNetwork
from shaped_attention.lazy.deep import DeepNetwork, Measure
from shaped_attention.lazy.layer_programs import LayerPrograms
from shaped_attention.lazy.networks import chunk_of_samples, in_chunks, readout_entries
from shaped_attention.numerics.threads import few_threads
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.specification import RunOptions, Specification, specify

_FEWEST_LAYERS = 2**8
"""Layers of all samples below which torch is as fast as compiling a layer (measured)."""

_log = logging.getLogger(__name__)


Network: TypeAlias = DeepNetwork | CompiledNetwork
"""Some samples of a network that go forward once, and back with some gradients."""

T = TypeVar("T")


def deep_networks(
    layer: Layer,
    v0: ArrayLike,
    width: int,
    depth: int,
    samples: int,
    seed: int,
    options: RunOptions,
    gradients: int,
    measure: Measure,
    label: str,
    work: Callable[[Network], T],
    outputs: int = 0,
) -> list[T]:
    """Return ``work(network)`` for all samples in chunks, which takes some gradients back.

    A progress bar with the label counts the layers of all samples, forward and back. A readout, if
    there is one, has some outputs. Raise ValueError if an argument is invalid, or one sample needs
    more than the memory of the options.
    """
    spec = specify(layer, v0, width=width, steps=depth, samples=samples, seed=seed, **options)
    readout = readout_entries(outputs, spec)
    programs = _programs(spec, width, depth, gradients, measure)
    total = 2 * depth * samples
    with progress_bar(label, spec.progress, total=total, unit="layer", unit_scale=True) as bar:
        make: Callable[[int, int], Network]
        probe: DeepNetwork | None = None
        if programs is not None:
            entries, of_operand = programs.entries, 0.0
            make = partial(CompiledNetwork, programs, spec, width, depth, passed=bar.update)
        else:
            deep = partial(DeepNetwork.specified, spec, width, depth, measure=measure)
            make = partial(deep, passed=bar.update)
            pattern = len(spec.pattern)
            probe = deep(0, 1)
            with few_threads(0):
                probe.forward(min(depth, pattern))
            entries = probe.entries() * -(-depth // pattern) * (1 + gradients)
            of_operand = probe.entries() / probe.operands()
        size = chunk_of_samples(entries + readout, spec)
        if probe is not None and samples == 1:
            bar.update(min(depth, len(spec.pattern)))
            probe.passed = bar.update
            known = probe
            return in_chunks(spec, 1, of_operand, lambda *_: work(known))
        del probe
        return in_chunks(spec, size, of_operand, lambda *place: work(make(*place)))


def _programs(
    spec: Specification, width: int, depth: int, gradients: int, measure: Measure
) -> LayerPrograms | None:
    """Return compiled programs of the layers; None if torch runs them."""
    compiled = spec.compiled_device and spec.precision == "float64"
    if not compiled or spec.samples * depth < _FEWEST_LAYERS:
        return None
    try:
        return LayerPrograms(spec, width, depth, gradients, measure)
    except Exception as error:
        # A block of a user may do what torch does, and a graph does not.
        _log.info("torch takes the gradients back, since a layer has no program: %s", error)
        return None
