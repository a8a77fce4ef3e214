"""Tensors that replace the parameters in a block's fields.

Descriptions receive their parameters as arguments, so a tensor with a gradient can replace a
number: one value for a whole run, or one for each layer. Decisions that a block makes by its
fields, such as whether its activation is linear, use the values of the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from shaped_attention.blocks.base import Block, Layer, Pattern, pattern_of
from shaped_attention.blocks.parameters import Schedule, blocks_in, like
from shaped_attention.checks import argument_error
from shaped_attention.libraries import Tensor, torch

Overrides = Mapping[str, Any]
"""By the name of a field: a tensor (), or (layers,) with one value for each layer. A field that is
a block has its own `Overrides`, a tuple of blocks a list of them."""


def overridden(
    layer: Layer, parameters: Any, layers: int | None = None
) -> tuple[Pattern, list[list[Overrides]]]:
    """Return a layer with the values of tensors, and the tensors of each block.

    `parameters` are those of a single block, a list with those of each block, or None. If `layers`
    is None there is no sequence of layers, and a tensor has a single value.

    Raises
    ------
    ValueError
        If `parameters` is not one dictionary for each block, a name is not that of a parameter, or
        a value has the wrong shape or is out of range.
    """
    pattern = pattern_of(layer)
    blocks = [block for layer_blocks in pattern for block in layer_blocks]
    overrides = iter(_for_each(blocks, parameters))
    tensors = [[next(overrides) for _ in layer_blocks] for layer_blocks in pattern]
    new = [
        [_replaced(block, values, layers) for block, values in zip(*pair, strict=True)]
        for pair in zip(pattern, tensors, strict=True)
    ]
    return Pattern(new), tensors


def _for_each(blocks: Sequence[Block], parameters: Any) -> list[Overrides]:
    if parameters is None:
        return [{} for _ in blocks]
    by_block = [parameters] if isinstance(parameters, Mapping) else parameters
    if not isinstance(by_block, list | tuple) or not all(isinstance(x, Mapping) for x in by_block):
        raise argument_error(
            "parameters", "a dictionary, or a list with one for each block", parameters
        )
    if len(by_block) != len(blocks):
        raise ValueError(f"parameters has {len(by_block)} entries for {len(blocks)} blocks")
    return list(by_block)


def _replaced(block: Block, overrides: Overrides, layers: int | None) -> Block:
    """Return a block with the values of tensors, which its own checks validate."""
    kinds = {x.name: (x.type, getattr(block, x.name)) for x in fields(block)}
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        kind, field = kinds.get(name, (None, None))
        if _is_number(kind, field) and name not in block.fixed:
            changes[name] = _value(name, value, layers)
        elif inner := blocks_in(field):
            pairs = zip(inner, _for_each(inner, value), strict=True)
            changes[name] = like(field, [_replaced(x, values, layers) for x, values in pairs])
        else:
            free = [x for x, (y, z) in kinds.items() if blocks_in(z) or _is_number(y, z)]
            raise ValueError(
                f"parameters has {name!r}, which is not a parameter of {type(block).__name__}; "
                f"{', '.join(repr(x) for x in free if x not in block.fixed)} can be given"
            )
    return replace(block, **changes) if changes else block


def _is_number(kind: Any, field: Any) -> bool:
    """Return whether a field is a number that may change with depth, even if an integer like 1."""
    whole = type(field) is int and str(kind).startswith(("Parameter", "float"))
    return whole or isinstance(field, float | Schedule)


def _value(name: str, value: Any, layers: int | None) -> float | Schedule:
    """Return a tensor's value, or the schedule that has its values in each layer."""
    shapes = [()] if layers is None else [(), (layers,)]
    kind = f"a tensor of floats of shape {' or '.join(map(str, shapes))}"
    if not isinstance(value, Tensor):
        raise argument_error(f"parameters[{name!r}]", kind, value)
    if tuple(value.shape) not in shapes or not value.is_floating_point():
        raise ValueError(
            f"parameters[{name!r}] must be {kind}; got {tuple(value.shape)} of type {value.dtype}"
        )
    values = value.detach().to(torch.float64).reshape(-1).tolist()
    if len(set(values)) == 1:
        return float(values[0])
    return Schedule([*((i / len(values), x) for i, x in enumerate(values)), (1.0, values[-1])])


def at_layer(overrides: Any, layer: int) -> Any:
    """Return overrides with the values of one layer."""
    if isinstance(overrides, Tensor):
        return overrides if overrides.ndim == 0 else overrides[layer]
    if isinstance(overrides, Mapping):
        return {name: at_layer(value, layer) for name, value in overrides.items()}
    return [at_layer(value, layer) for value in overrides]
