"""Weights that are new in each layer: the noise they make, drift and bracket of the Gram matrix.

With noise a layer is

    X' = N( X + s h w X + sigma sqrt(h) Z / sqrt d ),    w = w(X X^T),  N(y) = y / |y|,

where s = 1 (-1 for repulsion, 0 if centred), and Z (N, d) is the output of Gaussian matrices with
independent N(0, 1) entries, new in each layer and common to all tokens. Given the matrices that act
first, its columns are independent with a covariance S of the tokens:

    value matrices      Z = w X W                           S = w R w^T
    `RandomHeads`       Z = sum_h w_h X V_h / sqrt H        S = (1/H) sum_h w_h R w_h^T
    `RandomMLP`         Z = phi(X W_1) W_2 / sqrt p         S = (1/p) phi(X W_1) phi(X W_1)^T

with R = X X^T. The law of S depends on R only: X W_1 and the queries and keys of w_h are Gaussian,
with the covariance R between tokens.

As h -> 0 the tokens follow dx_i = P_i (s y_i dt + sigma dz_i) and Ito's correction that keeps their
norm, with y = w X, P_i the projection orthogonal to x_i, and dz_i dz_j^T = S_ij I dt / d. Their
Gram matrix follows an SDE of its own. Before the rows are normalised, with U = w R,

    dR = (s U + s U^T + sigma^2 S) dt + noise,
    d<R_ij, R_kl> = (sigma^2 / d) (S_ik R_jl + S_il R_jk + S_jk R_il + S_jl R_ik) dt.

Ito's formula for R_ij / sqrt(R_ii R_jj) at R_ii = R_jj = 1 gives the drift of `noise_drift` and the
bracket of `noise_bracket`; `symbolic.claims.random_values` proves both. They are linear in S, and a
short time spans many layers, so in the limit the mean of S given R takes its place, whatever the
number of heads and the hidden width.

The noise has a variance of order sigma^2 / d, but as d -> infinity the drift
sigma^2 (S_ij - R_ij (S_ii + S_jj) / 2) remains: tokens that receive similar noise attract each
other. If S = R, as for w = I and for a linear MLP, that drift vanishes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.activations import activation_named, hermite_squares
from shaped_attention.checks import argument_error, check_count, check_width
from shaped_attention.numerics.primitives import arc_cosine_kernel, cholesky
from shaped_attention.results.plain_arguments import storable

Product = Callable[[Tensor, int], Tensor]
"""The product of x (B, N, r) with a new Gaussian matrix (r, columns)."""

RELU = "plain_relu"

_MOST_HEADS = 2**15 - 2
"""Draws have 2^16 slots: two for each head, and three for the last matrix of `noisy_chain`."""


class Noise(ABC):
    """Random weights of a layer: what multiplies the last of them, and the mean of S."""

    @abstractmethod
    def root(
        self, tokens: Float[Tensor, "B N r"], product: Product, weights: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B N c"]:
        """Return L with S = L L^T, so that Z = L W; `weights` maps scores to attention weights."""

    @abstractmethod
    def kernel(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B N N"]:
        """Return the mean of S given R, or raise ValueError if it has no closed form."""

    @abstractmethod
    def columns(self, r: int) -> int:
        """Return the largest number of columns of a matrix that `root` makes of tokens (N, r)."""


@storable
@dataclass(frozen=True)
class RandomHeads(Noise):
    """Attention heads with random queries, keys and values, whose outputs are added.

    The noise of a layer is sum_h w_h X V_h / sqrt(H d). The weights w_h are those of the attention,
    with its beta, normalisation and mask, but with the scores <Q_h x_i, K_h x_j> / sqrt k in place
    of <x_i, x_j>. For unit tokens these scores have standard deviation 1, so the logits have
    standard deviation beta.

    Parameters
    ----------
    heads
        Number of heads H from 1 to 32,766: a layer has at most 65,536 random matrices, of which
        heads need two each. The speed of the tokens does not depend on H.
    key_width
        Number of rows k of the Gaussian matrices Q_h and K_h (k, d); None for the limit
        k -> infinity, x_i^T M_h x_j with a Gaussian matrix M_h (d, d).

    Raises
    ------
    ValueError
        If an argument is not an integer in its range.
    """

    heads: int = 1
    key_width: int | None = None

    def __post_init__(self) -> None:
        check_count("heads", self.heads)
        if self.heads > _MOST_HEADS:
            reason = "since a layer has at most 65,536 random matrices"
            raise argument_error("heads", f"at most {_MOST_HEADS:,}, {reason}", self.heads)
        if self.key_width is not None:
            check_count("key_width", self.key_width)

    def root(
        self, tokens: Float[Tensor, "B N r"], product: Product, weights: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B N c"]:
        """Return the outputs of the heads before their value matrices, side by side."""
        size = self.key_width or tokens.shape[-1]
        parts = []
        for _ in range(self.heads):
            queries, keys = product(tokens, size), tokens
            if self.key_width is not None:
                keys = product(tokens, size) / math.sqrt(size)
            parts.append(weights(queries @ keys.mT) @ tokens)
        return torch.cat(parts, dim=-1) / math.sqrt(self.heads)

    def kernel(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B N N"]:
        """Raise ValueError: E w R w^T is not known."""
        raise argument_error(
            "noise",
            "None or a RandomMLP here, since the mean kernel of attention is not known",
            self,
        )

    def columns(self, r: int) -> int:
        """Return how many columns the queries or all heads side by side have, whichever is more."""
        return max(self.key_width or 0, self.heads * r)


@storable
@dataclass(frozen=True)
class RandomMLP(Noise):
    """MLP with random weights: its noise in a layer is phi(X W_1) W_2 / sqrt(p d).

    With the attention's drift this is the model of Agazzi et al. (arXiv 2604.26898): attention, and
    noise of MLPs that is common to all tokens.

    Parameters
    ----------
    activation
        phi: "plain_relu", "gelu", "gelu_tanh", "silu", "tanh", "softplus", or "module:function" of
        a function in `shaped_attention.numerics.primitives`, as for `ShapedMLP`.
    width
        Number p of hidden units, at most 2^53; None for p -> infinity, where the covariance of the
        noise is S_ij = kappa(R_ij) with the Gram matrix R and kappa(r) = E phi(u) phi(v) for
        standard normal u and v of correlation r.

    Raises
    ------
    ValueError
        If an argument is outside its range, or `width` is None but kappa is not known to 1e-10,
        because phi is not smooth.
    """

    activation: str
    width: int | None = None

    def __post_init__(self) -> None:
        if self.activation == "relu":
            raise argument_error("activation", "'plain_relu' for max(x, 0)", self.activation)
        activation_named(self.activation)
        if self.width is not None:
            check_width("width", self.width)
        elif self.activation != RELU:
            self.squares  # noqa: B018  an error if they are not known

    def root(
        self, tokens: Float[Tensor, "B N r"], product: Product, weights: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B N c"]:
        """Return the hidden layer divided by sqrt p, or a root of S if p is infinite."""
        if self.width is None:
            root: Tensor = cholesky(self.kernel(tokens @ tokens.mT))
            return root
        hidden: Tensor = activation_named(self.activation)(product(tokens, self.width))
        return hidden / math.sqrt(self.width)

    def kernel(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B N N"]:
        """Return kappa(R_ij) = sum_n a_n^2 R_ij^n, a_n = E phi(u) He_n(u) / sqrt(n!)."""
        if self.activation == RELU:
            angles: Tensor = arc_cosine_kernel(gram)
            return angles / (2.0 * math.pi)
        kappa = torch.zeros_like(gram)
        for square in reversed(self.squares):
            kappa = kappa * gram + square
        return kappa

    @property
    def squares(self) -> tuple[float, ...]:
        """The squares a_n^2 of `kernel`; not for "plain_relu", where they decrease too slowly."""
        squares = hermite_squares(activation_named(self.activation))
        if squares is None:
            raise argument_error("activation", "smooth or 'plain_relu' here", self.activation)
        return squares

    @property
    def odd(self) -> bool:
        """Whether phi is odd, so that antipodes stay antipodes."""
        return self.activation != RELU and not any(self.squares[::2])

    def columns(self, r: int) -> int:
        """Return the number of hidden units, or 0 if there are infinitely many."""
        return self.width or 0


def noise_drift(
    gram: Float[Tensor, "*B N N"], mixed: Float[Tensor, "*B N N"], dimension: int
) -> Float[Tensor, "*B N N"]:
    """Return the drift of R for sigma = 1 and s = 0, from R and S.

    (1 - (2 - R_ij^2) / d) S_ij - (1 - 1/d) R_ij (S_ii + S_jj) / 2.
    """
    squares = mixed.diagonal(dim1=-2, dim2=-1)
    mean = 0.5 * (squares[..., :, None] + squares[..., None, :])
    towards = (1.0 - (2.0 - gram * gram) / dimension) * mixed
    return towards - (1.0 - 1.0 / dimension) * gram * mean


def noise_bracket(
    gram: Float[Tensor, "*B N N"], mixed: Float[Tensor, "*B N N"], dimension: int
) -> Float[Tensor, "*B N N N N"]:
    """Return d<R_ij, R_kl>/dt for sigma = 1, from R and S.

    It is 1/d times the sum over the four choices of (i, j) or (j, i) and (k, l) or (l, k) of

        S_ik <P_i x_j, P_k x_l>,   <P_i x_j, P_k x_l> = R_jl - R_ij R_il - R_kl R_jk
                                                        + R_ij R_ik R_kl.
    """
    first, second = gram[..., :, :, None, None], gram[..., None, None, :, :]
    from_i = gram[..., :, None, None, :]  # R_il
    from_j = gram[..., None, :, :, None]  # R_jk
    both = gram[..., :, None, :, None]  # R_ik
    across = gram[..., None, :, None, :]  # R_jl
    projected = across - first * from_i - second * from_j + first * both * second
    part = mixed[..., :, None, :, None] * projected
    part = part + part.transpose(-4, -3)
    return (part + part.transpose(-2, -1)) / dimension


def check_dimension(gram: Float[Tensor, "*B N N"], dimension: int | None) -> int:
    """Return the dimension; raise ValueError unless it is a width and R has unit diagonal."""
    if dimension is None:
        raise argument_error("dimension", "given together with sigma", dimension)
    check_width("dimension", dimension)
    if not bool(((gram.diagonal(dim1=-2, dim2=-1) - 1.0).abs() < 1e-6).all()):
        raise ValueError("gram has diagonal entries other than 1; it must hold cosines")
    return dimension
