"""Branches that act in parallel on the same tokens: X' = lambda X + sum_i gamma_i branch_i(X).

With Gamma = sum gamma_i^2 and lambda^2 + Gamma = 1 a layer has a limit: the drifts and noises of
the branches add, and the linear rate is

    k = 2 lambda^2 Gamma + Gamma^2 + sum_i (k_i - 2 gamma_i^2 + gamma_i^4),

where k_i is the rate of a branch alone. Its excess over the cross term and the Wishart term of the
last weights comes from the inner weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block, Project, Tokens, inside
from shaped_attention.blocks.limit import Limit, SumLimit, has_noise, summed, total
from shaped_attention.blocks.parameters import Parameter, Parameters, at_depth, depths_of
from shaped_attention.blocks.reasons import limit_of
from shaped_attention.checks import argument_error, check_skip
from shaped_attention.numerics.primitives import M, sqrt

_ROUNDING = 1e-12


@dataclass(frozen=True)
class ParallelLimit(SumLimit):
    """The limit of parallel branches: drifts and noises add; the module gives the linear rate."""

    limits: tuple[Limit, ...]

    def parts(self, p: Parameters) -> Sequence[tuple[Limit, Parameters]]:
        """Return the limit of each branch."""
        return list(zip(self.limits, p.blocks, strict=True))

    def check(self, tokens: int) -> None:
        """Check the limit of each branch."""
        for limit in self.limits:
            limit.check(tokens)

    def linear_rate(self, p: Parameters) -> Any:
        """Return ``2 lambda^2 Gamma + Gamma^2`` plus the excess of each branch."""
        square = sum(q.gamma**2 for q in p.blocks)
        beyond = sum(
            limit.linear_rate(q) - 2.0 * q.gamma**2 + (q.gamma**2) ** 2
            for limit, q in self.parts(p)
        )
        return 2.0 * square - square**2 + beyond

    def weight_rate(self, p: Parameters) -> float | None:
        """Return the sum over the branches; None if that of one is not derived."""
        rates = [limit.weight_rate(q) for limit, q in self.parts(p)]
        return sum(rate for rate in rates if rate is not None) if None not in rates else None

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return the sum of the branches' own second orders; None if one has none."""
        parts = [limit.noise_drift(q, factor) for limit, q in self.parts(p) if has_noise(limit)]
        return None if any(part is None for part in parts) else total(parts)

    speed, noise_along = summed("speed"), summed("noise_along")


@dataclass(frozen=True, init=False)
class Parallel(Block):
    """Branches of several blocks, added to one skip connection.

    Parameters
    ----------
    branches, blocks
        At least two blocks, given as arguments or as a list, which may be named `blocks`. They must
        not be normalised, and their own `skip` must be None, or 0, which allows gamma > 1.
    skip
        Weight of the skip connection; None for sqrt(1 - sum of gamma^2).

    Raises
    ------
    ValueError
        If there are fewer than two blocks, an entry is not a block or has its own skip weight, or
        the sum of gamma^2 exceeds 1 and `skip` is None.

    Examples
    --------
    >>> from shaped_attention import Parallel, ShapedAttention, ShapedMLP, drift, equicorrelated
    >>> both = Parallel(ShapedAttention(gamma=0.5), ShapedMLP(gamma=0.5))
    >>> drift(both, equicorrelated(tokens=2, rho=0.0)).round(4)
    array([[0.0625, 0.0398],
           [0.0398, 0.0625]])
    """

    blocks: tuple[Block, ...]
    skip: Parameter | None = None

    def __init__(
        self, *branches: Any, blocks: Sequence[Any] = (), skip: Parameter | None = None
    ) -> None:
        if len(branches) == 1 and isinstance(branches[0], list | tuple):
            branches = tuple(branches[0])
        if not isinstance(blocks, list | tuple):
            raise argument_error("blocks", "a list of two blocks or more", blocks)
        object.__setattr__(self, "blocks", (*branches, *blocks))
        object.__setattr__(self, "skip", skip)
        if len(self.blocks) < 2:
            raise argument_error("blocks", "two blocks or more", list(self.blocks))
        for block in self.blocks:
            if not isinstance(block, Block) or not _is_plain(block):
                raise ValueError(f"blocks contain {block!r}, which is not a block with a branch")
            if getattr(block, "skip", None) not in (None, 0.0):
                raise ValueError(f"blocks contain {block!r}: only Parallel may have a skip weight")
        check_skip(skip)
        if skip is None:
            for depth in depths_of(*(block.gamma for block in self.blocks)):
                total = sum(at_depth(block, depth).gamma ** 2 for block in self.blocks)
                if total > 1.0 + _ROUNDING:
                    raise ValueError(
                        "blocks must have weights gamma whose squares add up to at most 1 if no "
                        f"skip weight is given; got {total:.6g}"
                    )

    @property
    def gamma(self) -> float:
        """The weight of the sum of branches, which have weights of their own."""
        return 1.0

    @property
    def limit(self) -> Limit | str:
        """The limit of all branches, or the reason why it does not exist."""
        for block in self.blocks:
            if isinstance(reason := block.limit, str):
                return f"its branch {type(block).__name__} has none: {reason}"
        if self.skip is not None:
            return "its skip weight is given, so that V_aa changes by order 1, not 1/n, in general"
        return ParallelLimit(tuple(limit_of(block) for block in self.blocks))

    def skip_weight(self, p: Parameters) -> Any:
        """Return lambda, the weight of the skip connection."""
        if self.skip is not None:
            return p.skip
        return sqrt(1.0 - sum(q.gamma**2 for q in p.blocks))

    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the weighted sum of the branches, each with its own weight matrices."""
        parts = [
            q.gamma * block.applied(q, tokens, inside(project, i))
            for i, (block, q) in enumerate(zip(self.blocks, p.blocks, strict=True))
        ]
        return sum(parts[1:], parts[0])

    def attention_weights(
        self, p: Parameters, tokens: Tokens, project: Project
    ) -> Iterator[tuple[int, Any]]:
        """Yield the attention weights of all branches, one branch after the other."""
        for i, (block, q) in enumerate(zip(self.blocks, p.blocks, strict=True)):
            yield from block.attention_weights(q, tokens, inside(project, i))


def _is_plain(block: Block) -> bool:
    """Return whether a block is its branch and a skip connection."""
    return type(block).step is Block.step and type(block).forward is Block.forward
