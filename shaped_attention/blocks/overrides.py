"""Values of parameters that are given as tensors, in place of those of a block's fields.

Descriptions receive their parameters as arguments, so a tensor with a gradient can take the place
of a number: of a whole run, or one for each layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.parameters import Schedule

Overrides = Mapping[str, Any]
"""By the name of a field: a tensor (), or (layers,) with one value for each layer; for a field that
is a block, or a tuple of blocks, their `Overrides`."""


def check_overrides(
    blocks: Sequence[Block],
    parameters: Overrides | Sequence[Overrides] | None,
    layers: int | None = None,
) -> list[Overrides]:
    """Return the overrides of each block, from those of a single block or a list.

    With `layers` None there is no sequence of layers, and a tensor has a single value.

    Raises
    ------
    ValueError
        If the list has a wrong length, a name is not that of a parameter, or a value has a wrong
        shape or is out of range.
    """
    if parameters is None:
        return [{} for _ in blocks]
    given = [parameters] if isinstance(parameters, Mapping) else list(parameters)
    if len(given) != len(blocks):
        raise ValueError(
            f"parameters has {len(given)} entries for {len(blocks)} blocks; one for each is needed"
        )
    return [_checked(block, own, layers) for block, own in zip(blocks, given, strict=True)]


def _checked(block: Block, given: Overrides, layers: int | None) -> Overrides:
    result: dict[str, Any] = {}
    names = [x.name for x in fields(block)]  # type: ignore[arg-type]
    for name, value in given.items():
        field = getattr(block, name) if name in names else None
        if isinstance(field, Block):
            result[name] = _checked(field, value, layers)
        elif isinstance(field, tuple) and field and all(isinstance(x, Block) for x in field):
            result[name] = check_overrides(field, value, layers)
        elif isinstance(field, float | Schedule):
            result[name] = _tensor(block, name, value, layers)
        else:
            free = [x for x in names if isinstance(getattr(block, x), float | Schedule | Block)]
            raise ValueError(
                f"parameters has {name!r}, which is no parameter of {type(block).__name__}; "
                f"{', '.join(map(repr, free))} can be given"
            )
    return result


def _tensor(block: Block, name: str, value: Any, layers: int | None) -> Tensor:
    tensor = torch.as_tensor(value)
    shapes = [()] if layers is None else [(), (layers,)]
    if tuple(tensor.shape) not in shapes or not tensor.is_floating_point():
        raise ValueError(
            f"parameters has {name!r} of shape {tuple(tensor.shape)} and type {tensor.dtype}; "
            f"floats of shape {' or '.join(map(str, shapes))} are needed"
        )
    for extreme in (tensor.detach().min(), tensor.detach().max()):
        # The block's own check says what is wrong.
        replace(block, **{name: float(extreme)})  # type: ignore[type-var]
    return tensor


def at_layer(given: Any, layer: int) -> Any:
    """Return overrides with the values of one layer."""
    if isinstance(given, Tensor):
        return given if given.ndim == 0 else given[layer]
    if isinstance(given, Mapping):
        return {name: at_layer(value, layer) for name, value in given.items()}
    return [at_layer(value, layer) for value in given]
