"""Second moments of the scores of a layer, and of softmax to second order around any weights w.

The scores S have E[S_ab S_cd] = U_ac K_bd r((a - b) - (c - d)), with U and K the covariances of
queries and keys and r the kernel of the rotation (`rotations`; 1 without one). With matrices E_k
such that sum_k E_k[a, b] E_k[c, d] = r((a - b) - (c - d)), this is sum_k (U o E_k)_ac (K o E_k)_bd:
every formula is a sum over these modes of that without a rotation, and the noise is

    S = sum_k E_k o (F_Q dZ_k F_K^T),    U = F_Q F_Q^T,  K = F_K F_K^T.

Without QK-norm U = V + sigma_Q^2 and K = V + sigma_K^2, where sigma_K^2 is 0 without a rotation,
since the key bias then cancels in the softmax. With QK-norm of d columns U = rho_d(R) and K
likewise, with R the correlations of these; rho_d(x) is the mean of the cosine of two rows of d
Gaussian columns with correlation x, which tends to x with d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaln

from shaped_attention.blocks.positions import Mask, centre
from shaped_attention.blocks.rotations import Angles, kernel, modes
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    by_length,
    cholesky,
    column_sums,
    concatenate,
    constant,
    diagonal,
    row_squares,
    row_sums,
    sqrt,
)

SMALLEST_NORMED = 4
"""Fewest columns of queries and keys for which the series of rho_d converges fast enough."""

_TERMS = 40
"""Terms of the series of rho_d; the error is 3e-5 at d = 4 and 6e-8 at d = 8."""

_TINY = 1e-36
"""Variance below that of any token, and not zero in single precision."""


@dataclass(frozen=True)
class ScoreMoments:
    """What the limit knows of the scores of attention.

    Attributes
    ----------
    mask, bias
        Mask and position bias of every head, which determine w.
    query_bias, key_bias
        Variances of the biases.
    angles, share
        Angles of the rotation, each for an equal part of the share of columns that is rotated; None
        without one.
    eps
        Number added to the mean square of queries and keys; None without QK-norm.
    normed_sizes
        Numbers of columns over which queries and keys are normalised; None if these grow with the
        width.
    """

    mask: Mask
    bias: Any = None
    query_bias: float = 0.0
    key_bias: float = 0.0
    angles: Angles | None = None
    share: float = 1.0
    eps: float | None = None
    normed_sizes: tuple[int, int] | None = None

    @property
    def flat(self) -> bool:
        """Whether all T_ac are equal, so that nothing raises the rank."""
        plain = self.mask is None and self.bias is None and self.query_bias == 0.0
        return plain and self.angles is None and self.eps is None

    def centre(self, like: M) -> M:
        """Return w."""
        return constant(centre(self.mask, self.bias, like.shape[-2]), like=like)

    def modes(self, like: M) -> list[tuple[M | None, float]]:
        """Return the E_k and their parities; None is a matrix of ones."""
        if self.angles is None:
            return [(None, 1.0)]
        matrices = modes(self.angles, self.share, like.shape[-2])
        return [(constant(entries, like=like), parity) for entries, parity in matrices]

    def covariances(self, v: M) -> tuple[M, M]:
        """Return U and K."""
        query = v + self.query_bias if self.query_bias > 0.0 else v
        key = v + self.key_bias if self.key_bias > 0.0 else v
        if self.eps is None:
            return query, key
        query, key = _correlations(query, self.eps), _correlations(key, self.eps)
        if self.normed_sizes is None:
            return query, key
        return _cosines(query, self.normed_sizes[0]), _cosines(key, self.normed_sizes[1])

    def roots(self, factor: M) -> tuple[M, M]:
        """Return F_Q and F_K."""
        if self.normed_sizes is not None:
            seen, known = self.covariances(factor @ factor.mT)
            return cholesky(seen), cholesky(known)
        query, key = extended(factor, self.query_bias), extended(factor, self.key_bias)
        if self.eps is None:
            return query, key
        return by_length(query, self.eps), by_length(key, self.eps)

    def turned(self, key: M) -> M:
        """Return K o r(a - b), the covariance of the keys as one token sees them."""
        if self.angles is None:
            return key
        return key * constant(kernel(self.angles, self.share, key.shape[-2]), like=key)

    def scores(self, factor: M, numbers: Numbers) -> M:
        """Return S, for the increments that `numbers` provides."""
        query, key = self.roots(factor)
        rows, columns = query.shape[-1], key.shape[-1]
        parts = []
        for k, (mode, _) in enumerate(self.modes(factor)):
            part = (query @ numbers.normal("scores", rows, columns, k)) @ key.mT
            parts.append(_times(part, mode))
        return sum(parts[1:], parts[0])

    def squares(self, v: M) -> M:
        """Return tau_0^2 E[A_1 V A_1^T] = sum_k (U o E_k) o T(K o E_k)."""
        query, key = self.covariances(v)
        parts = [
            self.spread(v, _times(key, mode), parity) * _times(query, mode)
            for mode, parity in self.modes(v)
        ]
        return sum(parts[1:], parts[0])

    def spread(self, v: M, key: M, parity: float = 1.0) -> M:
        """Return T(M)_ac = tr(C_a M C_c V), C_a = diag w_a - w_a w_a^T, M^T = parity M."""
        w = self.centre(v)
        mean, key_mean = w @ v, w @ key
        cross = (key_mean * mean) @ w.mT
        both = (key_mean @ w.mT) * (mean @ w.mT)
        return (w @ (key * v)) @ w.mT - (cross + parity * cross.mT) + both

    def second(self, v: M) -> tuple[M, M]:
        """Return q and w o (s - rowmean s), whose product is 2 tau_0^2 E A_2."""
        w = self.centre(v)
        query, key = self.covariances(v)
        s = diagonal(key).mT + (-2.0) * (w @ self.turned(key))
        return diagonal(query), w * (s - row_sums(w * s))

    def noise_drift(self, factor: M) -> M:
        """Return ``E[A A + A'] F``, with A = w o (S - rowmean S) and A' its derivative along A F.

        With D = w V, K_k = K o E_k, and U_k likewise:

            E[A A]_ac = sum_bk w_ab w_bc U_k,ab (K_k,bc - (w K_k)_ac - (K_k w^T)_bb
                                                + (w K_k w^T)_ab),
            E[A'] = w o (M - rowmean M),
            M_ac = ((w o V) K_r)_ac - rowsum(w o V)_a (w K_r)_ac
                   + sum_k E_k,ac U_ac rowsum(E_k o w o (V_bb - D))_c,   K_r = K o r(a - b).
        """
        w = self.centre(factor)
        v = factor @ factor.mT
        query, key = self.covariances(v)
        mean, seen = w @ v, w * v
        apart = w * (diagonal(v).mT - mean)
        turned = self.turned(key)
        squares: Any = None
        moved = seen @ turned - row_sums(seen) * (w @ turned)
        for mode, parity in self.modes(factor):
            asked, known = w * _times(query, mode), _times(key, mode)
            key_mean = w @ known
            part = asked @ (w * known) - key_mean * (asked @ w)
            part = part + (asked * (key_mean @ w.mT) - asked * (parity * diagonal(key_mean).mT)) @ w
            squares = part if squares is None else squares + part
            moved = moved + _times(query * row_sums(_times(apart, mode)).mT, mode)
        return (squares + w * (moved - row_sums(w * moved))) @ factor

    def variance_noise(self, v: M) -> M:
        """Return the covariance of ``(A_1 V)_aa tau_0`` and that of b.

        It is sum_k (U o E_k) o (c (K o E_k) c^T), with c = w o (V - rowmean V).
        """
        w = self.centre(v)
        c = w * (v - row_sums(w * v))
        query, key = self.covariances(v)
        parts = [
            _times(query, mode) * ((c @ _times(key, mode)) @ c.mT) for mode, _ in self.modes(v)
        ]
        return sum(parts[1:], parts[0])

    def noise_along(self, factor: M, turned: M) -> M:
        """Return the sum of the squared coefficients of ``tr(turned^T A F)`` in the increments."""
        w = self.centre(factor)
        weighted = w * (turned @ factor.mT)
        scores = weighted - w * row_sums(weighted)
        query, key = self.roots(factor)
        parts = [
            column_sums(row_squares(query.mT @ (_times(scores, mode) @ key)))
            for mode, _ in self.modes(factor)
        ]
        return sum(parts[1:], parts[0])


def _times(matrix: M, mode: M | None) -> M:
    return matrix if mode is None else matrix * mode


def _correlations(covariance: M, eps: float) -> M:
    """Return the covariance of rows divided by the root of their mean square plus eps."""
    root = sqrt(diagonal(covariance) + (eps + _TINY))
    return (covariance / root) / root.mT


@lru_cache(maxsize=64)
def cosine_series(size: int) -> tuple[float, ...]:
    """Return coefficients c_j >= 0 with rho_d(x) = sum_j c_j x^(2j + 1) and sum c_j = 1.

    rho_d(x) = x Gamma((d+1)/2)^2 / (Gamma(d/2) Gamma(d/2+1)) 2F1(1/2, 1/2; d/2+1; x^2). The last
    coefficient holds the rest, so that rho_d(1) = 1 and rho_d(R) is positive semidefinite.
    """
    half = size / 2.0
    logarithm = 2.0 * gammaln(half + 0.5) - gammaln(half) - gammaln(half + 1.0)
    coefficients = [math.exp(logarithm)]
    for j in range(_TERMS - 2):
        coefficients.append(coefficients[-1] * (j + 0.5) ** 2 / ((half + 1.0 + j) * (j + 1.0)))
    return (*coefficients, max(0.0, 1.0 - sum(coefficients)))


def mean_cosines(covariance: M, size: int) -> M:
    """Return rho_d of the correlations of a covariance."""
    return _cosines(_correlations(covariance, 0.0), size)


def _cosines(correlations: M, size: int) -> M:
    """Return rho_d(R), entry by entry."""
    series, square = cosine_series(size), correlations * correlations
    total = series[-1] * square
    for coefficient in series[-2:0:-1]:
        total = (total + coefficient) * square
    return (total + series[0]) * correlations


def extended(factor: M, variance: float) -> M:
    """Return (F, sigma 1), a root of V + sigma^2 11^T, or F itself without a bias."""
    if variance == 0.0:
        return factor
    ones = np.full((factor.shape[-2], 1), math.sqrt(variance))
    return concatenate([factor, constant(ones, like=factor)])
