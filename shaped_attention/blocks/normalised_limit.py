"""The limits of normalised blocks: correlations R, R_aa = 1, which cannot explode.

Let b and Sigma be drift and diffusion of the un-normalised layer at V = R, with lambda and gamma
divided by sqrt(lambda^2 + gamma^2). Post-norm applies Ito's formula to the quotient
R_ab = V_ab / sqrt(V_aa V_bb),

    drift_ab = b_ab - R_ab (b_aa + b_bb) / 2 - (Sigma_ab,aa + Sigma_ab,bb) / 2
               + R_ab [ 3 (Sigma_aa,aa + Sigma_bb,bb) / 8 + Sigma_aa,bb / 4 ],

with the noise projected likewise. A step of the factor of V, whose rows are then divided by their
lengths, does the same. The limit starts from the correlations of V_0.

With pre-norm the variances relax to 1 (`shaped_attention.blocks.layer_limit`).

A norm after the branch ("sandwich", "branch") also normalises what the branch adds. With b~ and
Sigma~ drift and diffusion of the branch's own Gram matrix, N the drift map of post-norm and J the
Jacobian of the quotient, such a block has

    b = gamma^2 N[b~, Sigma~],    Sigma = 2 lambda^2 gamma^2 Sigma_lin + gamma^4 J Sigma~ J^T,

and the variances relax as with pre-norm. A step of the branch's own factor F_B, normalised, gives
V' = lambda^2 V + gamma^2 F_B F_B^T, whose factor is (lambda F, gamma F_B).

LayerNorm has the same limits: the squared means of tokens are of order 1 / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit, NormTerms, SumLimit
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.numerics.primitives import M, concatenate, lower, sqrt


class Reweighted(Parameters):
    """Parameters of a block with another weight of the branch."""

    def __init__(self, p: Parameters, gamma: Any) -> None:
        self._p, self.gamma = p, gamma

    def __getattr__(self, name: str) -> Any:
        return getattr(self._p, name)


@dataclass(frozen=True)
class NormalisedLimit(SumLimit, NormTerms):
    """Drift and noise of the un-normalised block `inner`; the layer's step normalises the result.

    `p` are the parameters of the normalised block.
    """

    inner: Block
    place: str

    @property
    def norm(self) -> NormTerms:
        """The limit itself: V is a matrix of correlations."""
        return self

    @property
    def relaxes(self) -> bool:
        """Whether variances relax to 1, instead of being 1 after every layer."""
        return self.place != "after"

    def weights(self, p: Parameters) -> tuple[Any, Any]:
        """Return lambda^2 and gamma^2, whose sum is 1."""
        skip = self.inner.skip_weight(p.inner) ** 2
        if getattr(self.inner, "skip", None) is None:
            return skip, 1.0 - skip
        square = p.inner.gamma**2
        return skip / (skip + square), square / (skip + square)

    def parts(self, p: Parameters) -> Sequence[tuple[Limit, Parameters]]:
        """Return the un-normalised block with gamma / sqrt(lambda^2 + gamma^2)."""
        inner, gamma = p.inner, p.inner.gamma
        if getattr(self.inner, "skip", None) is not None:
            weight = sqrt(self.inner.skip_weight(inner) ** 2 + gamma**2)
            inner = Reweighted(inner, gamma / weight)
        return [(self.inner.limit, inner)]

    def linear_rate(self, p: Parameters) -> Any:
        """Return the rate of the un-normalised block."""
        return sum(limit.linear_rate(q) for limit, q in self.parts(p))

    def speed(self, p: Parameters, factor: M) -> None:
        """Return None: correlations cannot explode."""

    def check(self, tokens: int) -> None:
        """Check the un-normalised block."""
        self.inner.limit.check(tokens)


@dataclass(frozen=True)
class SandwichLimit(NormalisedLimit):
    """Limit of a block whose branch ends in a norm: `moved` has all but the cross term."""

    @property
    def branch(self) -> Limit:
        """The limit of the branch alone."""
        limit: Limit = self.inner.limit
        return limit

    def branch_parameters(self, p: Parameters) -> Parameters:
        """Return the inner parameters with gamma = 1, those of the branch's own Gram matrix."""
        return Reweighted(p.inner, 1.0)

    def parts(self, p: Parameters) -> Sequence[tuple[Limit, Parameters]]:
        """Return nothing: see `moved`."""
        return []

    def linear_rate(self, p: Parameters) -> Any:
        """Return 2 lambda^2 gamma^2, the rate of the cross term."""
        skip, square = self.weights(p)
        return 2.0 * skip * square

    def moved(self, p: Parameters, factor: M, branch: M) -> M:
        """Return the factor of lambda^2 V + gamma^2 F_B F_B^T."""
        skip, square = self.weights(p)
        return lower(concatenate([sqrt(skip) * factor, sqrt(square) * branch]))
