"""Self-attention as a flow of tokens on the sphere: its weights, attraction or repulsion.

    dx_i/dt = P_{x_i} ( sum_j w_ij V x_j ),    P_x y = y - <x, y> x,
    SA: w_ij = exp(beta <Q x_i, K x_j>) / Z_i, Z_i the sum over j;   USA: Z_i = number of tokens,

see Geshkovski, Letrouit, Polyanskiy and Rigollet, "A mathematical perspective on transformers"
(arXiv 2312.10794). With causal attention token i sees only j <= i, and USA divides by i.

For Q = K = I and V = +-I the Gram matrix of the tokens evolves by itself. It can be computed from
any tokens with that Gram matrix, such as the rows of a factor with min(N, d) columns. So the cost
does not depend on the dimension d, and the Gram matrix stays positive semidefinite with unit
diagonal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shaped_attention.checks import (
    argument_error,
    check_nonnegative,
    check_range,
    check_width,
    with_types,
)
from shaped_attention.results.plain_arguments import storable
from shaped_attention.sphere.random_values import noise_bracket, noise_drift
from shaped_attention.sphere.starts import check_start

_LARGEST_BETA = 300.0
"""exp(2 beta) does not overflow up to this beta."""


def check_beta(beta: float) -> None:
    """Raise ValueError unless `beta` is finite and small enough for its exponential."""
    check_range("beta", beta, -_LARGEST_BETA, _LARGEST_BETA)


def tangential(
    moved: Float[Tensor, "*B N r"], tokens: Float[Tensor, "*B N r"]
) -> Float[Tensor, "*B N r"]:
    """Return the projections of vectors onto the tangent spaces of the sphere at unit tokens."""
    return moved - (moved * tokens).sum(-1, keepdim=True) * tokens


class Attention(ABC):
    """What flows and networks on the sphere need from an attention: `moved`, and checks."""

    beta: float
    normalised: bool
    repulsion: bool = False
    causal: bool

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @abstractmethod
    def moved(
        self,
        tokens: Float[Tensor, "B N r"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B N r"]:
        """Return the attention of tokens of any norm, before the projection.

        `time` is that of each sample (None: 0), and `which` their indices, for matrices that differ
        between samples (None: all).
        """

    def field(self, tokens: Float[Tensor, "*B N r"]) -> Float[Tensor, "*B N r"]:
        """Return dx/dt of tokens on the unit sphere at time 0: the projection of `moved`."""
        return tangential(self.moved(tokens), tokens)

    def check_start(self, start: Float[Tensor, "samples N r"]) -> None:
        """Raise ValueError unless these are unit tokens that fit the attention."""
        check_start(start)

    @property
    def autonomous(self) -> bool:
        """Whether the field is independent of time."""
        return True

    def weights(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B N N"]:
        """Return the weights w_ij (..., N, N) of unit tokens with Gram matrices (..., N, N)."""
        logits = self.beta * gram
        seen = gram.new_tensor(gram.shape[-1])
        if self.causal:
            number = torch.arange(1, gram.shape[-1] + 1, device=gram.device)
            seen = number[:, None]
            logits = logits.masked_fill(number > seen, -torch.inf)
        return torch.softmax(logits, dim=-1) if self.normalised else torch.exp(logits) / seen

    def _energies(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B"]:
        count = gram.shape[-1]
        if self.beta == 0.0:
            return gram.sum((-2, -1)) / (2.0 * count**2)
        return torch.exp(self.beta * gram).sum((-2, -1)) / (2.0 * self.beta * count**2)


@storable
@dataclass(frozen=True)
class SphereAttention(Attention):
    """Field of one self-attention layer with Q = K = I and V = I or -I.

    Parameters
    ----------
    beta
        Inverse temperature, at most 300 in absolute value.
    normalised
        True for SA (weights divided by their sum), False for USA (divided by the number of tokens).
    repulsion
        Whether V = -I.
    causal
        Whether token i sees only the tokens up to i.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    beta: float
    normalised: bool = True
    repulsion: bool = False
    causal: bool = False

    def moved(
        self,
        tokens: Float[Tensor, "*B N r"],
        time: Tensor | None = None,
        which: Tensor | None = None,
    ) -> Float[Tensor, "*B N r"]:
        """Return +-sum_j w_ij x_j of tokens (..., N, r); `time` and `which` are ignored."""
        moved = self.weights(tokens @ tokens.mT) @ tokens
        return -moved if self.repulsion else moved

    @with_types
    def gram_field(
        self,
        gram: Float[Tensor, "*B N N"],
        sigma: float = 0.0,
        dimension: int | None = None,
        centred: bool = False,
    ) -> Float[Tensor, "*B N N"]:
        """Return the drift of Gram matrices (..., N, N) of unit tokens, with noise or without.

        Without noise dV/dt = M + M^T - (diag(M) 1^T + 1 diag(M)^T) o V with M = +-w V. With the
        noise of `sphere_network` in dimension d, as h -> 0,

            sigma^2 [ (1 - (2 - V_ij^2) / d) S_ij - (1 - 1/d) V_ij (S_ii + S_jj) / 2 ]

        is added, with S = w V w^T; if `centred`, it is the whole drift.

        Raises
        ------
        ValueError
            If an argument is outside its range.
        """
        width = _checked_dimension(gram, sigma, dimension)
        weights = self.weights(gram)
        moved = weights @ gram
        drift = torch.zeros_like(moved)
        if not centred:
            pull = -moved if self.repulsion else moved
            along = pull.diagonal(dim1=-2, dim2=-1)
            drift = pull + pull.mT - (along[..., :, None] + along[..., None, :]) * gram
        if sigma == 0.0:
            return drift
        return drift + sigma**2 * noise_drift(gram, moved @ weights.mT, width)

    @with_types
    def gram_bracket(
        self,
        gram: Float[Tensor, "*B N N"],
        sigma: float,
        dimension: int,
    ) -> Float[Tensor, "*B N N N N"]:
        """Return d<V_ij, V_kl>/dt (..., N, N, N, N) of Gram matrices under noise.

        It belongs to `sphere_network` in dimension d as h -> 0, centred or not, and is sigma^2 / d
        times the sum over the four choices of (i, j) or (j, i) and (k, l) or (l, k) of

            S_ik (V_jl - V_ij V_il - V_kl V_jk + V_ij V_ik V_kl),

        with the S of `gram_field`.

        Raises
        ------
        ValueError
            If an argument is outside its range.
        """
        width = _checked_dimension(gram, sigma, dimension)
        weights = self.weights(gram)
        return sigma**2 * noise_bracket(gram, weights @ gram @ weights.mT, width)

    def energy(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B"]:
        """Return E = (1 / (2 beta N^2)) sum_ij exp(beta V_ij); at beta = 0, sum_ij V_ij / (2 N^2).

        The value at beta = 0 is the limit up to a constant. For V = I and no mask, E never
        decreases: dE/dt = (1 / N) sum_i |dx_i/dt|^2 along USA, and along SA each term is multiplied
        by Z_i / N. For V = -I it never increases.
        """
        return self._energies(gram)


def _checked_dimension(gram: Float[Tensor, "*B N N"], sigma: float, dimension: int | None) -> int:
    """Return the dimension, or 1 without noise, for which it is not needed."""
    check_nonnegative("sigma", sigma)
    if gram.ndim < 2 or gram.shape[-1] != gram.shape[-2]:
        raise argument_error("gram", "of shape (..., N, N)", tuple(gram.shape))
    if sigma == 0.0:
        return 1
    if dimension is None:
        raise argument_error("dimension", "given together with sigma", dimension)
    check_width("dimension", dimension)
    return dimension
