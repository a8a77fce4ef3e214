"""Value matrices with noise, new in each layer: drift and bracket of the Gram matrix of tokens.

With noise the value matrix of a layer is s I + (sigma / sqrt h) W / sqrt d, where s = 1 (-1 for
repulsion, 0 if centred). W (d, d) has independent N(0, 1) entries, new in each layer and common to
all tokens:

    X' = N( X + s h w X + sigma sqrt(h) w X W / sqrt d ),    w = w(X X^T),  N(y) = y / |y|.

As h -> 0 the tokens follow dx_i = P_i (s y_i dt + sigma dW y_i) and Ito's correction that keeps
their norm, where y_i = sum_j w_ij x_j, P_i is the projection orthogonal to x_i and the entries of
the Brownian motion W have the variance dt / d. Their Gram matrix R = X X^T follows an SDE of its
own. Before the rows are normalised, with U = w R and C = w R w^T = (<y_i, y_j>),

    dR = (s U + s U^T + sigma^2 C) dt + noise,

since dW^T dW = I dt, and

    d<R_ij, R_kl> = (sigma^2 / d) (C_ik R_jl + C_il R_jk + C_jk R_il + C_jl R_ik) dt.

Ito's formula for R_ij / sqrt(R_ii R_jj) at R_ii = R_jj = 1 gives the drift of `noise_drift` and the
bracket of `noise_bracket`; `symbolic.claims.random_values` proves both. The noise has a variance of
order sigma^2 / d, but as d -> infinity the drift sigma^2 (C_ij - R_ij (C_ii + C_jj) / 2) remains.
This attraction is due to the noise alone: tokens with similar weights receive similar noise. With
w = I, where no token sees another, C = R and that drift vanishes.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import argument_error, check_width


def noise_drift(
    gram: Float[Tensor, "*B N N"], mixed: Float[Tensor, "*B N N"], dimension: int
) -> Float[Tensor, "*B N N"]:
    """Return the drift of R for sigma = 1 and s = 0, from R and C = w R w^T.

    (1 - (2 - R_ij^2) / d) C_ij - (1 - 1/d) R_ij (C_ii + C_jj) / 2.
    """
    squares = mixed.diagonal(dim1=-2, dim2=-1)
    mean = 0.5 * (squares[..., :, None] + squares[..., None, :])
    towards = (1.0 - (2.0 - gram * gram) / dimension) * mixed
    return towards - (1.0 - 1.0 / dimension) * gram * mean


def noise_bracket(
    gram: Float[Tensor, "*B N N"], mixed: Float[Tensor, "*B N N"], dimension: int
) -> Float[Tensor, "*B N N N N"]:
    """Return d<R_ij, R_kl>/dt for sigma = 1, from R and C = w R w^T.

    It is 1/d times the sum over the four choices of (i, j) or (j, i) and (k, l) or (l, k) of

        C_ik <P_i x_j, P_k x_l>,   <P_i x_j, P_k x_l> = R_jl - R_ij R_il - R_kl R_jk
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


def check_noise(gram: Float[Tensor, "*B N N"], dimension: int | None) -> int:
    """Return the dimension; raise ValueError unless it is a width and R has unit diagonal."""
    if dimension is None:
        raise argument_error("dimension", "given together with sigma", dimension)
    check_width("dimension", dimension)
    if not bool(((gram.diagonal(dim1=-2, dim2=-1) - 1.0).abs() < 1e-6).all()):
        raise ValueError("gram has diagonal entries other than 1; it must hold cosines")
    return dimension
