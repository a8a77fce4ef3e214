"""Self-attention as a flow of tokens on the sphere: SA and USA, attraction or repulsion.

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

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import check_finite
from shaped_attention.results.plain_arguments import storable

_LARGEST_BETA = 600.0
"""exp(beta) does not overflow up to this beta."""


@storable
@dataclass(frozen=True)
class SphereAttention:
    """Field of one self-attention layer with Q = K = I and V = I or -I.

    Parameters
    ----------
    beta
        Inverse temperature; finite, at most 600 in absolute value.
    normalised
        True for SA, False for USA.
    repulsion
        Whether V = -I.
    causal
        Whether token i sees only the tokens up to i.

    Raises
    ------
    ValueError
        If `beta` is outside its range.
    """

    beta: float
    normalised: bool = True
    repulsion: bool = False
    causal: bool = False

    def __post_init__(self) -> None:
        check_finite("beta", self.beta)
        if abs(self.beta) > _LARGEST_BETA:
            raise ValueError(
                f"beta={self.beta!r}: |beta| <= {_LARGEST_BETA:g} is needed (exp overflows)"
            )
        for name in ("normalised", "repulsion", "causal"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r}: True or False is needed")

    def weights(
        self, gram: Float[Tensor, "*B N N"], beta: Float[Tensor, "*B 1 1"] | None = None
    ) -> Float[Tensor, "*B N N"]:
        """Return the weights w_ij (..., N, N) of unit tokens with Gram matrices (..., N, N).

        `beta`, one per matrix, replaces the attention's, here and in `field`. It must be finite
        and at most 600 in absolute value, which is not checked.
        """
        logits = (self.beta if beta is None else beta) * gram
        if self.causal:
            # Token i, counted from 0, sees i + 1 tokens.
            token = torch.arange(gram.shape[-1], device=gram.device)
            logits = logits.masked_fill(token > token[:, None], -torch.inf)
        if self.normalised:
            return torch.softmax(logits, dim=-1)
        count = gram.shape[-1]
        if not self.causal:
            return torch.exp(logits) / count
        seen = torch.arange(1, count + 1, dtype=gram.dtype, device=gram.device)
        return torch.exp(logits) / seen[:, None]

    def field(
        self,
        tokens: Float[Tensor, "*B N r"],
        time: Tensor | None = None,
        which: Tensor | None = None,
        *,
        beta: Float[Tensor, "*B 1 1"] | None = None,
    ) -> Float[Tensor, "*B N r"]:
        """Return dx/dt of tokens (..., N, r) on the unit sphere; `time` and `which` are ignored."""
        gram = tokens @ tokens.mT
        moved = self.weights(gram, beta) @ tokens
        along = (moved * tokens).sum(-1, keepdim=True)
        tangent = moved - along * tokens
        return -tangent if self.repulsion else tangent

    def gram_field(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B N N"]:
        """Return dV/dt = M + M^T - (diag(M) 1^T + 1 diag(M)^T) o V with M = +-w V."""
        moved = self.weights(gram) @ gram
        moved = -moved if self.repulsion else moved
        along = moved.diagonal(dim1=-2, dim2=-1)
        return moved + moved.mT - (along[..., :, None] + along[..., None, :]) * gram

    def energy(self, gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B"]:
        """Return E = (1 / (2 beta N^2)) sum_ij exp(beta V_ij); at beta = 0, sum_ij V_ij / (2 N^2).

        The value at beta = 0 is the limit up to a constant. For V = I and no mask, E never
        decreases: dE/dt = (1 / N) sum_i |dx_i/dt|^2 along USA, and along SA each term is multiplied
        by Z_i / N. For V = -I it never increases.
        """
        count = gram.shape[-1]
        if self.beta == 0.0:
            return gram.sum((-2, -1)) / (2.0 * count**2)
        return torch.exp(self.beta * gram).sum((-2, -1)) / (2.0 * self.beta * count**2)
