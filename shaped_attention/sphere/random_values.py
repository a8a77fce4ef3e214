"""Value matrices that are new in each layer: the drift and bracket of the Gram matrix.

With noise a layer is

    X' = N( X + s h w X + sigma sqrt(h) w X W / sqrt d ),    w = w(X X^T),  N(y) = y / |y|,

where s = 1 (-1 for repulsion, 0 if centred), and W (d, d) has independent N(0, 1) entries, new in
each layer and common to all tokens. The columns of w X W are independent with the covariance
S = w R w^T of the tokens, R = X X^T.

As h -> 0 the tokens follow dx_i = P_i (s y_i dt + sigma dz_i) and Ito's correction that keeps their
norm, with y = w X, P_i the projection orthogonal to x_i, and dz_i dz_j^T = S_ij I dt / d. Their
Gram matrix follows an SDE of its own. Before the rows are normalised, with U = w R,

    dR = (s U + s U^T + sigma^2 S) dt + noise,
    d<R_ij, R_kl> = (sigma^2 / d) (S_ik R_jl + S_il R_jk + S_jk R_il + S_jl R_ik) dt.

Ito's formula for R_ij / sqrt(R_ii R_jj) at R_ii = R_jj = 1 gives the drift of `noise_drift` and the
bracket of `noise_bracket`; `symbolic.claims.random_values` proves both.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


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
