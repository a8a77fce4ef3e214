"""Residual blocks: each file holds one block with all its faces."""

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.mlp import ShapedMLP

__all__ = ["Block", "ShapedAttention", "ShapedMLP"]
