"""The limit of shaped attention, for any mask.

With A = I + A_1 / sqrt n + A_2 / n + ..., logits G with E[G_ab G_cd] = (V_ac + sigma_Q^2) V_bd
(`shaped_attention.blocks.attention` has the expansion), the centre w, and row means weighted by w:

    A_1 = w o (G - rowmean G) / tau_0,   E A_2 = w o (s - rowmean s) q / (2 tau_0^2),
    s_ab = V_bb - 2 (w V)_ab,  q = diag V + sigma_Q^2,

    E[A_1 V A_1^T] = T o (V + sigma_Q^2) / tau_0^2,  T_ac = tr(C_a V C_c V),
    C_a = diag w_a - w_a w_a^T.

Without a mask all T_ac are |C V C|_F^2 / m^2, C = I - 11^T / m. With a mask or a bias, the noise of
the factor produces only a part of T o V; the rest raises the rank of V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shaped_attention.blocks.base import Limit
from shaped_attention.blocks.mask import Mask, uniform_weights
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    column_sums,
    concatenate,
    constant,
    diagonal,
    row_squares,
    row_sums,
    sqrt,
)

_TINY = 1e-300


def _norm(x: M) -> M:
    """Return the fourth-power norm (1, 1) of a column."""
    square = x * x
    return sqrt(sqrt(column_sums(square * square)))


@dataclass(frozen=True)
class AttentionLimit(Limit):
    """Drift and noise of attention for given heads, mask, output projection and query bias.

    The heads' fluctuations average out: H heads divide the covariance of the scores' noise by H.
    """

    mask: Mask
    heads: int
    output_projection: bool
    query_bias: float

    def linear_rate(self, p: Any) -> Any:
        """Return ``gamma^2 (2 - gamma^2)``, or ``2 gamma^2`` with an output projection."""
        square = p.gamma**2
        return 2.0 * square if self.output_projection else square * (2.0 - square)

    @property
    def _flat(self) -> bool:
        """Whether all T_ac are equal, so that nothing raises the rank."""
        return self.mask is None and self.query_bias == 0.0

    def _centre(self, like: M) -> M:
        return constant(uniform_weights(self.mask, like.shape[-2]), like=like)

    def _left(self, p: Any) -> Any:
        """Return the coefficient of T o V in the drift that the noise of the factor leaves out."""
        return (p.gamma / p.tau0) ** 2 * (1.0 - p.gamma**2 / self.heads)

    def factor_drift(self, p: Any, factor: M) -> M:
        """Return ``(gamma / tau_0)^2 [ (1 - gamma^2 / H) T / 2 + E A_2 ] F``, T if it is a number.

        Without a mask E A_2 F = q (s^T C F) / (2 m), where s is the diagonal of C V C, up to a
        constant that C removes.
        """
        m = factor.shape[-2]
        rate = (p.gamma / p.tau0) ** 2
        if self._flat:
            centred = factor - column_sums(factor) / m
            inner = centred.mT @ centred
            square = column_sums(row_squares(inner)) / m**2
            q = row_squares(factor)
            second = q @ (row_squares(centred).mT @ centred)
            return (0.5 * self._left(p)) * (square * factor) + (0.5 / m * rate) * second
        w = self._centre(factor)
        v = factor @ factor.mT
        diagonal_v = diagonal(v)
        s = diagonal_v.mT + (-2.0) * (w @ v)
        centred = w * (s - row_sums(w * s))
        q = diagonal_v + self.query_bias if self.query_bias > 0.0 else diagonal_v
        return (0.5 * rate) * (q * (centred @ factor))

    def factor_noise(self, p: Any, factor: M, numbers: Numbers) -> M:
        """Return ``gamma^2 A_1 F / sqrt H`` with G = (F, sigma_Q 1) dZ F^T."""
        m, c = factor.shape[-2:]
        scale = p.gamma**2 / (p.tau0 * math.sqrt(self.heads))
        rows = c + (self.query_bias > 0.0)
        increments = numbers.normal("scores", rows, c)
        if self._flat:
            centred = factor - column_sums(factor) / m
            return (scale / m) * (factor @ (increments @ (centred.mT @ centred)))
        root = factor
        if self.query_bias > 0.0:
            ones = np.full((m, 1), math.sqrt(self.query_bias))
            root = concatenate([factor, constant(ones, like=factor)])
        scores = (root @ increments) @ factor.mT
        w = self._centre(factor)
        return scale * ((w * (scores - row_sums(w * scores))) @ factor)

    def growth(self, p: Any, v: M) -> M | None:
        """Return ``(gamma / tau_0)^2 (1 - gamma^2 / H) T o (V + sigma_Q^2 11^T)``."""
        if self._flat:
            return None
        query = v + self.query_bias if self.query_bias > 0.0 else v
        return self._left(p) * (self._spread(v) * query)

    def _spread(self, v: M) -> M:
        """Return T."""
        w = self._centre(v)
        mean = w @ v
        cross = (mean * mean) @ w.mT
        both = mean @ w.mT
        return (w @ (v * v)) @ w.mT - (cross + cross.mT) + both * both

    def speed(self, p: Any, factor: M) -> M:
        """Return ``(gamma / tau_0)^2 (1 + 5 gamma^2 / H) (T + |E A_2|)``.

        The first term bounds the relative drift of V and the second its variance, which needs
        shorter steps for the same accuracy.

        T is a number without a mask, and else the mean of its diagonal weighted by itself.
        ``tau_0^2 |E A_2|`` is |q| |s| / (2m) without a mask, in fourth-power norms, which are near
        the largest entries.
        """
        m = factor.shape[-2]
        rate = (p.gamma / p.tau0) ** 2 * (1.0 + 5.0 / self.heads * p.gamma**2)
        if self._flat:
            centred = factor - column_sums(factor) / m
            inner = centred.mT @ centred
            s = row_squares(centred)
            s = s - column_sums(s) / m
            q = row_squares(factor)
            second = _norm(s) * _norm(q)
            return rate * (column_sums(row_squares(inner)) / m**2 + second / (2.0 * m))
        v = factor @ factor.mT
        spread = diagonal(self._spread(v))
        first = column_sums(spread * spread) / (column_sums(spread) + _TINY)
        w = self._centre(factor)
        diagonal_v = diagonal(v)
        s = diagonal_v.mT + (-2.0) * (w @ v)
        q = diagonal_v + self.query_bias if self.query_bias > 0.0 else diagonal_v
        second = sqrt(column_sums(row_squares(q * (w * (s - row_sums(w * s))))))
        return rate * (first + 0.5 * second)

    def noise_drift(self, p: Any, factor: M) -> M:
        """Return ``E[A A + A'] F``, with A = gamma^2 A_1 / sqrt H and A' its derivative along A F.

        With S = (F, sigma_Q 1) dZ F^T, A = w o (S - rowmean S) up to a constant, U = V + sigma_Q^2,
        D = w V, and A' made from A F dZ F^T + S A^T:

            E[A A]_ac = sum_b w_ab w_bc U_ab (V_bc - D_ac - D_bb + (D w^T)_ab),
            E[A'] = w o (M - rowmean M),
            M_ac = ((w o V) V)_ac - rowsum(w o V)_a D_ac + U_ac rowsum(w o (V_bb - D))_c.

        Without a mask the sum is F (2 P^2 + tr(P) P) / m^2, P = F^T C F.
        """
        m = factor.shape[-2]
        scale = p.gamma**2 / (p.tau0 * math.sqrt(self.heads))
        if self._flat:
            centred = factor - column_sums(factor) / m
            inner = centred.mT @ centred
            trace = column_sums(row_squares(centred))
            return (scale / m) ** 2 * (factor @ (2.0 * (inner @ inner) + trace * inner))
        w = self._centre(factor)
        v = factor @ factor.mT
        query = v + self.query_bias if self.query_bias > 0.0 else v
        mean = w @ v
        asked, seen = w * query, w * v
        squares = asked @ seen - mean * (asked @ w)
        squares = squares + (asked * (mean @ w.mT) - asked * diagonal(mean).mT) @ w
        own = row_sums(w * (diagonal(v).mT - mean))
        moved = seen @ v - row_sums(seen) * mean + query * own.mT
        return scale**2 * ((squares + w * (moved - row_sums(w * moved))) @ factor)

    def noise_along(self, p: Any, factor: M, direction: M) -> M:
        """Return ``4 |Z-coefficient of <D F, G>|^2``, with G the factor noise."""
        m = factor.shape[-2]
        scale = p.gamma**2 / (p.tau0 * math.sqrt(self.heads))
        turned = direction @ factor
        if self._flat:
            centred = factor - column_sums(factor) / m
            found = (factor.mT @ turned) @ (centred.mT @ centred)
            return (4.0 * (scale / m) ** 2) * column_sums(row_squares(found))
        w = self._centre(factor)
        weighted = w * (turned @ factor.mT)
        scores = weighted - w * row_sums(weighted)
        found = scores @ factor
        total = column_sums(row_squares(factor.mT @ found))
        if self.query_bias > 0.0:
            total = total + self.query_bias * row_squares(column_sums(found))
        return (4.0 * scale**2) * total

    def variance_noise(self, p: Any, v: M) -> M:
        """Return ``4 gamma^4 / (H tau_0^2) (V + sigma_Q^2) o (c V c^T)``.

        c = w o (V - rowmean V), with row means weighted by w.
        """
        w = self._centre(v)
        c = w * (v - row_sums(w * v))
        query = v + self.query_bias if self.query_bias > 0.0 else v
        scale = p.gamma**2 / (p.tau0 * math.sqrt(self.heads))
        return (4.0 * scale**2) * (query * ((c @ v) @ c.mT))
