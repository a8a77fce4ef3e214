"""Limits of shaped hidden layers: ReLU, smooth activations and gates.

With d_ff = r n hidden units all have the linear rate k = 2 gamma^2 + gamma^4 (1 / r - 1): a hidden
unit is Gaussian to leading order. Their drifts differ.

- Shaped ReLU: gamma^2 nu(rho_ab) sqrt(V_aa V_bb), nu(r) = (c_+ - c_-)^2 / (2 pi) (sqrt(1 - r^2)
  - r arccos r); Li, Nica and Roy, "The neural covariance SDE" (arXiv 2206.02768). With
  J(r) = sqrt(1 - r^2) + r (pi - arccos r), the arc-cosine kernel of Cho and Saul (2009), this is
  kappa (J - pi r) with kappa = gamma^2 (c_+ - c_-)^2 / (2 pi): a positive semidefinite matrix minus
  a multiple of V.
- Smooth activation s (phi(x / s) - phi(0)), s = a sqrt n, with p_2 = phi''(0) / phi'(0) and
  p_3 = phi'''(0) / phi'(0):

      (gamma / a)^2 [ p_2^2 / 4 (V_aa V_bb + 2 V_ab^2 - 3 V_ab) + p_3 / 2 V_ab (V_aa + V_bb - 2) ].

- Gate u phi(beta + z / s) / phi(beta), with r_1 = phi'(beta) / phi(beta), r_2 = phi'' / phi:

      (gamma / a)^2 V_ab [ r_1^2 (V_ab - 1) + r_2 / 2 (V_aa + V_bb - 2) ].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.numerics.primitives import (
    M,
    arc_cosine_kernel,
    column_sums,
    diagonal,
    row_squares,
)

_TINY = 1e-300


@dataclass(frozen=True)
class HiddenLimit(Limit):
    """Limit of a hidden layer of Gaussian units, without a drift."""

    hidden_ratio: float = 1.0

    def linear_rate(self, p: Parameters) -> Any:
        """Return ``2 gamma^2 + gamma^4 (n / d_ff - 1)``."""
        rate = super().linear_rate(p)
        return rate if self.hidden_ratio == 1.0 else rate + self._excess * p.gamma**4

    def weight_rate(self, p: Parameters) -> float:
        """Return gamma^2 for each of the two matrices."""
        return float(2.0 * p.gamma**2)

    @property
    def _excess(self) -> float:
        return 1.0 / self.hidden_ratio - 1.0

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return None: the coefficients grow linearly."""
        return None


class ReLULimit(HiddenLimit):
    """Limit of the shaped ReLU network."""

    def growth(self, p: Parameters, v: M) -> M:
        """Return ``kappa sqrt(V_aa V_bb) J(rho_ab)``."""
        return _kappa(p) * arc_cosine_kernel(v)

    def decay(self, p: Parameters) -> Any:
        """Return ``pi kappa``, which leaves the diagonal of V unchanged."""
        return math.pi * _kappa(p)


def _kappa(p: Parameters) -> Any:
    return p.gamma**2 * (p.c_plus - p.c_minus) ** 2 / (2.0 * math.pi)


@dataclass(frozen=True)
class SmoothLimit(HiddenLimit):
    """Limit with the drift (gamma / a)^2 [x (V_aa V_bb - V_ab) + y (V_ab^2 - V_ab) + z (...)].

    The last bracket is V_ab (V_aa + V_bb - 2).

    Parameters
    ----------
    outer, square
        The coefficients x and y >= 0, whose parts grow the rank of V.
    rows
        The coefficient z, whose part scales the rows of the factor.
    """

    outer: float = 0.0
    square: float = 0.0
    rows: float = 0.0

    def _rate(self, p: Parameters) -> Any:
        return (p.gamma / p.scale) ** 2

    def factor_drift(self, p: Parameters, factor: M) -> M | None:
        """Return ``(gamma / a)^2 z (V_aa - 1) F_a``."""
        if self.rows == 0.0:
            return None
        return (self.rows * self._rate(p)) * ((row_squares(factor) - 1.0) * factor)

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return ``(gamma / a)^2 (x V_aa V_bb + y V_ab^2)``, positive semidefinite by Schur."""
        if self.outer == 0.0 and self.square == 0.0:
            return None
        total = self.square * (v * v)
        if self.outer != 0.0:
            variances = diagonal(v)
            total = total + self.outer * (variances @ variances.mT)
        return self._rate(p) * total

    def decay(self, p: Parameters) -> Any:
        """Return ``(gamma / a)^2 (x + y)``."""
        both = self.outer + self.square
        return both * self._rate(p) if both != 0.0 else 0.0

    def speed(self, p: Parameters, factor: M) -> M:
        """Return ``(gamma / a)^2 (x + y + 2 |z|) q``, q the mean of V_aa weighted by itself."""
        variances = row_squares(factor)
        size = column_sums(variances * variances) / (column_sums(variances) + _TINY)
        return ((self.outer + self.square + 2.0 * abs(self.rows)) * self._rate(p)) * size
