"""The entries of a sweep, not yet checked, and the grid that they define."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.sweep.cells import Cell, make_cell

STOPPED = "stopped"
"""Observable that is 1 for paths that reached the radius by the horizon, and 0 otherwise."""


@dataclass(frozen=True, order=True)
class Unit:
    """Numbers of the block, of the cell (in C order of the axes) and of the sampler."""

    block: int
    cell: int
    sampler: int


@dataclass(frozen=True)
class Target:
    """Precision at which a cell stops: half the width of the confidence interval of a mean.

    Attributes
    ----------
    observable
        Name of an observable of the sweep, or 'stopped'; its mean is at the last stored time.
    half_width
        Largest half width, positive, in units of the observable.
    level
        Confidence level of the interval.
    first
        Number of blocks before the first check; it doubles from check to check.
    """

    observable: str
    half_width: float
    level: float = 0.95
    first: int = 4


@dataclass(frozen=True)
class Grid:
    """Entries that `Sweep` documents, unchecked, and what follows from them."""

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
        """Number of work units per cell and sampler, if all samples are drawn."""
        return -(-self.samples // self.block)

    def index(self, cell: int) -> tuple[int, ...]:
        """Return the indices along the axes of the cell with this number, in C order."""
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
        """Numbers of tokens that occur among the cells."""
        return {self.cell(index).tokens for index in np.ndindex(self.shape)}

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """Relative costs (cells, samplers) of a sample, comparable within a column."""
        cells = map(self.cell, np.ndindex(self.shape))
        # Four digits are enough, and short in a store.
        costs = [[f"{cell.cost(name):.4g}" for name in self.samplers] for cell in cells]
        return np.array(costs, dtype=np.float64)

    @cached_property
    def horizon(self) -> float | None:
        """Horizon T that all cells have; None if they differ."""
        horizons = {self.cell(index).horizon for index in np.ndindex(self.shape)}
        return horizons.pop() if len(horizons) == 1 else None

    @cached_property
    def observed(self) -> tuple[str, ...]:
        """Names of the observables kept, with `STOPPED` last."""
        common = common_observables(self.tokens)
        return (*(self.names or common), STOPPED)

    def block_samples(self, block: int) -> int:
        """Return the number of samples of a block; the last block has the remainder."""
        return min(self.block, self.samples - block * self.block)

    @property
    def layers(self) -> list[Any]:
        """Values of the parameter `layer`."""
        return list(self.axes.get("layer", [self.fixed.get("layer", "attention")]))

    def layers_of(self, cells: Iterable[int]) -> list[Any]:
        """Return the layers that occur among some cells."""
        if "layer" not in self.axes:
            return self.layers
        return list({self.values(self.index(cell))["layer"] for cell in cells})


def common_observables(tokens: set[int]) -> list[str]:
    """Return the observables that exist for all these numbers of tokens."""
    # A store names those that it keeps; reading it needs neither SciPy nor xarray.
    from shaped_attention.numerics.observables import observables

    named = [list(observables(np.eye(m)[None])) for m in sorted(tokens)]
    return [name for name in named[0] if all(name in other for other in named)]
