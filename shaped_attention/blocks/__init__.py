"""Residual blocks, one per file, each with its mathematics written once."""

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parallel import Parallel
from shaped_attention.blocks.parameters import Schedule
from shaped_attention.blocks.pattern import Pattern

__all__ = [
    "Block",
    "Limit",
    "Normalised",
    "Parallel",
    "Pattern",
    "Schedule",
    "ShapedAttention",
    "ShapedMLP",
]
