"""A cell of a sweep: parameters by name, and the sampler's arguments that they determine.

The rest of the sweep uses only the protocol `Cell`; the table `CELLS` lists its classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from shaped_attention.checks import names_code, suggestion

# A file is read without the blocks and without xarray, whose imports take a second.
if TYPE_CHECKING:
    import xarray as xr

_BLOCKS = "shaped_attention.samplers.sweep_cells:CellOfLayer"

CELLS = {
    "attention": _BLOCKS,
    "mlp": _BLOCKS,
    "transformer": _BLOCKS,
    "sphere": "shaped_attention.sphere.sweep_cells:SphereCell",
    "model": "shaped_attention.architectures.sweep_cells:CellOfModel",
}
"""Class of cells for each layer, loaded on use; functions of layers have that of blocks."""

LAYERS = f"one of {', '.join(CELLS)}, or a function that returns a layer"

DEFAULTS: dict[str, Any] = {"rho": 0.2, "step": 0.01}
"""Defaults that enter the seed of a cell, whether it has these parameters or not."""


class Cell(Protocol):
    """Point of the grid, as the rest of the sweep uses it."""

    samplers: ClassVar[tuple[str, ...]]
    """Samplers of these cells. A class with a true `any_name` checks names of parameters itself."""

    @classmethod
    def parameters(cls, layer: Any) -> tuple[str, ...]:
        """Return the names that a sweep with this layer may fix or vary, apart from `layer`."""

    @classmethod
    def make(cls, values: Mapping[str, Any], samplers: tuple[str, ...]) -> Self:
        """Return the cell of these parameters; raise ValueError if one is missing or invalid."""

    @property
    def tokens(self) -> int:
        """Number of tokens."""

    def times(self, sampler: str, fractions: tuple[float, ...]) -> list[float]:
        """Return the times at these fractions of the horizon; raise ValueError if off the grid."""

    def check(self, sampler: str, samples: int, seed: int, dtype: str) -> None:
        """Raise the ValueError that the sampler would, without simulating anything."""

    def sample(self, sampler: str, fractions: tuple[float, ...], **settings: Any) -> xr.Dataset:
        """Run the sampler; `settings` are samples, seed, device, dtype and chunk."""


def kind_of(layer: Any) -> type[Cell]:
    """Return the class of cells with this layer; raise ValueError if it is unknown."""
    if callable(layer):
        kind: type[Cell] = resolve_name(_BLOCKS)
    elif isinstance(layer, str) and layer in CELLS:
        kind = resolve_name(CELLS[layer])
    else:
        own = "pass the function as layer=, or run the TOML file" if names_code(layer) else ""
        hint = own or suggestion(layer, CELLS)
        raise ValueError(f"layer must be {LAYERS}; got {layer!r}{hint and f' ({hint})'}")
    return kind
