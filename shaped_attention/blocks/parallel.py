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
from typing import Any, ClassVar

from shaped_attention.blocks.base import Block, Project, Tokens, inside
from shaped_attention.blocks.parameters import Parameter, Parameters, at_depth, depths_of
from shaped_attention.checks import argument_error, check_skip
from shaped_attention.numerics.primitives import sqrt

_ROUNDING = 1e-12


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
    gamma: ClassVar[float] = 1.0
    """The weight of the sum of branches, which have weights of their own."""

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
        self, p: Parameters, tokens: Tokens, project: Project, logits: bool = False
    ) -> Iterator[tuple[int, Any]]:
        """Yield the attention weights of all branches, one branch after the other."""
        for i, (block, q) in enumerate(zip(self.blocks, p.blocks, strict=True)):
            yield from block.attention_weights(q, tokens, inside(project, i), logits)


def _is_plain(block: Block) -> bool:
    """Return whether a block is its branch and a skip connection."""
    return type(block).step is Block.step and type(block).forward is Block.forward
