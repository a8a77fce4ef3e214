"""Residual blocks: each file holds one block with all its faces."""

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised

__all__ = ["Block", "Normalised", "ShapedAttention", "ShapedMLP"]
