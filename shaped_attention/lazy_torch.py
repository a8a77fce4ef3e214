"""Torch, imported when it is first used: compiled code on the CPU does without it.

`torch` and `Tensor` are names to import from here in a module that `simulate_chain` loads. To a
type checker they are torch's own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class _Module:
        """Torch, with each of its names as it is at that moment."""

        def __getattr__(self, name: str) -> Any:
            import torch

            return getattr(torch, name)

    class _TensorType(type):
        """The type of the stand-in for `torch.Tensor`: without torch nothing is a tensor."""

        def __instancecheck__(cls, value: object) -> bool:
            if "torch" not in sys.modules:
                return False
            # Waits for a thread that is importing it.
            import torch

            return isinstance(value, torch.Tensor)

    class Tensor(metaclass=_TensorType):
        """Stands for `torch.Tensor` in annotations and in `isinstance`."""

    torch = _Module()
