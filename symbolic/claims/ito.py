"""Ito's formula for functions of V, with drift and diffusion as the engine derives them."""

from __future__ import annotations

from sympy import Expr, cancel, diff

from symbolic.algebra import vech
from symbolic.limit import Limit


class Ito:
    """Drifts and covariations of functions of V, where V solves a derived limit.

    Parameters
    ----------
    limit
        A limit derived at a symbolic V.
    """

    def __init__(self, limit: Limit) -> None:
        self.entries = vech(limit.algebra.v_expressions)
        self._drift = vech(limit.drift)
        self._diffusion = limit.diffusion

    def drift(self, function: Expr) -> Expr:
        """Return the drift of f(V): sum of b_i d_i f and of Sigma_ij d_i d_j f / 2."""
        slopes = [diff(function, entry) for entry in self.entries]
        total = sum(b * slope for b, slope in zip(self._drift, slopes, strict=True))
        for i, slope in enumerate(slopes):
            for j, entry in enumerate(self.entries):
                total += self._diffusion[i, j] * diff(slope, entry) / 2
        return total

    def covariation(self, first: Expr, second: Expr) -> Expr:
        """Return d[f(V), g(V)] / dt: the sum of Sigma_ij d_i f d_j g."""
        left = [diff(first, entry) for entry in self.entries]
        right = [diff(second, entry) for entry in self.entries]
        return sum(
            self._diffusion[i, j] * x * y for i, x in enumerate(left) for j, y in enumerate(right)
        )


def vanishes(expression: Expr) -> bool:
    """Return whether a rational function is zero."""
    return bool(cancel(expression) == 0)
