"""Shaped attention: softmax centred at the identity, with temperature tau_0 sqrt(n n_k).

    X' = lambda X + gamma A X W_V / sqrt n,        A_ab = delta_ab + softmax(Y / tau)_ab - w_ab,
    Y = X (W_Q / sqrt n) (W_K / sqrt n)^T X^T,     tau = tau_0 sqrt(n n_k),

where w_ab = 1 / m_a if token a may see token b and 0 otherwise (m_a counts what it sees; without a
mask w = 1/m). See Noci et al., "The Shaped Transformer" (arXiv 2306.17759). The limit follows from
A = I + A_1 / sqrt n + A_2 / n + ... with G_ab Gaussian, E[G_ab G_cd] = V_ac V_bd:

    A_1 = w o (G - rowmean G) / tau_0,    E A_2 = w o (s - rowmean s) q / (2 tau_0^2),

the row means taken with the weights w, q = diag V and s_ab = V_bb - 2 (w V)_ab.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.base import Block, Project, Tiles, plain_fields, symmetric
from shaped_attention.blocks.branch import gaussian_branch
from shaped_attention.checks import check_count, check_fraction, check_positive, check_width
from shaped_attention.draws import Draws
from shaped_attention.kernels.attention import attention_chain, attention_sde

_LARGEST_TAU0 = 1e100


@dataclass(frozen=True)
class ShapedAttention(Block):
    """Single-head shaped attention.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1]; the skip connection has sqrt(1 - gamma^2).
    tau0
        Temperature, positive: the logits are divided by tau0 sqrt(n n_k).
    heads
        Number of heads; this version has single-head attention, so 1.
    mask
        None (every token sees all), "causal" (token a sees 0..a), or a boolean (m, m) array,
        `mask[a, b]` true where a sees b, with no empty row. A row is centred on what it sees.
    output_projection
        Whether the values are multiplied by a further matrix W_O (n, n) / sqrt n.
    key_size
        n_k, the number of columns of W_Q and W_K; None for the width n.

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
        if self.heads != 1:
            raise ValueError(f"heads={self.heads!r}: this version has single-head attention only")
        if self.key_size is not None:
            check_width("key_size", self.key_size)
        if not isinstance(self.output_projection, bool):
            raise ValueError(
                f"output_projection={self.output_projection!r}: True or False is needed"
            )
        if self.mask is not None and not (isinstance(self.mask, str) and self.mask == "causal"):
            object.__setattr__(self, "mask", _checked_mask(self.mask))

    @property
    def has_flow(self) -> bool:  # type: ignore[override]
        """A mask makes the drift's quadratic part raise the rank of V."""
        return self.mask is not None

    @property
    def linear_rate(self) -> float:
        """``gamma^2 (2 - gamma^2)``, or ``2 gamma^2`` with an output projection."""
        g2 = self.gamma**2
        return 2.0 * g2 if self.output_projection else g2 * (2.0 - g2)

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if a mask array has another number of tokens."""
        if isinstance(self.mask, tuple) and len(self.mask) != tokens:
            raise ValueError(
                f"mask has shape {(len(self.mask),) * 2}; {tokens} tokens need ({tokens}, {tokens})"
            )

    def weights(self, tokens: int) -> Float[Tensor, "m m"]:
        """The centre w: 1 / m_a where token a sees token b, 0 elsewhere."""
        return _weights(self.mask, tokens)

    def mix(self, logits: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """``softmax(logits) - w``: A without its identity."""
        w = self.weights(logits.shape[-1]).to(logits)
        return torch.softmax(logits.masked_fill(w == 0.0, -torch.inf), dim=-1) - w

    def forward(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """Apply the block with weights W_Q, W_K, W_V (and W_O) drawn in this order."""
        n = tokens.shape[-1]
        keys = self.key_size or n
        root = math.sqrt(n)
        queries = project(tokens, keys) / root
        logits = queries @ (project(tokens, keys) / root).mT / (self.tau0 * math.sqrt(n * keys))
        values = project(tokens, n) / root
        branch = values + self.mix(logits) @ values
        if self.output_projection:
            branch = project(branch, n) / root
        return math.sqrt(1.0 - self.gamma**2) * tokens + self.gamma * branch

    def chain_step(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B m m"]:
        """One exact step: Y = F (B K^T) F^T with B B^T ~ Wishart_m(n_k), K Gaussian."""
        m = factor.shape[-1]
        keys = self.key_size or width
        query = draws.wishart_factor(m, keys)
        key = draws.normal(m, query.shape[-1])
        logits = factor @ query @ key.mT @ factor.mT / (self.tau0 * math.sqrt(width * keys))
        branch = factor + self.mix(logits) @ factor
        if self.output_projection:
            branch = branch @ draws.wishart_factor(m, width) / math.sqrt(width)
        return gaussian_branch(factor, branch, self.gamma, width, draws)

    def _second_order(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """``tau_0^2 E[A_2]``."""
        w = self.weights(v.shape[-1]).to(v)
        q = v.diagonal(dim1=-2, dim2=-1)
        s = q[..., None, :] - 2.0 * w @ v
        return 0.5 * q[..., :, None] * w * (s - (w * s).sum(-1, keepdim=True))

    def _first_order_square(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """T with ``tau_0^2 E[A_1 V A_1^T] = T o V``.

        ``T_ac = tr(C_a V C_c V)`` with ``C_a = diag w_a - w_a w_a^T``.

        Without a mask T_ac = |C V C|_F^2 / m^2 for all a, c.
        """
        w = self.weights(v.shape[-1]).to(v)
        mean = w @ v
        cross = mean**2 @ w.mT
        return w @ v**2 @ w.mT - cross - cross.mT + (mean @ w.mT) ** 2

    def drift(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """``(gamma / tau_0)^2 [ T o V + E A_2 V + V E A_2^T ]``, cubic in V."""
        cubic = self._first_order_square(v) * v + symmetric(self._second_order(v) @ v)
        return (self.gamma / self.tau0) ** 2 * cubic

    def extra_diffusion(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"]:
        """``gamma^4 / tau_0^2`` times the sum of V_ac R^{ac}_bd over the four ways to pair.

        R^{ac} = V C_a V C_c V; without a mask R = V C V C V / m^2 for all a, c.
        """
        w = self.weights(v.shape[-1]).to(v)
        centred = torch.diag_embed(w) - w[:, :, None] * w[:, None, :]
        vc = torch.einsum("...ij,ajk->...aik", v, centred)
        r = torch.einsum("...abi,...ij,...cdj->...acbd", vc, v, vc)
        total = torch.einsum("...ac,...acbd->...abcd", v, r)
        total = total + torch.einsum("...bd,...bdac->...abcd", v, r)
        total = total + torch.einsum("...ad,...adbc->...abcd", v, r)
        total = total + torch.einsum("...bc,...bcad->...abcd", v, r)
        return self.gamma**4 / self.tau0**2 * total

    def noise_size(self, tokens: int) -> int:
        """m^2: the noise of the scores."""
        return tokens**2

    def factor_drift(self, factor: Float[Tensor, "B m m"]) -> Float[Tensor, "B m m"]:
        """``(gamma / tau_0)^2 [ (1 - gamma^2) T / 2 + E A_2 ] F``; T only without a mask."""
        v = factor @ factor.mT
        drift = self._second_order(v) @ factor
        if self.mask is None:
            square = self._first_order_square(v)[..., :1, :1]
            drift = drift + 0.5 * (1.0 - self.gamma**2) * square * factor
        return (self.gamma / self.tau0) ** 2 * drift

    def factor_noise(
        self, factor: Float[Tensor, "B m m"], increments: Float[Tensor, "B k"]
    ) -> Float[Tensor, "B m m"]:
        """``gamma^2 A_1 F`` with G = F dZ F^T."""
        m = factor.shape[-1]
        w = self.weights(m).to(factor)
        scores = factor @ increments.unflatten(-1, (m, m)) @ factor.mT
        first = w * (scores - (w * scores).sum(-1, keepdim=True))
        return self.gamma**2 / self.tau0 * first @ factor

    def flow(self, v: Float[Tensor, "B m m"], step: float) -> Float[Tensor, "B m m"]:
        """``V + step (gamma / tau_0)^2 (1 - gamma^2) T o V``; T is a Gram matrix: this is too."""
        rate = (self.gamma / self.tau0) ** 2 * (1.0 - self.gamma**2)
        return v * (1.0 + step * rate * self._first_order_square(v))

    def compiled_chain(self, tokens: int, width: int) -> bool:
        """Except for an output projection at a width below m + 2."""
        return not self.output_projection or width >= tokens + 2

    def compiled_sde(self, tokens: int) -> bool:
        """Without a mask."""
        return self.mask is None

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
        keys = self.key_size or width
        logit_scale = 1.0 / (self.tau0 * math.sqrt(width * keys))
        w = self.weights(m).numpy()
        projection = bool(self.output_projection)
        attention_chain(
            F, alive, width, keys, self.gamma, logit_scale, w, projection, key, first, step, slot
        )

    def sde_tiles(
        self, F: Tiles, increments: Tiles, row: int, multiplier: Tiles, drift: Tiles, step: float
    ) -> None:
        """Compiled `factor_drift` and `factor_noise`, without a mask."""
        attention_sde(F, increments, row, multiplier, drift, self.gamma, self.tau0, step)


@lru_cache(maxsize=64)
def _weights(mask: str | tuple[tuple[bool, ...], ...] | None, tokens: int) -> Tensor:
    """`ShapedAttention.weights`, made once: the chain asks for them in every layer."""
    if mask is None:
        return torch.full((tokens, tokens), 1.0 / tokens, dtype=torch.float64)
    if isinstance(mask, str):
        seen = torch.ones(tokens, tokens, dtype=torch.float64).tril()
    else:
        seen = torch.tensor(mask, dtype=torch.float64)
    return seen / seen.sum(-1, keepdim=True)


def _checked_mask(mask: Any) -> tuple[tuple[bool, ...], ...]:
    """A boolean (m, m) mask as nested tuples (hashable, comparable, plain data)."""
    needed = "None, 'causal' or a boolean (m, m) array is needed"
    try:
        array = np.asarray(mask)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"mask={mask!r}: {needed}") from None
    if array.ndim == 0:
        raise ValueError(f"mask={mask!r}: {needed}")
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(f"mask has shape {array.shape}; {needed}")
    if array.dtype != np.bool_:
        raise ValueError(f"mask has entries of type {array.dtype}; booleans are needed")
    if not array.any(axis=1).all():
        empty = int(np.argmin(array.any(axis=1)))
        raise ValueError(f"mask has an empty row {empty}; every token must see at least one")
    return tuple(tuple(bool(x) for x in row) for row in array)
