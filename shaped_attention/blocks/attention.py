"""Shaped attention: softmax centred at the identity, with temperature tau_0 sqrt(n n_k).

    X' = lambda X + gamma A X W_V / sqrt n,        A_ab = delta_ab + softmax(Y / tau)_ab - w_ab,
    Y = Q K^T,    Q = X W_Q / sqrt n + 1 b_Q^T,    K = X W_K / sqrt n + 1 b_K^T,

with tau = tau_0 sqrt(n n_k), where w_ab = 1 / m_a if token a may attend to token b and 0 otherwise
(m_a is the number of such b; without a mask w = 1/m). With H heads the n columns of the branch fall
into H groups of n / H, each with its own A; an output projection mixes them by W_O / sqrt n. See
Noci et al., "The Shaped Transformer" (arXiv 2306.17759). The limit follows from
A = I + A_1 / sqrt n + A_2 / n + ... with G_ab Gaussian, E[G_ab G_cd] = (V_ac + sigma_Q^2) V_bd (the
biases of the keys cancel in the softmax):

    A_1 = w o (G - rowmean G) / tau_0,    E A_2 = w o (s - rowmean s) q / (2 tau_0^2),

with row means weighted by w, q = diag V + sigma_Q^2 and s_ab = V_bb - 2 (w V)_ab. The heads'
fluctuations average out: H heads divide the covariance of the scores' noise by H.

Without an output projection V alone does not determine the law of the next layer at finite width:
the state of the chain is the Grams V_h of the H groups of columns, V = (1/H) sum V_h. Given these,
the branch of group h has n / H independent columns N(0, A_h V A_h^T), and the skip connection keeps
X_h, so that

    V_h' = Gram of (lambda X_h + gamma Z_h),

a function of V_h and A_h V A_h^T alone in law (`Block.step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from shaped_attention.blocks.attention_limit import AttentionLimit
from shaped_attention.blocks.base import Block, Limit, Project, plain_fields
from shaped_attention.blocks.coupling import Coupling, Handed, wishart_noise
from shaped_attention.blocks.mask import checked_mask, uniform_weights
from shaped_attention.blocks.parameters import (
    Parameter,
    check_parameter,
    check_weights,
    extremes,
)
from shaped_attention.checks import (
    check_count,
    check_finite,
    check_positive,
    check_width,
)
from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics.primitives import M, Numbers, concatenate, constant, softmax

_LARGEST_TAU0 = 1e100


@dataclass(frozen=True)
class ScoresCoupling(Coupling):
    """Coupling by dZ_2 = K^T and by the W of W_O, both as sums over heads divided by sqrt H."""

    block: ShapedAttention

    def reason_against(self, tokens: int, width: int) -> str:
        """Return why the degrees of freedom do not allow a coupling; empty if they do."""
        block = self.block
        if block.key_size is not None:
            return (
                f"with key_size={block.key_size} at all widths the scores of a layer are not "
                "Gaussian; None is needed"
            )
        least = tokens + 2 + (block.query_bias > 0.0)
        if block.keys(width) < least:
            return f"at width {width} its keys have size {block.keys(width)}, below {least}"
        if block.output_projection and width // block.heads < tokens + 2:
            size = width // block.heads
            return f"at width {width} its heads have size {size}, below {tokens + 2}"
        return ""

    def common(self, p: Any, handed: Handed, width: int) -> Tensor | float:
        """Return the noise of the heads' values that W_O mixes."""
        heads = self.block.heads
        if not self.block.output_projection:
            return 0.0
        mixed = [wishart_noise(handed["values", h], width // heads) for h in range(heads)]
        return p.gamma**2 / math.sqrt(heads) * torch.stack(mixed).sum(0)

    def scores(self, handed: Handed) -> Tensor:
        """Return the keys; the columns that a key bias adds cancel in the softmax."""
        heads = self.block.heads
        keys = torch.stack([handed["keys", h] for h in range(heads)]).sum(0) / math.sqrt(heads)
        m = keys.shape[-1] - (self.block.query_bias > 0.0)
        return keys[:, :m].mT


@dataclass(frozen=True)
class ShapedAttention(Block):
    """Shaped attention with heads, masks and biases, and optionally without its modifications.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1], or >= 0 if `skip` is given, or a `Schedule`.
    tau0
        Temperature, positive, or a `Schedule`: the logits are divided by tau0 sqrt(n n_k).
    heads
        Number H of heads. It must divide the width. Without an output projection the width is at
        least H times the rank of the initial covariance.
    mask
        None (every token attends to all), "causal" (token a attends to 0..a), or a boolean (m, m)
        array with no empty row, `mask[a, b]` true if a attends to b. Each row is centred over the
        tokens that it attends to.
    output_projection
        Whether a further matrix W_O (n, n) / sqrt n mixes the heads.
    key_size
        Number n_k of columns of W_Q and W_K of a head; None for n / H.
    query_bias, key_bias
        Variances of the Gaussian entries of b_Q and b_K; 0 for no bias.
    skip
        Weight of the skip connection; None for sqrt(1 - gamma^2).
    identity, centring, scaled_temperature
        Whether each of the three modifications of softmax attention is on. Without one of them (I
        is not added; w is not subtracted; tau is tau_0 sqrt(n_k)) the networks and their chain
        exist, but the limit does not.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    gamma: Parameter
    tau0: Parameter = 1.0
    heads: int = 1
    mask: Any = None
    output_projection: bool = False
    key_size: int | None = None
    query_bias: float = 0.0
    key_bias: float = 0.0
    identity: bool = True
    centring: bool = True
    scaled_temperature: bool = True
    skip: Parameter | None = None

    fixed = ("query_bias", "key_bias")

    def __post_init__(self) -> None:
        plain_fields(self)
        check_weights(self.gamma, self.skip)
        check_parameter("tau0", self.tau0, check_positive)
        for tau0 in extremes(self.tau0):
            if not 1.0 / _LARGEST_TAU0 <= tau0 <= _LARGEST_TAU0:
                raise ValueError(
                    f"tau0={tau0!r}: a number from {1.0 / _LARGEST_TAU0:g} to {_LARGEST_TAU0:g} "
                    "is needed (beyond, its square overflows)"
                )
        check_count("heads", self.heads)
        if self.key_size is not None:
            check_width("key_size", self.key_size)
        for name in ("output_projection", "identity", "centring", "scaled_temperature"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r}: True or False is needed")
        for name in ("query_bias", "key_bias"):
            value = getattr(self, name)
            check_finite(name, value)
            if not 0.0 <= value <= _LARGEST_TAU0:
                raise ValueError(
                    f"{name}={value!r}: a variance from 0 to {_LARGEST_TAU0:g} is needed"
                )
        object.__setattr__(self, "mask", checked_mask(self.mask))

    @property
    def groups(self) -> int:
        """Number of heads, or 1 if they are mixed."""
        return 1 if self.output_projection else self.heads

    @property
    def coupling(self) -> Coupling:
        """The coupling of the chain to the limit."""
        return ScoresCoupling(self)

    @property
    def limit(self) -> Limit | str:
        """The limit, or the reason why it does not exist: a missing modification."""
        if not self.identity:
            return "without the identity a layer changes V by order 1, not 1/n (identity=False)"
        if not self.centring:
            return "without centring a layer changes V by order 1, not 1/n (centring=False)"
        if not self.scaled_temperature:
            return (
                "at temperature tau_0 sqrt(n_k) softmax(Y / tau) is random of order 1 "
                "(scaled_temperature=False)"
            )
        return AttentionLimit(self.mask, self.heads, self.output_projection, float(self.query_bias))

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if the mask does not fit the tokens, or the heads the width."""
        if isinstance(self.mask, tuple) and len(self.mask) != tokens:
            raise ValueError(
                f"mask has shape {(len(self.mask),) * 2}; {tokens} tokens need ({tokens}, {tokens})"
            )
        if width is not None and width % self.heads:
            raise ValueError(f"width={width}: a multiple of heads={self.heads} is needed")

    def weights(self, tokens: int) -> Float[Tensor, "m m"]:
        """Return the centre w: 1 / m_a where token a attends to token b, 0 elsewhere."""
        return torch.tensor(uniform_weights(self.mask, tokens))

    def mix(self, logits: M) -> M:
        """Return ``softmax(logits) - w``, which is A - I."""
        w = uniform_weights(self.mask, logits.shape[-1])
        seen = softmax(logits, w > 0.0)
        return seen - constant(w, like=logits) if self.centring else seen

    def attend(self, logits: M, values: M) -> M:
        """Return A times the values."""
        mixed = self.mix(logits) @ values
        return values + mixed if self.identity else mixed

    def keys(self, width: int) -> int:
        """Return n_k."""
        return self.key_size if self.key_size is not None else width // self.heads

    def temperature(self, p: Any, width: int) -> Any:
        """Return tau, by which the logits are divided."""
        return p.tau0 * math.sqrt((width if self.scaled_temperature else 1) * self.keys(width))

    def branch(
        self, p: Any, tokens: Float[Tensor, "*B m n"], project: Project
    ) -> Float[Tensor, "*B m n"]:
        """Return the branch; the weights are W_Q, b_Q, W_K, b_K, W_V head by head, then W_O."""
        n = tokens.shape[-1]
        keys, tau, root = self.keys(n), self.temperature(p, n), math.sqrt(n)
        heads = []
        for _ in range(self.heads):
            queries = _biased(project(tokens, keys) / root, self.query_bias, project)
            key = _biased(project(tokens, keys) / root, self.key_bias, project)
            logits = queries @ key.mT
            heads.append(self.attend(logits / tau, project(tokens, n // self.heads) / root))
        branch = torch.cat(heads, dim=-1) if self.heads > 1 else heads[0]
        return project(branch, n) / root if self.output_projection else branch

    def root(self, p: Any, factor: M, numbers: Numbers, width: int) -> M | list[M]:
        """Return A_h F of each head, with Y = F_Q (B K^T) F_K^T, B B^T ~ Wishart(n_k), K Gaussian.

        With a bias F_Q = (F, sigma_Q 1), in homogeneous coordinates, and likewise F_K. With an
        output projection the columns have the covariance (1/n) sum_h A_h F W_h F^T A_h^T with
        independent W_h ~ Wishart(n / H).
        """
        keys, tau = self.keys(width), self.temperature(p, width)
        query_factor = extended(factor, self.query_bias)
        key_factor = extended(factor, self.key_bias)
        roots = []
        for h in range(self.heads):
            query = numbers.wishart("queries", query_factor.shape[-1], keys, h)
            key = numbers.normal("keys", key_factor.shape[-1], query.shape[-1], h)
            logits = (query_factor @ (query @ key.mT)) @ key_factor.mT / tau
            root = self.attend(logits, factor)
            if self.output_projection:
                size = width // self.heads
                root = root @ numbers.wishart("values", factor.shape[-1], size, h)
                root = root / math.sqrt(width)
            roots.append(root)
        if self.output_projection:
            return concatenate(roots)
        return roots if self.heads > 1 else roots[0]


def extended(factor: M, variance: float) -> M:
    """Return (F, sigma 1), a root of V + sigma^2 11^T, or F itself without a bias."""
    if variance == 0.0:
        return factor
    ones = torch.full((factor.shape[-2], 1), math.sqrt(variance), dtype=torch.float64)
    return concatenate([factor, constant(ones.numpy(), like=factor)])


def _biased(
    x: Float[Tensor, "*B m k"], variance: float, project: Project
) -> Float[Tensor, "*B m k"]:
    """Add one row of independent N(0, variance) entries to every token."""
    if variance == 0.0:
        return x
    one = torch.full_like(x[..., :1, :1], math.sqrt(variance))
    return x + project(one, x.shape[-1])
