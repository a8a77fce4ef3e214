"""Repeating patterns of different layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block, Layer, blocks_of
from shaped_attention.checks import argument_error


@dataclass(frozen=True)
class Pattern:
    """A repeating pattern of K layers: layer l has the blocks of entry l modulo K.

    In the limit the layers of a pattern share the time, each with weight 1 / K.

    Parameters
    ----------
    layers
        List of layers, each a block or a list of blocks.

    Raises
    ------
    ValueError
        If the list is empty, or an entry is not a layer.

    Examples
    --------
    >>> from shaped_attention import Pattern, ShapedAttention, ShapedMLP
    >>> len(Pattern([ShapedAttention(0.3), [ShapedAttention(0.3), ShapedMLP(0.3)]]).layers)
    2
    """

    layers: Any

    def __post_init__(self) -> None:
        known = (Block, list, tuple)
        if not (isinstance(self.layers, list | tuple) and self.layers) or not all(
            isinstance(layer, known) for layer in self.layers
        ):
            raise argument_error("layers", "a non-empty list of layers", self.layers)
        object.__setattr__(self, "layers", tuple(blocks_of(layer) for layer in self.layers))


def pattern_of(layer: Layer | Pattern) -> tuple[tuple[Block, ...], ...]:
    """Return the blocks of each layer of a pattern; a single layer is a pattern of one."""
    return layer.layers if isinstance(layer, Pattern) else (blocks_of(layer),)


def specification_of(pattern: Sequence[Sequence[Block]]) -> Any:
    """Return a pattern as plain data: a list of blocks, or of layers under the key "pattern"."""
    layers = [[block.specification() for block in blocks] for blocks in pattern]
    return layers[0] if len(layers) == 1 else {"pattern": layers}
