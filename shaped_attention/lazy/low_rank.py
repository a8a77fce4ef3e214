"""Matrices of low rank, X^T G, whose factors are rows: gradients and updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.numerics.primitives import leaky, sqrt
from shaped_attention.numerics.routines import PIVOT_EPSILONS
from shaped_attention.rows.coordinates import inner
from shaped_attention.rows.directions import directions
from shaped_attention.rows.joining import stacked
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.values import Plain, whole_sum

Coefficient = float | Tensor
"""A number, or one for each sample (B, 1, 1)."""


class Factors(NamedTuple):
    """A matrix of low rank, X^T G, made from rows X and G of its two spaces."""

    left: Rows
    right: Rows

    def norm(self) -> Float[Tensor, " B"]:
        """Return the Frobenius norm: |X^T G|^2 = sum (X X^T) o (G G^T)."""
        value = length(self)
        assert isinstance(value, Tensor)
        return value[:, 0, 0]

    def product(self, x: Rows, side: int) -> list[Plain]:
        """Return the parts of x (X^T G) from the side 0, or of x (G^T X) from the side 1."""
        weight = inner(x, self[side])
        return [weight @ part for part in self[1 - side].parts]

    def sign(self) -> Factors:
        """Return U V^T, with the singular vectors U, V of the nonzero singular values.

        With X = L E and G = K H, rows of E and H orthonormal, X^T G = E^T (L^T K) H.
        """
        left, right = (directions(x.coordinates) for x in self)
        u, values, v = torch.linalg.svd(left.lower.mT @ right.lower)
        level = PIVOT_EPSILONS * torch.finfo(values.dtype).eps * values[:, :1]
        there = (values > level).to(values.dtype)[..., None]
        return Factors(
            self.left.like(there * (u.mT @ left.units)), self.right.like(v @ right.units)
        )


def frobenius(x: Factors, y: Factors) -> Plain:
    """Return the Frobenius product of two matrices of low rank (1, 1)."""
    return whole_sum(inner(x.left, y.left) * inner(x.right, y.right))


def length(x: Factors) -> Plain:
    """Return the Frobenius norm, a matrix (1, 1)."""
    return sqrt(leaky(frobenius(x, x), 1.0, 0.0))


def combined(terms: Sequence[Factors], coefficients: Sequence[Coefficient]) -> Factors:
    """Return the factors of sum_s c_s X_s^T G_s; terms with the number 0 are left out."""
    pairs = list(zip(coefficients, terms, strict=True))
    pairs = [(c, term) for c, term in pairs if isinstance(c, Tensor) or c != 0.0] or pairs[:1]
    return Factors(
        stacked([c * term.left for c, term in pairs]), stacked([term.right for _, term in pairs])
    )
