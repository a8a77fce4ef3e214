"""Normalised residual blocks: the common baselines, which have no limit here.

    before:  X' = lambda X + gamma f(N(X)),        after:  X' = N(lambda X + gamma f(X)),

where f is the branch of another block. N divides a token by the root mean square of its n features
("rms"), or subtracts their mean first ("layer"; Ba et al., arXiv 1607.06450, without the trainable
gain and bias). The first form is pre-norm, the "Pre-LN" of Xiong et al. (arXiv 2002.04745), the
second post-norm, the "Post-LN" of Vaswani et al. (arXiv 1706.03762).

With "rms" N(X) has the covariance D V D, D = diag(V)^(-1/2), so that the law of V' given V is that
of a block on D F. With "layer" the law also depends on the means of the tokens, not on V alone:
such networks have no chain here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block, Project, limit_reason
from shaped_attention.blocks.branch import residual_step, unit_groups
from shaped_attention.blocks.normalised_limit import NormalisedLimit, SandwichLimit
from shaped_attention.blocks.state import State, total_factor
from shaped_attention.lazy_torch import Tensor
from shaped_attention.numerics.primitives import M, Numbers, unit_rows

PLACES = ("before", "after")
NORMS = ("rms", "layer")


@dataclass(frozen=True)
class Normalised(Block):
    """A block whose tokens are normalised before its branch or after the sum.

    Parameters
    ----------
    inner
        Block to normalise; not itself a `Normalised` block.
    place
        "before" (pre-norm: the branch acts on normalised tokens) or "after" (post-norm: the result
        is normalised).
    norm
        "rms" or "layer". A zero token remains zero.

    Raises
    ------
    ValueError
        If an argument is invalid.
    """

    inner: Block
    place: str = "before"
    norm: str = "rms"

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Block) or isinstance(self.inner, Normalised):
            raise ValueError(f"inner={self.inner!r}: a block that is not normalised is needed")
        if self.place not in PLACES:
            raise ValueError(f"place={self.place!r}: 'before' or 'after' is needed")
        if self.norm not in NORMS:
            raise ValueError(f"norm={self.norm!r}: 'rms' or 'layer' is needed")

    @property
    def gamma(self) -> float:
        """The weight of the block's branch."""
        return self.inner.gamma

    @property
    def groups(self) -> int:
        """Number of groups of columns of the inner block."""
        return self.inner.groups

    @property
    def limit(self) -> NormalisedLimit | str:
        """The limit of the correlations, or the reason why it does not exist."""
        if isinstance(self.inner.limit, str):
            return f"its inner block has none: {self.inner.limit}"
        if self.place != "after" and (reason := limit_reason(self.inner)):
            return reason
        kind = NormalisedLimit if self.place in ("before", "after") else SandwichLimit
        return kind(self.inner, self.place)

    @property
    def no_chain(self) -> str:
        """The reason why LayerNorm has no chain; empty for "rms"."""
        if self.norm == "rms":
            return ""
        return "LayerNorm depends on the means of the tokens over their features, not on V alone"

    def check(self, tokens: int, width: int | None) -> None:
        """Check the inner block."""
        self.inner.check(tokens, width)

    def branch(self, p: Any, tokens: Tensor, project: Project) -> Tensor:
        """Return the inner block's branch, of normalised tokens if `place` is "before"."""
        seen = self._normalised(tokens) if self.place == "before" else tokens
        return self.inner.branch(p.inner, seen, project)

    def forward(self, p: Any, tokens: Tensor, project: Project) -> Tensor:
        """Apply the block, and normalise the result if `place` is "after"."""
        new = self.inner.skip_weight(p.inner) * tokens + p.inner.gamma * self.branch(
            p, tokens, project
        )
        return self._normalised(new) if self.place == "after" else new

    def root(self, p: Any, factor: M, numbers: Numbers, width: int) -> M | list[M]:
        """Return the inner block's root, of a factor with unit rows if `place` is "before"."""
        seen = unit_rows(factor) if self.place == "before" else factor
        return self.inner.root(p.inner, seen, numbers, width)

    def step(self, p: Any, state: State, numbers: Numbers, width: int) -> State:
        """Take the inner block's step; post-norm divides all groups by their joint lengths."""
        weight = self.inner.skip_weight(p.inner)
        root = self.root(p, total_factor(state), numbers, width)
        new = residual_step(state, root, weight, p.inner.gamma, width, numbers)
        if self.place == "before":
            return new
        return unit_groups(new)

    def _normalised(self, tokens: Tensor) -> Tensor:
        if self.norm == "layer":
            tokens = tokens - tokens.mean(-1, keepdim=True)
        return unit_rows(tokens) * tokens.shape[-1] ** 0.5
