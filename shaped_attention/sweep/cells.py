"""A cell of a sweep: parameters by name, and the sampler's arguments that they determine."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias

from shaped_attention.checks import names_code, suggestion

# A file is read without the blocks and without xarray, whose imports take a second.
if TYPE_CHECKING:
    from shaped_attention.architectures.sweep_cells import CellOfModel
    from shaped_attention.samplers.sweep_cells import CellOfLayer
    from shaped_attention.sphere.sweep_cells import SphereCell

    Cell: TypeAlias = CellOfLayer | CellOfModel | SphereCell

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


def kind_of(layer: Any) -> type[Cell]:
    """Return the class of cells with this layer; raise ValueError if it is unknown."""
    if callable(layer) or (isinstance(layer, str) and layer in CELLS):
        kind: type[Cell] = resolve_name(_BLOCKS if callable(layer) else CELLS[layer])
        return kind
    own = "pass the function as layer=, or run the TOML file" if names_code(layer) else ""
    hint = own or suggestion(layer, CELLS)
    raise ValueError(f"layer must be {LAYERS}; got {layer!r}{hint and f' ({hint})'}")
