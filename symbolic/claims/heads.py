"""Heads written out: a block with the fields of every head, for the claim on H heads.

It does not use the engine's treatment of heads, which is to derive one head and divide by H.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy import Expr, Matrix, Rational

from symbolic.algebra import Algebra, Field
from symbolic.blocks import ShapedAttention, gram_covariance
from symbolic.expansion import attention_series
from symbolic.recursion import Block, Recursion, skip_only
from symbolic.series import HALF, Series


class ExplicitHeads(Block):
    """H heads with independent scores G1, G2, ... and the branch gamma^2 mean_h A_h V_h A_h^T.

    V_h is V or, with an output projection, the Gram matrix of the n / H columns of the head's
    values, V + sqrt(H / n) N_h. Then sqrt(H) must be rational for the ring, so H must be a square.
    """

    def __init__(self, heads: int, output_projection: bool = False) -> None:
        self.heads = heads
        self.output_projection = output_projection
        self.single = ShapedAttention()
        self.scores = [Field(f"G{h}", self.single.scores.covariance) for h in range(1, heads + 1)]
        self.values = [Field(f"N{h}", gram_covariance) for h in range(1, heads + 1)]
        self.fields = [*self.scores, *(self.values if output_projection else [])]
        self.root = Rational(heads) ** HALF
        if output_projection and not self.root.is_Rational:
            raise ValueError(
                f"heads must be a square number with an output projection; got {heads}"
            )

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the generators of one head."""
        return self.single.generators(v)

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and the mean of the heads' branches; the engine sees one head."""
        gain = algebra[self.single.gamma] ** 2
        inverse_tau: Any = algebra[self.single.inverse_tau]
        branch = Series({}, order)
        for score, value in zip(self.scores, self.values, strict=True):
            attention = attention_series(algebra, algebra.field(score), inverse_tau, order=order)
            gram = Series({0: algebra.v}, order)
            if self.output_projection:
                gram += Series({HALF: algebra.field(value)}, order) * algebra[self.root]
            branch += attention * gram * attention.T
        return Recursion(
            skip_only(algebra, 1 - gain, order), branch * (gain * algebra[Rational(1, self.heads)])
        )
