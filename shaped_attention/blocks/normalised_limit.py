"""The limits of normalised blocks: correlations R, R_aa = 1, which cannot explode.

Let b and Sigma be drift and diffusion of the un-normalised layer at V = R, with lambda and gamma
divided by sqrt(lambda^2 + gamma^2). Post-norm applies Ito's formula to the quotient
R_ab = V_ab / sqrt(V_aa V_bb),

    drift_ab = b_ab - R_ab (b_aa + b_bb) / 2 - (Sigma_ab,aa + Sigma_ab,bb) / 2
               + R_ab [ 3 (Sigma_aa,aa + Sigma_bb,bb) / 8 + Sigma_aa,bb / 4 ],

with the noise projected likewise. A step of the factor of V, whose rows are then divided by their
lengths, does the same. The limit starts from the correlations of V_0.

With pre-norm the variances relax to 1 within O(1 / gamma^2) layers and then fluctuate by
O(1 / sqrt n), since V_aa' = lambda^2 V_aa + gamma^2 + noise. The weight of a branch in the
correlations depends on them, which averages to a further drift - beta R_ab D_ab / 2,
D_ab = Sigma_aa,aa + Sigma_bb,bb - 2 Sigma_aa,bb. For one block
beta = lambda^2 / (4 (1 + lambda^2)), and for several in a cycle

    beta_i = sum_j W_j lambda_j^2 gamma_j^2 / (4 (1 - product of all lambda^4)),

where j runs over the blocks that follow i, i itself last, and W_j is the product of lambda^4 of the
blocks in between. Each block contributes beta_i times its own D. Since D is a variogram, adding
beta R o S dt to V, S_ab = Sigma_aa,bb, and normalising again has the same effect and keeps R
positive semidefinite. The limit starts where the variances have relaxed, at the end of the
iteration V_ab <- V_ab (lambda^2 + gamma^2 / sqrt(V_aa V_bb)) from V_0.

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

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Parameters, at_depth
from shaped_attention.blocks.reasons import limit_of
from shaped_attention.numerics.primitives import M, concatenate, lower, sqrt

_RELAXED = 1e-15
"""Relative change of V at which the variances have relaxed."""

_MOST_LAYERS = 100_000

_TINY = 1e-30


class Reweighted(Parameters):
    """Parameters of a block with another weight of the branch."""

    def __init__(self, p: Parameters, gamma: Any) -> None:
        self._p, self.gamma = p, gamma

    def __getattr__(self, name: str) -> Any:
        return getattr(self._p, name)


@dataclass(frozen=True)
class SandwichLimit(Limit):
    """Limit of a block whose branch ends in a norm: `moved` has all but the cross term.

    `p` are the parameters of the normalised block, `inner` is the un-normalised one.
    """

    inner: Block
    place: str

    @property
    def norm(self) -> SandwichLimit:
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

    def linear_rate(self, p: Parameters) -> Any:
        """Return 2 lambda^2 gamma^2, the rate of the cross term."""
        skip, square = self.weights(p)
        return 2.0 * skip * square

    def speed(self, p: Parameters, factor: M) -> None:
        """Return None: correlations cannot explode."""

    def check(self, tokens: int) -> None:
        """Check the un-normalised block."""
        limit_of(self.inner).check(tokens)

    def branch(self, p: Parameters) -> tuple[Limit, Parameters] | None:
        """Return the limit and the parameters of the branch's own Gram matrix: gamma is 1.

        A step of it, divided by the lengths of its rows, enters through `moved`. None if the branch
        is not normalised before it is added.
        """
        return limit_of(self.inner), Reweighted(p.inner, 1.0)

    def moved(self, p: Parameters, factor: M, branch: M) -> M:
        """Return the factor of lambda^2 V + gamma^2 F_B F_B^T."""
        skip, square = self.weights(p)
        return lower(concatenate([sqrt(skip) * factor, sqrt(square) * branch]))


def _of_inner(name: str) -> Any:
    """Return a method that asks the limit of the un-normalised block."""

    def method(self: NormalisedLimit, p: Parameters, *args: Any) -> Any:
        limit, q = self._inner(p)
        return getattr(limit, name)(q, *args)

    return method


class NormalisedLimit(SandwichLimit):
    """Drift and noise of the un-normalised block; the layer's step normalises the result."""

    def branch(self, p: Parameters) -> None:
        """Return None: the branch is not normalised."""

    def _inner(self, p: Parameters) -> tuple[Limit, Parameters]:
        """Return the limit of the un-normalised block, with gamma / sqrt(lambda^2 + gamma^2)."""
        inner, gamma = p.inner, p.inner.gamma
        if getattr(self.inner, "skip", None) is not None:
            weight = sqrt(self.inner.skip_weight(inner) ** 2 + gamma**2)
            inner = Reweighted(inner, gamma / weight)
        return limit_of(self.inner), inner

    linear_rate, factor_drift, factor_noise, growth, decay, variance_noise = map(
        _of_inner,
        ("linear_rate", "factor_drift", "factor_noise", "growth", "decay", "variance_noise"),
    )


class Relaxation(Limit):
    """What relaxing variances add to the growth: sum of beta_i R o S_i."""

    def __init__(self, limits: Sequence[tuple[Limit, Parameters]]) -> None:
        """Create it for the limits of all blocks, in their order, with their parameters."""
        self._limits = limits

    def growth(self, p: Parameters | None, v: M) -> M:
        """Return the sum over the blocks; Sigma_lin contributes 2 k R_ab^2 to S."""
        betas = relaxations([x.norm.weights(values) for x, values in self._limits if x.norm])
        square, parts = v * v, []
        for beta, (limit, values) in zip(betas, self._limits, strict=True):
            part = (2.0 * beta * limit.linear_rate(values)) * square
            noise = limit.variance_noise(values, v)
            parts.append(part if noise is None else part + beta * noise)
        return v * sum(parts[1:], parts[0])


def relaxations(weights: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Return beta_i of each block, from lambda^2 and gamma^2 of all blocks of a cycle."""
    count, everything = len(weights), 1.0
    for skip, _ in weights:
        everything = everything * skip**2
    betas = []
    for i in range(count):
        passed, total = 1.0, 0.0
        for j in range(i + 1, i + count + 1):
            skip, gamma = weights[j % count]
            total = total + passed * skip * gamma
            passed = passed * skip**2
        # Where all gamma vanish, so does the noise that beta multiplies.
        betas.append(total / (4.0 * (1.0 - everything) + _TINY))
    return betas


def starting_covariance(
    pattern: Sequence[Sequence[Block]], v0: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return where the limit starts from V_0 (..., m, m): V_0 itself unless blocks normalise."""
    blocks = [block for blocks in pattern for block in blocks]
    norms = [(norm, block) for block in blocks if (norm := limit_of(block).norm)]
    if not norms:
        return v0
    v = v0
    if norms[0][0].relaxes:
        weights = [norm.weights(at_depth(block, 0.0)) for norm, block in norms]
        if all(square == 0.0 for _, square in weights):
            raise ValueError("layer has gamma=0 at depth 0, so that its variances do not relax")
        for _ in range(_MOST_LAYERS):
            previous = v
            for skip, gamma in weights:
                v = v * (skip + gamma * _inverse(v))
            if np.allclose(v, previous, rtol=_RELAXED, atol=0.0):
                break
        else:
            raise ValueError(
                f"layer has variances that have not relaxed after {_MOST_LAYERS} layers; gamma is "
                "too small"
            )
    return v * _inverse(v)


def _inverse(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / sqrt(V_aa V_bb), 0 where a token is zero."""
    lengths = np.sqrt(np.diagonal(v, axis1=-2, axis2=-1))
    inverse = np.where(lengths > 0.0, 1.0 / np.where(lengths > 0.0, lengths, 1.0), 0.0)
    return inverse[..., :, None] * inverse[..., None, :]
