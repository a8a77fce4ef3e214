"""A block under test, and the sizes of its samples."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block, limit_reason
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Schedule, at_depth

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """A block and the sizes at which it is checked."""

    block: Block
    v0: Array
    width: int
    samples: int
    seed: int

    @property
    def tokens(self) -> int:
        """Their number m."""
        return len(self.v0)

    @property
    def limit(self) -> Limit | None:
        """The limit, if there is one."""
        return None if limit_reason(self.block) else self.block.limit

    def parameters(self) -> Any:
        """Return the parameters as numbers."""
        return at_depth(self.block, 0.0)


def numerical_parameters(block: Block) -> list[str]:
    """Return the names of the numerical fields that descriptions take from `p`."""
    return [
        entry.name
        for entry in fields(block)  # type: ignore[arg-type]
        if isinstance(getattr(block, entry.name), float | Schedule)
        and entry.name not in block.fixed
    ]


def with_value(block: Block, name: str, value: float) -> Block | None:
    """Return the block with another value of a field; None if it is refused."""
    try:
        return replace(block, **{name: value})  # type: ignore[type-var]
    except (ArithmeticError, ValueError):
        return None
