"""Torch, imported on first use: compiled code on the CPU does not need it.

Modules that `simulate_chain` loads import `torch` and `Tensor` from here. A type checker sees
torch's own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class _Module:
        """Torch, each name looked up when it is used."""

        def __getattr__(self, name: str) -> Any:
            # An abstract class asks each of its attributes for this, and so would load torch.
            if name == "__isabstractmethod__":
                raise AttributeError(name)
            import torch

            return getattr(torch, name)

    class _TensorType(type):
        """The type of the stand-in for `torch.Tensor`: without torch nothing is a tensor."""

        def __instancecheck__(cls, value: object) -> bool:
            if "torch" not in sys.modules:
                return False
            # Blocks until a thread that is importing torch has finished.
            import torch

            return isinstance(value, torch.Tensor)

    class Tensor(metaclass=_TensorType):
        """A placeholder for `torch.Tensor` in annotations and in `isinstance`."""

    torch = _Module()
