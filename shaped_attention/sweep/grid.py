"""The entries of a sweep and the grid that they make, whether or not they are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shaped_attention.numerics.observables import observables
from shaped_attention.sweep.cells import Cell, make_cell

STOPPED = "stopped"
"""The observable that is 1 for paths that reached the radius by the horizon, and 0 for others."""


@dataclass(frozen=True)
class Target:
    """Go on until a mean is known: half its confidence interval is at most `half_width`.

    Attributes
    ----------
    observable
        A name among the sweep's, or 'stopped'; at the last stored time.
    half_width
        Positive, in units of the observable.
    level
        Confidence of the normal interval of the mean.
    first
        Blocks before the first look; then their number doubles from look to look.
    """

    observable: str
    half_width: float
    level: float = 0.95
    first: int = 4


@dataclass(frozen=True)
class Grid:
    """The entries that `Sweep` documents, unchecked, and what follows from them."""

    fixed: Mapping[str, Any]
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    samplers: tuple[str, ...] = ("chain", "sde")
    samples: int = 4096
    block: int = None  # type: ignore[assignment]  # set by __post_init__
    seed: int = 0
    keep: str = "observables"
    names: tuple[str, ...] = ()
    fractions: tuple[float, ...] = (1.0,)
    device: str = "cpu"
    dtype: str = "float64"
    target: Target | None = None
    seconds: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of values along the axes."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def blocks(self) -> int:
        """Work units of a cell and sampler, if all samples are drawn."""
        return -(-self.samples // self.block)

    def index(self, cell: int) -> tuple[int, ...]:
        """The indices along the axes of a cell by its number, in C order."""
        return tuple(int(i) for i in np.unravel_index(cell, self.shape)) if self.shape else ()

    def number(self, index: Sequence[int]) -> int:
        """Return the number of the cell with these indices along the axes."""
        return int(np.ravel_multi_index(tuple(index), self.shape)) if self.shape else 0

    def values(self, index: Sequence[int]) -> dict[str, Any]:
        """Return the parameters of the cell with these indices along the axes."""
        chosen = zip(self.axes.items(), index, strict=True)
        return {**self.fixed, **{name: axis[i] for (name, axis), i in chosen}}

    def cell(self, index: Sequence[int]) -> Cell:
        """Return the cell with these indices along the axes."""
        return make_cell(self.values(index), self.samplers)

    @cached_property
    def tokens(self) -> set[int]:
        """How many tokens the cells have: each number once."""
        return {self.cell(index).tokens for index in np.ndindex(self.shape)}

    @cached_property
    def observed(self) -> tuple[str, ...]:
        """The observables that are kept, and `STOPPED` last."""
        common = common_observables(self.tokens)
        return (*(self.names or common), STOPPED)

    def block_samples(self, block: int) -> int:
        """Samples of a work unit: those of the last one are what is left."""
        return min(self.block, self.samples - block * self.block)

    @property
    def layers(self) -> list[Any]:
        """The values of the parameter `layer`."""
        return list(self.axes.get("layer", [self.fixed.get("layer", "attention")]))


def common_observables(tokens: set[int]) -> list[str]:
    """The observables that covariances of all these numbers of tokens have."""
    named = [list(observables(np.eye(m)[None])) for m in sorted(tokens)]
    return [name for name in named[0] if all(name in other for other in named)]
