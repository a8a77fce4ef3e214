"""A cell of a sweep: parameters by name, and the sampler's arguments that they determine.

Parameters are plain data and functions, of which a file holds the names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shaped_attention.checks import argument_error, names_code, suggestion

# A file is read without the blocks and without xarray, whose imports take a second.
if TYPE_CHECKING:
    from shaped_attention.models.sweep_cells import CellOfModel
    from shaped_attention.samplers.sweep_cells import CellOfLayer
    from shaped_attention.sphere.sweep_cells import SphereCell

    Cell: TypeAlias = CellOfLayer | CellOfModel | SphereCell

_BLOCKS = "shaped_attention.samplers.sweep_cells:CellOfLayer"

CELLS = {
    "attention": _BLOCKS,
    "mlp": _BLOCKS,
    "transformer": _BLOCKS,
    "sphere": "shaped_attention.sphere.sweep_cells:SphereCell",
    "model": "shaped_attention.models.sweep_cells:CellOfModel",
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


def each(change: Callable[[Any], Any], value: Any) -> Any:
    """Return nested lists and mappings with every value in them changed."""
    if isinstance(value, Mapping):
        return {name: each(change, entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [each(change, entry) for entry in value]
    return change(value)


def named(value: Any) -> Any:
    """Return the name by which a file records a function; any other value as it is."""
    return f"{value.__module__}:{value.__qualname__}" if callable(value) else value


def plain(value: Any) -> Any:
    """Return a value without NumPy's types; raise ValueError for what has no name in a file."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if callable(value) and (not inspect.isfunction(value) or "<" in value.__qualname__):
        raise argument_error("layer", "a function at the top level of a module", value)
    return value


def refuse_code(name: str, value: Any) -> None:
    """Raise ValueError, naming the parameter, for a text that names code."""
    if names_code(value):
        raise argument_error(
            name, "a function itself: no code that a file names is imported", value
        )
