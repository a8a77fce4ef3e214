"""Checks of a custom block: whether networks, chain and limit agree with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from numpy.typing import ArrayLike

from shaped_attention.blocks.base import Block, blocks_of
from shaped_attention.blocks.parameters import resolved, scheduled
from shaped_attention.checks import argument_error, check_count, with_types
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.samplers.specification import common_groups
from shaped_attention.statistics.block_checks.networks import networks
from shaped_attention.statistics.block_checks.report import (
    ERRORS,
    BlockReport,
    Check,
    Trial,
    judged,
)
from shaped_attention.statistics.block_checks.wide_layer import wide_layer

_CHECKS: tuple[tuple[str, Callable[[Trial], Iterator[Check]]], ...] = (
    ("branch against chain", networks),
    ("drift from one wide layer and diffusion from one wide layer", wide_layer),
)


@with_types
def check_block(block: Block, v0: ArrayLike, *, samples: int = 2000, seed: int = 0) -> BlockReport:
    """Check whether networks, chain and limit of a block agree with each other.

    Each check states the size of an error that it would have noticed. It compares networks of real
    weights with the chain, and one wide layer with drift and diffusion. These are unresolved if
    errors of a tenth of their largest entry cannot be seen: for the drift within 20 s of processor
    time per covariance, for the diffusion with a fixed number of samples. It cannot know whether
    `branch` is the intended model; for that, compare with `symbolic` and exact laws.

    Parameters
    ----------
    block
        The block; schedules are replaced by their values at depth 0.
    v0
        Covariance (m, m) at which the block is checked, as well as at twice this covariance.
    samples
        Number of networks, whose width is the smallest multiple of the number of groups with at
        least 4 m columns per group and 32 in all. The chain has ten times as many samples, a wide
        layer up to a thousand times as many.
    seed
        Seed of all samples.

    Returns
    -------
    BlockReport with `ok` and `table`, one `Check` for each line.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> report = sa.check_block(sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), samples=200)
    >>> report.ok
    True
    """
    if not isinstance(block, Block):
        raise argument_error("block", "a block", block)
    blocks_of(block)
    start = check_covariance(v0, "v0")
    check_count("samples", samples, lowest=100)
    check_count("seed", seed, lowest=0)
    plain = resolved(block, 0.0) if scheduled(block) else block
    groups = common_groups([plain])
    width = groups * max(4 * len(start), -(-32 // groups))
    trial = Trial(plain, start, width, samples, seed)
    return BlockReport(tuple(check for name, run in _CHECKS for check in _checks(name, run, trial)))


def _checks(name: str, run: Callable[[Trial], Iterator[Check]], trial: Trial) -> Iterator[Check]:
    """Yield the checks of a function, or one that fails because a run does."""
    try:
        yield from run(trial)
    except ERRORS as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        yield judged(name, False, f"a run fails: {kind}{error}")
