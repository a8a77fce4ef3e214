"""Normalised residual blocks: pre-norm, post-norm, norms of the branch, and sandwich norms.

    before:    X' = lambda X + gamma f(N(X)),      after:   X' = N(lambda X + gamma f(X)),
    sandwich:  X' = lambda X + gamma N(f(N(X))),   branch:  X' = lambda X + gamma N(f(X)),

where f is the branch of another block. With "rms" N divides a token by sqrt(mean square of its n
features + eps) and multiplies it by `gain`; "layer" subtracts the mean first (Ba et al., arXiv
1607.06450). The trainable vectors of gains and biases are not included; the scalar `gain` is.
"before" is pre-norm, the "Pre-LN" of Xiong et al. (arXiv 2002.04745), "after" post-norm, the
"Post-LN" of Vaswani et al. (arXiv 1706.03762), "sandwich" has the two norms of a branch of Gemma 2
and 3, and "branch" the one norm of a branch of OLMo 2.

With "layer" the state of the chain also has the means of the tokens, h = X 1 / n, as a column
(`State.means`): V = F F^T + h h^T, where F belongs to the part of X orthogonal to 1. With groups of
columns every group has its own h_g. A block without LayerNorm in the same layer acts on [h, F].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block, Project, Tokens
from shaped_attention.blocks.normalised_limit import NormalisedLimit, SandwichLimit
from shaped_attention.blocks.parameters import Parameter, Parameters, check_parameter, plain_fields
from shaped_attention.blocks.reasons import limit_reason
from shaped_attention.checks import argument_error, check_choice, check_finite, check_nonnegative
from shaped_attention.numerics.primitives import by_mean_square

PLACES = ("before", "after", "sandwich", "branch")
NORMS = ("rms", "layer")


@dataclass(frozen=True)
class Normalised(Block):
    """A block with a norm before its branch, after the sum, or at the output of its branch.

    Parameters
    ----------
    inner
        Block to normalise; not itself a `Normalised` block.
    place
        "before" (pre-norm: the branch acts on normalised tokens), "after" (post-norm: the result is
        normalised), "branch" (the output of the branch is normalised before it is added) or
        "sandwich" (both the tokens that the branch sees and its output are).
    norm
        "rms" or "layer". A zero token remains zero.
    eps
        Number >= 0 that is added to the mean square, or to the variance, under the root.
    gain
        Factor by which all normalised tokens are multiplied, or a `Schedule`.
    branch_eps
        The same as `eps`, for the norm at the output of the branch ("branch", "sandwich"); None for
        `eps`. It is added to the mean square of the branch without the weight gamma of the block,
        which does not enter the norm.

    Raises
    ------
    ValueError
        If an argument is invalid.
    """

    inner: Block
    place: str = "before"
    norm: str = "rms"
    eps: float = 0.0
    gain: Parameter = 1.0
    branch_eps: float | None = None

    fixed = ("eps", "branch_eps")

    def __post_init__(self) -> None:
        plain_fields(self)
        if not isinstance(self.inner, Block) or isinstance(self.inner, Normalised):
            raise argument_error("inner", "a single block that is not normalised", self.inner)
        check_choice("place", self.place, PLACES)
        check_choice("norm", self.norm, NORMS)
        if self.place in ("sandwich", "branch") and hasattr(self.inner, "blocks"):
            requirement = "'before' or 'after' for parallel branches, whose sum has no weight"
            raise argument_error("place", requirement, self.place)
        check_nonnegative("eps", self.eps)
        if self.branch_eps is not None:
            check_nonnegative("branch_eps", self.branch_eps)
            if not self._adds_normalised:
                requirement = f"None if place={self.place!r}, which does not normalise the branch"
                raise argument_error("branch_eps", requirement, self.branch_eps)
        check_parameter("gain", self.gain, check_finite)

    @property
    def gamma(self) -> Parameter:
        """The weight of the block's branch."""
        return self.inner.gamma

    @property
    def branch_gain(self) -> Parameter:
        """The gain of the norm at the output of the branch."""
        return self.gain

    @property
    def limit(self) -> SandwichLimit | str:
        """The limit of the correlations, or the reason why it does not exist."""
        if isinstance(self.inner.limit, str):
            return f"its inner block has none: {self.inner.limit}"
        if self.place != "after" and (reason := limit_reason(self.inner)):
            return reason
        for name, usual in (("eps", 0.0), ("branch_eps", 0.0), ("gain", 1.0)):
            value = getattr(self, name)
            if value not in (None, usual):
                return f"with {name}={value!r} its variances do not tend to 1"
        kind = NormalisedLimit if self.place in ("before", "after") else SandwichLimit
        return kind(self.inner, self.place)

    @property
    def means(self) -> bool:
        """Whether the state needs the means of the tokens, which LayerNorm subtracts."""
        return self.norm == "layer" or self.inner.means

    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the inner block's branch, with the norms before and after it."""
        result = self.inner.applied(p.inner, self._seen(p, tokens), project)
        eps = self.eps if self.branch_eps is None else self.branch_eps
        return p.branch_gain * normed(result, self.norm, eps) if self._adds_normalised else result

    def forward(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Apply the block, and normalise the result if `place` is "after"."""
        new = self.inner.skip_weight(p.inner) * tokens + p.inner.gamma * self.branch(
            p, tokens, project
        )
        return p.gain * normed(new, self.norm, self.eps) if self.place == "after" else new

    def attention_weights(
        self, p: Parameters, tokens: Tokens, project: Project, logits: bool = False
    ) -> Iterable[tuple[int, Any]]:
        """Yield the inner block's weights."""
        return self.inner.attention_weights(p.inner, self._seen(p, tokens), project, logits)

    def _seen(self, p: Parameters, tokens: Tokens) -> Tokens:
        before = self.place in ("before", "sandwich")
        return p.gain * normed(tokens, self.norm, self.eps) if before else tokens

    @property
    def _adds_normalised(self) -> bool:
        return self.place in ("branch", "sandwich")


def normed(tokens: Tokens, norm: str, eps: float) -> Tokens:
    """Divide tokens by the root of the mean square of their entries, centred first by "layer"."""
    if norm == "layer":
        tokens = tokens - tokens.mean(-1, keepdim=True)
    return by_mean_square(tokens, eps)
