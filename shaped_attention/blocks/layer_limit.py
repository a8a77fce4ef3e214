"""What the limit of a layer has beyond those of its blocks: relaxation of the variances, and start.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Parameters, at_depth
from shaped_attention.numerics.primitives import M

_RELAXED = 1e-15
"""Relative change of V at which the variances have relaxed."""

_MOST_LAYERS = 100_000

_TINY = 1e-30


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
    norms = [block.limit.norm for block in blocks]
    if not norms[0]:
        return v0
    v = v0
    if norms[0].relaxes:
        weights = [x.weights(at_depth(y, 0.0)) for x, y in zip(norms, blocks, strict=True)]
        if all(square == 0.0 for _, square in weights):
            raise ValueError("layer has gamma=0 at depth 0, where its variances do not relax")
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
