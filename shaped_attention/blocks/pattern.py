"""The blocks of each layer of a pattern, and their specification as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shaped_attention.blocks.base import Block, Layer, Pattern, blocks_of


def pattern_of(layer: Layer | Pattern) -> tuple[tuple[Block, ...], ...]:
    """Return the blocks of each layer of a pattern; a single layer is a pattern of one."""
    return layer.layers if isinstance(layer, Pattern) else (blocks_of(layer),)


def specification_of(pattern: Sequence[Sequence[Block]]) -> Any:
    """Return a pattern as plain data: a list of blocks, or of layers under the key "pattern"."""
    layers = [[block.specification() for block in blocks] for blocks in pattern]
    return layers[0] if len(layers) == 1 else {"pattern": layers}


__all__ = ["Pattern", "pattern_of", "specification_of"]
