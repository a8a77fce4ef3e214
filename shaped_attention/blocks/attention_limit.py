"""The limit of shaped attention, for any mask, position bias and rotation.

With the expansion A = I + A_1 / sqrt n + A_2 / n + ... of `shaped_attention.blocks.attention`
(`score_moments` has that of its variants) and the centre w

    E[A_1 V A_1^T] = T o (V + sigma_Q^2) / tau_0^2,  T_ac = tr(C_a V C_c V),
    C_a = diag w_a - w_a w_a^T.

Without a mask all T_ac are |C V C|_F^2 / m^2, C = I - 11^T / m. In all other cases the noise of
the factor produces only a part of T o V; the rest raises the rank of V.

W_O averages the values of G groups of heads with d_h columns each. Their fluctuation adds gamma^4 f
to k, f = n / (G d_h), which is 1 if every head has values of its own and H d_h = n. A bound on the
logits changes nothing: these are of order 1 / sqrt n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from shaped_attention.blocks.attention_fields import AttentionFields
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.blocks.positions import is_per_head
from shaped_attention.blocks.rotations import Angles
from shaped_attention.blocks.score_moments import SMALLEST_NORMED, ScoreMoments
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    column_sums,
    diagonal,
    row_squares,
    row_sums,
    sqrt,
)

_TINY = 1e-300
_NOT_DERIVED = {"attention_factor", "original_max_position_embeddings"}


def _norm(x: M) -> M:
    """Return the fourth-power norm (1, 1) of a column."""
    square = x * x
    return sqrt(sqrt(column_sums(square * square)))


@dataclass(frozen=True)
class AttentionLimit(Limit):
    """Drift and noise of attention for given heads, output projection and moments of the scores.

    The heads' fluctuations average out: H heads divide the covariance of the scores' noise by H.
    `fluctuation` is f, that of the values that W_O averages.
    """

    moments: ScoreMoments
    heads: int
    output_projection: bool
    fluctuation: float = 1.0

    def linear_rate(self, p: Parameters) -> Any:
        """Return ``gamma^2 (2 - gamma^2)``, or ``2 gamma^2 + (f - 1) gamma^4`` with W_O."""
        square = p.gamma**2
        if self.output_projection and self.fluctuation != 1.0:
            return 2.0 * square + (self.fluctuation - 1.0) * square**2
        return 2.0 * square if self.output_projection else square * (2.0 - square)

    def weight_rate(self, p: Parameters) -> float:
        """Return gamma^2 for W_V, and for W_O; W_Q and W_K vanish in the limit."""
        return float((1 + self.output_projection) * p.gamma**2)

    def _left(self, p: Parameters) -> Any:
        """Return the coefficient of T o V in the drift that the noise of the factor leaves out."""
        return (p.gamma / p.tau0) ** 2 * (1.0 - p.gamma**2 / self.heads)

    def _scale(self, p: Parameters) -> Any:
        """Return the coefficient of A_1 in the noise of the factor."""
        return p.gamma**2 / (p.tau0 * math.sqrt(self.heads))

    def factor_drift(self, p: Parameters, factor: M) -> M:
        """Return ``(gamma / tau_0)^2 [ (1 - gamma^2 / H) T / 2 + E A_2 ] F``, T if it is a number.

        Without a mask E A_2 F = q (s^T C F) / (2 m), where s is the diagonal of C V C, up to a
        constant that C removes.
        """
        m = factor.shape[-2]
        rate = (p.gamma / p.tau0) ** 2
        if self.moments.flat:
            centred = factor - column_sums(factor) / m
            inner = centred.mT @ centred
            square = column_sums(row_squares(inner)) / m**2
            q = row_squares(factor)
            second = q @ (row_squares(centred).mT @ centred)
            return (0.5 * self._left(p)) * (square * factor) + (0.5 / m * rate) * second
        q, centred = self.moments.second(factor @ factor.mT)
        return (0.5 * rate) * (q * (centred @ factor))

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M:
        """Return ``gamma^2 A_1 F / sqrt H`` with the scores of `ScoreMoments`."""
        m, c = factor.shape[-2:]
        scale = self._scale(p)
        if self.moments.flat:
            increments = numbers.normal("scores", c, c)
            centred = factor - column_sums(factor) / m
            return (scale / m) * (factor @ (increments @ (centred.mT @ centred)))
        scores = self.moments.scores(factor, numbers)
        w = self.moments.centre(factor)
        return scale * ((w * (scores - row_sums(w * scores))) @ factor)

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return ``(gamma / tau_0)^2 (1 - gamma^2 / H) tau_0^2 E[A_1 V A_1^T]``."""
        return None if self.moments.flat else self._left(p) * self.moments.squares(v)

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return ``(gamma / tau_0)^2 (1 + 5 gamma^2 / H) (T + |E A_2|)``.

        None for a single token, whose attention is linear, and with QK-norm.

        The first term bounds the relative drift of V and the second its variance, which needs
        shorter steps for the same accuracy. With QK-norm drift and variance are bounded by those
        of a linear equation.

        T is a number without a mask, and else the mean of its diagonal weighted by itself.
        ``tau_0^2 |E A_2|`` is |q| |s| / (2m) without a mask, in fourth-power norms, which are near
        the largest entries.
        """
        m = factor.shape[-2]
        if m == 1 or self.moments.eps is not None:
            return None
        rate = (p.gamma / p.tau0) ** 2 * (1.0 + 5.0 / self.heads * p.gamma**2)
        if self.moments.flat:
            centred = factor - column_sums(factor) / m
            inner = centred.mT @ centred
            s = row_squares(centred)
            s = s - column_sums(s) / m
            q = row_squares(factor)
            second = _norm(s) * _norm(q)
            return rate * (column_sums(row_squares(inner)) / m**2 + second / (2.0 * m))
        v = factor @ factor.mT
        _, key = self.moments.covariances(v)
        spread = diagonal(self.moments.spread(v, self.moments.turned(key)))
        spread = sqrt(spread * spread)  # equal tokens have rounding errors of either sign
        first = column_sums(spread * spread) / (column_sums(spread) + _TINY)
        q, centred = self.moments.second(v)
        second = sqrt(column_sums(row_squares(q * centred)))
        return rate * (first + 0.5 * second)

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return ``E[A A + A'] F``, A = gamma^2 A_1 / sqrt H; None with QK-norm.

        A' is the derivative of A along A F. Without a mask the sum is F (2 P^2 + tr(P) P) / m^2,
        P = F^T C F.
        """
        m = factor.shape[-2]
        scale = self._scale(p)
        if self.moments.eps is not None:
            return None
        if self.moments.flat:
            centred = factor - column_sums(factor) / m
            inner = centred.mT @ centred
            trace = column_sums(row_squares(centred))
            return (scale / m) ** 2 * (factor @ (2.0 * (inner @ inner) + trace * inner))
        return scale**2 * self.moments.noise_drift(factor)

    def noise_along(self, p: Parameters, factor: M, direction: M) -> M:
        """Return ``4 |Z-coefficient of <D F, G>|^2``, with G the factor noise."""
        m = factor.shape[-2]
        scale = self._scale(p)
        turned = direction @ factor
        if self.moments.flat:
            centred = factor - column_sums(factor) / m
            coefficients = (factor.mT @ turned) @ (centred.mT @ centred)
            return (4.0 * (scale / m) ** 2) * column_sums(row_squares(coefficients))
        return (4.0 * scale**2) * self.moments.noise_along(factor, turned)

    def variance_noise(self, p: Parameters, v: M) -> M:
        """Return ``4 gamma^4 / (H tau_0^2)`` times that of `ScoreMoments`."""
        return (4.0 * self._scale(p) ** 2) * self.moments.variance_noise(v)


def attention_limit(block: AttentionFields) -> Limit | str:
    """Return the limit of attention, or the reason why it does not exist."""
    rope, norm, size = block.rope, block.qk_norm, block.fixed_keys
    if not block.identity:
        return "without the identity a layer changes V by order 1, not 1/n (identity=False)"
    if not block.centring:
        return "without centring a layer changes V by order 1, not 1/n (centring=False)"
    if not block.scaled_temperature:
        return (
            "at temperature tau_0 sqrt(n_k) softmax(Y / tau) is random of order 1 "
            "(scaled_temperature=False)"
        )
    if is_per_head(block.position_bias, block.heads):
        return "none is derived for heads with different position biases (position_bias)"
    if rope is not None and rope.changed.keys() & _NOT_DERIVED:
        return (
            "none is derived for rotations with a factor or for a bounded number of tokens "
            f"(rope={rope!r})"
        )
    if rope is not None and rope.base is not None and size is None:
        return (
            "its angles base^(-2j / d) depend on the size d of a head, which grows with the width "
            f"(rope={rope.base!r}), unless head_size, key_size or a list of angles is given"
        )
    sizes = _normed_sizes(block, size)
    if sizes is not None and min(sizes) < SMALLEST_NORMED:
        return (
            f"none is derived for QK-norm over {min(sizes)} columns, fewer than {SMALLEST_NORMED} "
            "(key_size, head_size)"
        )
    if sizes is not None and norm is not None and norm.eps > 0.0:
        return (
            f"with qk_norm_eps={norm.eps!r} one is derived only for keys whose size grows with "
            f"the width, not for {size} columns (key_size, head_size)"
        )
    angles = rope.turning if rope is not None and rope.share > 0.0 else None
    if rope is not None and isinstance(angles, float) and size is not None:
        angles = tuple(rope.pairs(size).tolist())
    key_bias = block.key_bias if angles is not None or norm is not None else 0.0
    moments = ScoreMoments(
        block.mask,
        block.bias(),
        float(block.query_bias),
        float(key_bias),
        cast("Angles | None", angles),
        1.0 if rope is None or angles is None else float(rope.share),
        None if norm is None else float(norm.eps),
        sizes,
    )
    fluctuation = block.heads_per_key / (block.value_ratio or 1.0)
    return AttentionLimit(moments, block.heads, block.output_projection, fluctuation)


def _normed_sizes(block: AttentionFields, size: int | None) -> tuple[int, int] | None:
    """Return over how many columns queries and keys are normalised; None if it is not fixed."""
    if block.qk_norm is None or size is None:
        return None
    if block.qk_norm.over == "head":
        return size, size
    return block.heads * size, block.heads // block.heads_per_key * size
