"""Normalised residual blocks: the baselines of common practice, which have no limit here.

    before:  X' = lambda X + gamma f(N(X)),        after:  X' = N(lambda X + gamma f(X)),

where f is the branch of another block and N divides a token by the root mean square of its n
features ("rms"), or subtracts their mean first ("layer"; Ba et al., arXiv 1607.06450, without its
trainable gain and bias). The first is the "Pre-LN" of Xiong et al. (arXiv 2002.04745), the second
the "Post-LN" of Vaswani et al. (arXiv 1706.03762).

With "rms" N(X) has the covariance D V D, D = diag(V)^(-1/2), so that the law of V' given V is that
of a block on D F. With "layer" it depends on the means of the tokens too, and V alone does not
suffice: such networks have no chain here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.base import Block, Project
from shaped_attention.blocks.branch import total_factor
from shaped_attention.draws import Draws

PLACES = ("before", "after")
NORMS = ("rms", "layer")


@dataclass(frozen=True)
class Normalised(Block):
    """A block whose tokens are normalised before its branch or after the sum.

    Parameters
    ----------
    inner
        The block; not a normalised one itself.
    place
        "before" (Pre-LN: the branch sees normalised tokens) or "after" (Post-LN: the result is
        normalised).
    norm
        "rms" or "layer". A token that is zero stays zero.

    Raises
    ------
    ValueError
        If an argument is another one.
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
    def gamma(self) -> float:  # type: ignore[override]
        """The weight of the block's branch."""
        return self.inner.gamma

    @property
    def linear_rate(self) -> float:
        """The block's; it has no meaning without a limit."""
        return self.inner.linear_rate

    @property
    def groups(self) -> int:
        """The block's."""
        return self.inner.groups

    @property
    def no_limit(self) -> str:
        """Why there is none."""
        if self.place == "before":
            return (
                "its branch has variance 1 whatever that of the tokens is, so that a layer changes "
                "V by order 1, not 1/n, unless V_aa = 1"
            )
        return "normalising every layer is not a step of order 1/n; no limit of V is derived for it"

    @property
    def no_chain(self) -> str:
        """LayerNorm sees more of the tokens than their covariance."""
        if self.norm == "rms":
            return ""
        return "LayerNorm depends on the means of the tokens over their features, not on V alone"

    def check(self, tokens: int, width: int | None) -> None:
        """As the block's."""
        self.inner.check(tokens, width)

    def drift(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """There is none: see `no_limit`, which is asked before."""
        raise ValueError(f"{self!r} has no limit: {self.no_limit}")

    def branch(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """The block's branch, of normalised tokens if they are normalised before."""
        seen = self._normalised(tokens) if self.place == "before" else tokens
        return self.inner.branch(seen, project)

    def forward(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """Apply the block, and normalise if that comes after."""
        new = super().forward(tokens, project)
        return self._normalised(new) if self.place == "after" else new

    def branch_factor(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B *heads m c"]:
        """The block's, of the factor with normalised rows if that comes before."""
        seen = factor / _lengths(factor) if self.place == "before" else factor
        return self.inner.branch_factor(seen, width, draws)

    def chain_step(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B m m"]:
        """The block's step, and rows of length 1 if the normalisation comes after."""
        new = super().chain_step(factor, width, draws)
        return new / _lengths(new) if self.place == "after" else new

    def grouped_chain_step(
        self, factors: Float[Tensor, "B g m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B g m m"]:
        """The same; all groups are divided by the lengths that they have together."""
        new = super().grouped_chain_step(factors, width, draws)
        return new / _lengths(total_factor(new))[:, None] if self.place == "after" else new

    def _normalised(self, tokens: Float[Tensor, "*B m n"]) -> Float[Tensor, "*B m n"]:
        if self.norm == "layer":
            tokens = tokens - tokens.mean(-1, keepdim=True)
        return tokens / (_lengths(tokens) / tokens.shape[-1] ** 0.5)


def _lengths(rows: Float[Tensor, "*B m k"]) -> Float[Tensor, "*B m 1"]:
    """The Euclidean lengths of the rows; 1 for a row that is zero."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return torch.where(length > 0.0, length, 1.0)
