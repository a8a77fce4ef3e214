"""All samples of deep networks in chunks, by compiled code where a layer can be recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeAlias

from numpy.typing import ArrayLike

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import check_count
from shaped_attention.lazy.compiled.layer_programs import LayerPrograms
from shaped_attention.lazy.compiled.network import CompiledNetwork
from shaped_attention.lazy.compiled.translator import RecordingError
from shaped_attention.lazy.deep import DeepNetwork, Measure
from shaped_attention.lazy.networks import chunk_of_samples, readout_entries
from shaped_attention.progress import progress_bar
from shaped_attention.samplers.specification import Options, Specification, specify

_FEWEST_LAYERS = 2**8
"""Layers of all samples below which torch is as fast as recording a layer (measured)."""

_log = logging.getLogger(__name__)


Network: TypeAlias = DeepNetwork | CompiledNetwork
"""Some samples of a network that go forward once, and back with some gradients."""


def deep_networks(
    layer: Layer,
    v0: ArrayLike,
    width: int,
    depth: int,
    samples: int,
    seed: int,
    options: Options,
    gradients: int,
    measure: Measure,
    label: str,
    outputs: int = 0,
) -> Iterator[Network]:
    """Yield the networks of all samples in chunks, of which some gradients are taken back.

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
    programs = _programs(spec, width, depth, gradients, measure)
    total = 2 * depth * samples
    with progress_bar(
        label, options.progress, total=total, unit="layer", unit_scale=True
    ) as bar:  # fmt: skip
        if programs is not None:
            size = chunk_of_samples(programs.entries + readout, spec)
            for first in range(0, samples, size):
                count = min(size, samples - first)
                yield CompiledNetwork(programs, spec, width, depth, first, count, bar.update)
            return
        first_one = DeepNetwork(spec, width, depth, 0, 1, measure=measure)
        first_one.forward(min(depth, len(spec.pattern)))
        layers = -(-depth // len(spec.pattern))
        entries = first_one.entries() * layers * (1 + gradients)
        size = chunk_of_samples(entries + readout, spec)
        if samples == 1:
            bar.update(min(depth, len(spec.pattern)))
            first_one.passed = bar.update
            yield first_one
            return
        del first_one
        for first in range(0, samples, size):
            count = min(size, samples - first)
            yield DeepNetwork(spec, width, depth, first, count, bar.update, measure)


def _programs(
    spec: Specification, width: int, depth: int, gradients: int, measure: Measure
) -> LayerPrograms | None:
    """Return compiled programs of the layers; None if torch runs them."""
    if not spec.compiled_device or spec.samples * depth < _FEWEST_LAYERS:
        return None
    try:
        return LayerPrograms(spec, width, depth, gradients, measure)
    except RecordingError as error:
        _log.info("torch takes the gradients back; compiled code cannot, because of %s", error)
        return None
