"""A cell of a sweep: parameters by name, and the sampler's arguments that they stand for.

The rest of the sweep knows only `Cell`, whose kinds are in one table.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol, Self

import xarray as xr

from shaped_attention.blocks.catalogue import KINDS

_BLOCKS = "shaped_attention.sweep.layer_cells:CellOfLayer"

CELLS = {
    **dict.fromkeys(KINDS, _BLOCKS),
    "sphere": "shaped_attention.sphere.sweep_cells:SphereCell",
}
"""Classes of cells by the name of the layer, loaded on use; 'module:function' is one of blocks."""

LAYERS = f"one of {', '.join(CELLS)}, or 'module:function'"

DEFAULTS: dict[str, Any] = {"layer": "attention", "rho": 0.2, "step": 0.01}


class Cell(Protocol):
    """What the rest of the sweep needs of a point of the grid."""

    samplers: ClassVar[tuple[str, ...]]

    @classmethod
    def parameters(cls, layer: str) -> tuple[str, ...]:
        """Names that a sweep with that layer may fix or vary, besides `layer`."""

    @classmethod
    def make(cls, values: Mapping[str, Any], samplers: tuple[str, ...]) -> Self:
        """The cell of these parameters; ValueError if one is missing or outside its range."""

    @property
    def tokens(self) -> int:
        """Number of tokens."""

    @property
    def horizon(self) -> float:
        """The last time."""

    def steps(self, sampler: str) -> int:
        """Steps or layers of a sample: what its cost is proportional to."""

    def times(self, sampler: str, fractions: tuple[float, ...]) -> list[float]:
        """Times at these fractions of the horizon; ValueError if they are off the grid."""

    def check(self, sampler: str, samples: int, seed: int, dtype: str) -> None:
        """Raise the ValueError that the sampler would, without simulating anything."""

    def identity(self, sampler: str) -> str:
        """Text that two cells share if the sampler does the same for both."""

    def sample(self, sampler: str, fractions: tuple[float, ...], **settings: Any) -> xr.Dataset:
        """Run the sampler; `settings` are samples, seed, device, dtype and chunk."""


def kind_of(layer: Any) -> type[Cell]:
    """The class of the cells with that layer.

    Raises
    ------
    ValueError
        If the layer is unknown.
    """
    if not isinstance(layer, str) or (layer not in CELLS and ":" not in layer):
        # Files of earlier versions have this name.
        near = ["transformer"] if layer == "both" else get_close_matches(str(layer), CELLS, n=1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"layer={layer!r}: {LAYERS} is needed{guess}")
    module, _, name = CELLS.get(layer, _BLOCKS).partition(":")
    found: type[Cell] = getattr(importlib.import_module(module), name)
    return found


def make_cell(values: Mapping[str, Any], samplers: tuple[str, ...]) -> Cell:
    """The cell of these parameters; ValueError if one is missing or outside its range."""
    given = DEFAULTS | dict(values)
    return kind_of(given["layer"]).make(given, samplers)
