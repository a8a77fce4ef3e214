"""Whether blocks have a limit and an exact chain, and can be stored; why not."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from shaped_attention.blocks.base import Block, Layer, blocks_of
from shaped_attention.blocks.parameters import Parameter, Schedule

if TYPE_CHECKING:
    from shaped_attention.blocks.limit import Limit


def limit_reason(block: Block) -> str:
    """Return why a block has no limit; empty if it has one."""
    skip = getattr(block, "skip", None)
    if skip is not None and not _on_the_circle(skip, block.gamma):
        return (
            "its skip weight is not sqrt(1 - gamma^2), so that a layer whose branch is of order 1 "
            "changes V by order 1, not 1/n; limits of other branches are not derived"
        )
    return block.limit if isinstance(block.limit, str) else ""


def limit_of(block: Block) -> Limit:
    """Return the limit of a block that has one (`check_limit`)."""
    limit = block.limit
    assert not isinstance(limit, str), limit
    return limit


def check_limit(layer: Layer) -> None:
    """Raise ValueError, with the reason, if the layer has no limit."""
    blocks = blocks_of(layer)
    for block in blocks:
        reason = limit_reason(block) or _reason_against(block, blocks[0])
        if reason:
            raise ValueError(f"layer contains {block!r}, which has no limit: {reason}")


def _reason_against(block: Block, first: Block) -> str:
    """Return why two blocks have no limit together; empty if they have one."""
    ours, theirs = limit_of(block).norm, limit_of(first).norm
    if (ours and ours.relaxes) == (theirs and theirs.relaxes):
        return ""
    return (
        f"the layer also contains {first!r}; the sums of all blocks must be normalised, or those "
        "of none, and the same holds for their branches"
    )


def _on_the_circle(skip: Parameter, gamma: Parameter) -> bool:
    if isinstance(skip, Schedule) or isinstance(gamma, Schedule):
        return False
    return math.isclose(skip**2 + gamma**2, 1.0, rel_tol=1e-12)


def check_chain(layer: Layer) -> None:
    """Raise ValueError, with the reason, if a block of the layer has no exact chain."""
    for block in blocks_of(layer):
        if block.no_chain:
            raise ValueError(f"layer contains {block!r}, which has no chain: {block.no_chain}")


def check_storable(block: Block) -> None:
    """Raise ValueError, before a run, unless a result can store the block."""
    try:
        json.dumps(block.specification())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"layer contains {block!r}, which is not a dataclass with plain data as fields "
            f"({error})"
        ) from None
