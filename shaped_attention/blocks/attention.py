"""Shaped attention: softmax centred at the identity, with temperature tau_0 sqrt(n n_k).

    X' = lambda X + gamma A X W_V / sqrt n,        A_ab = delta_ab + softmax(Y / tau)_ab - w_ab,
    Y = Q K^T,    Q = X W_Q / sqrt n + 1 b_Q^T,    K = X W_K / sqrt n + 1 b_K^T,

with tau = tau_0 sqrt(n n_k), where w_ab = 1 / m_a if token a may see token b and 0 otherwise (m_a
counts what it sees; without a mask w = 1/m). With H heads the n columns of the branch fall into H
groups of n / H, each with its own A; with an output projection they are mixed by W_O / sqrt n. See
Noci et al., "The Shaped Transformer" (arXiv 2306.17759). The limit follows from
A = I + A_1 / sqrt n + A_2 / n + ... with G_ab Gaussian, E[G_ab G_cd] = (V_ac + sigma_Q^2) V_bd (the
biases of the keys cancel in the softmax):

    A_1 = w o (G - rowmean G) / tau_0,    E A_2 = w o (s - rowmean s) q / (2 tau_0^2),

the row means taken with the weights w, q = diag V + sigma_Q^2 and s_ab = V_bb - 2 (w V)_ab. The
heads' fluctuations average out: H heads divide the covariance of the scores' noise by H.

Without an output projection V does not suffice for the next layer at finite width: the state of the
chain is the Grams V_h of the H groups of columns, V = (1/H) sum V_h. Given them the branch of group
h has n / H independent columns N(0, A_h V A_h^T), and the skip connection keeps X_h, so that

    V_h' = Gram of (lambda X_h + gamma Z_h),

a function of V_h and A_h V A_h^T alone in law (`Block.grouped_chain_step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.attention_limit import (
    drift_shape,
    first_order_square,
    scores_diffusion,
    second_order,
)
from shaped_attention.blocks.base import Block, Project, Tiles, plain_fields
from shaped_attention.blocks.coupling import wishart_noise
from shaped_attention.blocks.mask import checked_mask, uniform_weights
from shaped_attention.checks import (
    check_count,
    check_finite,
    check_fraction,
    check_positive,
    check_width,
)
from shaped_attention.draws import Draws
from shaped_attention.factors import lower_factor
from shaped_attention.kernels.attention import attention_chain, attention_sde

_LARGEST_TAU0 = 1e100


@dataclass(frozen=True)
class ShapedAttention(Block):
    """Shaped attention, with heads, masks and biases; and without what shapes it.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1]; the skip connection has sqrt(1 - gamma^2).
    tau0
        Temperature, positive: the logits are divided by tau0 sqrt(n n_k).
    heads
        Number H of heads; the width is divisible by it and, without an output projection, at least
        H times the number of tokens.
    mask
        None (every token sees all), "causal" (token a sees 0..a), or a boolean (m, m) array,
        `mask[a, b]` true where a sees b, with no empty row. A row is centred on what it sees.
    output_projection
        Whether the heads are mixed by a further matrix W_O (n, n) / sqrt n.
    key_size
        n_k, the number of columns of W_Q and W_K of a head; None for n / H.
    query_bias, key_bias
        Variances of the entries of b_Q and b_K, which are Gaussian; 0 for no bias.
    identity, centring, scaled_temperature
        The three modifications of softmax attention. Without one of them (I is not added; w is not
        subtracted; tau is tau_0 sqrt(n_k)) there are networks and their chain, but no limit.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    gamma: float
    tau0: float = 1.0
    heads: int = 1
    mask: Any = None
    output_projection: bool = False
    key_size: int | None = None
    query_bias: float = 0.0
    key_bias: float = 0.0
    identity: bool = True
    centring: bool = True
    scaled_temperature: bool = True

    def __post_init__(self) -> None:
        plain_fields(self)
        check_fraction("gamma", self.gamma)
        check_positive("tau0", self.tau0)
        if not 1.0 / _LARGEST_TAU0 <= self.tau0 <= _LARGEST_TAU0:
            raise ValueError(
                f"tau0={self.tau0!r}: a number from {1.0 / _LARGEST_TAU0:g} to {_LARGEST_TAU0:g} "
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
    def has_flow(self) -> bool:  # type: ignore[override]
        """A mask or a bias makes the drift's quadratic part raise the rank of V."""
        return self.mask is not None or self.query_bias > 0.0

    @property
    def linear_rate(self) -> float:
        """``gamma^2 (2 - gamma^2)``, or ``2 gamma^2`` with an output projection."""
        g2 = self.gamma**2
        return 2.0 * g2 if self.output_projection else g2 * (2.0 - g2)

    @property
    def groups(self) -> int:
        """The heads, unless they are mixed."""
        return 1 if self.output_projection else self.heads

    @property
    def no_limit(self) -> str:
        """What is missing of the three modifications."""
        if not self.identity:
            return "without the identity a layer changes V by order 1, not 1/n (identity=False)"
        if not self.centring:
            return "without centring a layer changes V by order 1, not 1/n (centring=False)"
        if not self.scaled_temperature:
            return (
                "at temperature tau_0 sqrt(n_k) softmax(Y / tau) is random of order 1 "
                "(scaled_temperature=False)"
            )
        return ""

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if the mask has another number of tokens, or the heads do not fit."""
        if isinstance(self.mask, tuple) and len(self.mask) != tokens:
            raise ValueError(
                f"mask has shape {(len(self.mask),) * 2}; {tokens} tokens need ({tokens}, {tokens})"
            )
        if width is not None and width % self.heads:
            raise ValueError(f"width={width}: a multiple of heads={self.heads} is needed")
        if width is not None and self.groups > 1 and width < self.heads * tokens:
            raise ValueError(
                f"width={width}: at least heads * tokens = {self.heads * tokens} is needed without "
                "an output projection"
            )

    def weights(self, tokens: int) -> Float[Tensor, "m m"]:
        """The centre w: 1 / m_a where token a sees token b, 0 elsewhere."""
        return uniform_weights(self.mask, tokens)

    def _centre(self, like: Float[Tensor, "*B m c"]) -> Float[Tensor, "m m"]:
        return self.weights(like.shape[-2]).to(like)

    def mix(self, logits: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """``softmax(logits) - w``: A without its identity."""
        w = self._centre(logits)
        seen = torch.softmax(logits.masked_fill(w == 0.0, -torch.inf), dim=-1)
        return seen - w if self.centring else seen

    def _attend(
        self, logits: Float[Tensor, "*B m m"], values: Float[Tensor, "*B m c"]
    ) -> Float[Tensor, "*B m c"]:
        """A times the values."""
        mixed = self.mix(logits) @ values
        return values + mixed if self.identity else mixed

    def _keys(self, width: int) -> int:
        return self.key_size or max(width // self.heads, 1)

    def _temperature(self, width: int) -> float:
        return self.tau0 * math.sqrt(self._keys(width) * (width if self.scaled_temperature else 1))

    def branch(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """The heads side by side; W_Q, (b_Q,) W_K, (b_K,) W_V of each head, then W_O."""
        n = tokens.shape[-1]
        keys, root, tau = self._keys(n), math.sqrt(n), self._temperature(n)
        heads = []
        for _ in range(self.heads):
            queries = _biased(project(tokens, keys) / root, self.query_bias, project)
            logits = queries @ _biased(project(tokens, keys) / root, self.key_bias, project).mT
            heads.append(self._attend(logits / tau, project(tokens, n // self.heads) / root))
        branch = torch.cat(heads, dim=-1) if self.heads > 1 else heads[0]
        return project(branch, n) / root if self.output_projection else branch

    def branch_factor(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B *heads m c"]:
        """A_h F of each head, with Y = F_Q (B K^T) F_K^T, B B^T ~ Wishart(n_k), K Gaussian.

        F_Q = (F, sigma_Q 1) with a bias, and F_K likewise: homogeneous coordinates. With an output
        projection the columns have the covariance (1/n) sum_h A_h F W_h F^T A_h^T with independent
        W_h ~ Wishart_m(n / H).
        """
        m = factor.shape[-1]
        keys, tau = self._keys(width), self._temperature(width)
        query_factor = _extended(factor, self.query_bias)
        key_factor = _extended(factor, self.key_bias)
        roots = []
        for _ in range(self.heads):
            query = draws.wishart_factor(query_factor.shape[-1], keys)
            key = draws.normal(key_factor.shape[-1], query.shape[-1])
            logits = query_factor @ query @ key.mT @ key_factor.mT / tau
            root = self._attend(logits, factor)
            if self.output_projection:
                values = draws.wishart_factor(m, width // self.heads)
                root = root @ values / math.sqrt(width)
            roots.append(root)
        if self.heads == 1:
            return roots[0]
        if self.output_projection:
            root = torch.cat(roots, dim=-1)
            return lower_factor(root) if root.shape[-1] > m else root
        return torch.stack(roots, dim=1)

    def drift(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """``(gamma / tau_0)^2 [ T o (V + sigma_Q^2 11^T) + E A_2 V + V E A_2^T ]``."""
        cubic = drift_shape(v, self._centre(v), self.query_bias)
        return (self.gamma / self.tau0) ** 2 * cubic

    def extra_diffusion(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"]:
        """``gamma^4 / (H tau_0^2)`` times `scores_diffusion`."""
        total = scores_diffusion(v, self._centre(v), self.query_bias)
        return self.gamma**4 / (self.heads * self.tau0**2) * total

    def noise_size(self, tokens: int) -> int:
        """The noise of the scores: m^2, or m (m + 1) with a query bias."""
        return tokens * (tokens + 1) if self.query_bias > 0.0 else tokens**2

    @property
    def _drift_left(self) -> float:
        """The part of T o V that the noise of the factor does not bring: 1 - gamma^2 / H."""
        return 1.0 - self.gamma**2 / self.heads

    def factor_drift(self, factor: Float[Tensor, "B m m"]) -> Float[Tensor, "B m m"]:
        """``(gamma/tau_0)^2 [ (1 - gamma^2/H) T / 2 + E A_2 ] F``; T only if it is no `flow`."""
        v = factor @ factor.mT
        w = self._centre(v)
        drift = second_order(v, w, self.query_bias) @ factor
        if not self.has_flow:
            square = first_order_square(v, w)[..., :1, :1]
            drift = drift + 0.5 * self._drift_left * square * factor
        return (self.gamma / self.tau0) ** 2 * drift

    def factor_noise(
        self, factor: Float[Tensor, "B m m"], increments: Float[Tensor, "B k"]
    ) -> Float[Tensor, "B m m"]:
        """``gamma^2 A_1 F / sqrt H`` with G = (F, sigma_Q 1) dZ F^T."""
        m = factor.shape[-1]
        w = self._centre(factor)
        scores = _extended(factor, self.query_bias) @ increments.unflatten(-1, (-1, m)) @ factor.mT
        first = w * (scores - (w * scores).sum(-1, keepdim=True))
        return self.gamma**2 / (self.tau0 * math.sqrt(self.heads)) * first @ factor

    def flow(self, v: Float[Tensor, "B m m"], step: float) -> Float[Tensor, "B m m"]:
        """``V + step (gamma/tau_0)^2 (1 - gamma^2/H) T o (V + sigma_Q^2 11^T)``.

        T is a Gram matrix, so this is positive semidefinite too.
        """
        rate = step * (self.gamma / self.tau0) ** 2 * self._drift_left
        return v + rate * first_order_square(v, self._centre(v)) * (v + self.query_bias)

    def no_coupling(self, tokens: int, width: int) -> str:
        """What Bartlett's factors, which are coupled, need of the degrees of freedom."""
        if self.key_size is not None:
            return (
                f"with key_size={self.key_size} at all widths the scores of a layer are not "
                "Gaussian; None is needed"
            )
        least = tokens + 2 + (self.query_bias > 0.0)
        if self._keys(width) < least:
            return f"at width {width} its keys have size {self._keys(width)}, below {least}"
        if self.output_projection and width // self.heads < tokens + 2:
            return f"at width {width} its heads have size {width // self.heads}, below {tokens + 2}"
        return ""

    def coupled_noise(
        self, numbers: list[Tensor], width: int
    ) -> tuple[Tensor | float, Float[Tensor, "B k"]]:
        """dZ_2 = K^T of the heads' scores; W of W_O; both summed over heads and over sqrt H.

        The columns of K that a key bias adds cancel in the softmax.
        """
        each = 3 if self.output_projection else 2
        root = math.sqrt(self.heads)
        keys = torch.stack(numbers[1::each]).sum(0) / root
        m = keys.shape[-1] - (self.query_bias > 0.0)
        increments = keys[:, :m].mT.flatten(1)
        if not self.output_projection:
            return 0.0, increments
        mixed = [wishart_noise(x, width // self.heads) for x in numbers[2::each]]
        return self.gamma**2 / root * torch.stack(mixed).sum(0), increments

    def compiled_chain(self, tokens: int, width: int) -> bool:
        """One head without biases, shaped; not with an output projection below width m + 2."""
        plain = self.heads == 1 and self.query_bias == self.key_bias == 0.0 and not self.no_limit
        return plain and (not self.output_projection or width >= tokens + 2)

    def compiled_sde(self, tokens: int) -> bool:
        """Without a mask or a query bias."""
        return not self.has_flow

    def chain_tiles(
        self,
        F: Tiles,
        alive: Tiles,
        width: int,
        key: NDArray[np.uint64],
        first: int,
        step: int,
        slot: int,
    ) -> None:
        """Compiled `chain_step`."""
        m = F.shape[1]
        keys = self._keys(width)
        logit_scale = 1.0 / self._temperature(width)
        w = self.weights(m).numpy()
        projection = bool(self.output_projection)
        attention_chain(
            F, alive, width, keys, self.gamma, logit_scale, w, projection, key, first, step, slot
        )

    def sde_tiles(
        self, F: Tiles, increments: Tiles, row: int, multiplier: Tiles, drift: Tiles, step: float
    ) -> None:
        """Compiled `factor_drift` and `factor_noise`, without a mask."""
        attention_sde(
            F, increments, row, multiplier, drift, self.gamma, self.tau0, float(self.heads), step
        )


def _extended(factor: Float[Tensor, "B m m"], variance: float) -> Float[Tensor, "B m c"]:
    """(F, sigma 1): a root of V + sigma^2 11^T; F itself without a bias."""
    if variance == 0.0:
        return factor
    ones = torch.full_like(factor[..., :1], math.sqrt(variance))
    return torch.cat([factor, ones], dim=-1)


def _biased(
    x: Float[Tensor, "*B m k"], variance: float, project: Project
) -> Float[Tensor, "*B m k"]:
    """x plus one row of independent N(0, variance) entries, the same for every token."""
    if variance == 0.0:
        return x
    one = torch.full_like(x[..., :1, :1], math.sqrt(variance))
    return x + project(one, x.shape[-1])
