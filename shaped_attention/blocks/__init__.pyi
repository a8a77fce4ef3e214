from .attention import ShapedAttention
from .base import Block, Pattern
from .mlp import ShapedMLP
from .normalised import Normalised
from .parallel import Parallel
from .parameters import Schedule

__all__ = [
    "Block",
    "Normalised",
    "Parallel",
    "Pattern",
    "Schedule",
    "ShapedAttention",
    "ShapedMLP",
]
