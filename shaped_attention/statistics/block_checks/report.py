"""A block under test, and the table of its checks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.reasons import limit_of, limit_reason

PASS, FAIL, NOT_TESTED, UNRESOLVED = "pass", "fail", "not tested", "unresolved"

Array = NDArray[np.float64]

ERRORS = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors of a block's descriptions, which fail a check."""


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    outcome: str
    """"pass", "fail", "not tested" if it does not apply, or "unresolved" if noise hides errors."""
    detail: str
    """What was found, or why it was not tested."""
    noticed: str = ""
    """The size of an error that would have been noticed."""


def judged(name: str, good: bool, detail: str, noticed: str = "") -> Check:
    """Return a check that passes or fails."""
    return Check(name, PASS if good else FAIL, detail, noticed)


def untested(name: str, reason: str) -> Check:
    """Return a check that does not apply."""
    return Check(name, NOT_TESTED, reason)


@dataclass(frozen=True)
class BlockReport:
    """Result of `check_block`; printing it prints the table."""

    table: tuple[Check, ...]
    """All checks, in the order in which they ran."""

    @property
    def ok(self) -> bool:
        """Whether no check failed or is unresolved."""
        return all(check.outcome in (PASS, NOT_TESTED) for check in self.table)

    def __str__(self) -> str:
        lines = [f"{check.outcome:<10} {check.name}: {check.detail}" for check in self.table]
        noticed = [check for check in self.table if check.noticed]
        lines += [f"{'':<10} {check.name} would have noticed {check.noticed}" for check in noticed]
        counts = Counter(check.outcome for check in self.table)
        total = f"{counts[FAIL]} of {len(self.table) - counts[NOT_TESTED]} checks failed"
        more = [f", {counts[x]} {x}" for x in (UNRESOLVED, NOT_TESTED) if counts[x]]
        return "\n".join([*lines, total + "".join(more)])


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
        return None if limit_reason(self.block) else limit_of(self.block)

    @property
    def parameters(self) -> Any:
        """The parameters as numbers."""
        return at_depth(self.block, 0.0)
