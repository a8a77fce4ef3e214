"""Matrices as truncated series in powers of 1/n."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Rational, SympifyError
from sympy.polys.matrices import DomainMatrix
from sympy.polys.polyerrors import CoercionFailed

HALF = Rational(1, 2)


class Series:
    """Series ``sum_p M_p n^(-p)``: matrices over one ring, powers p >= 0, truncated after `order`.

    Sums, products (of matrices) and multiples by elements of the ring are again series, truncated
    at the smaller order. A matrix counts as a series with the single power 0. Write a multiple with
    the series first, ``series * element``: with the element first, a zero of the ring would absorb
    the series.

    Parameters
    ----------
    terms
        Power of 1/n -> matrix. Powers are rational numbers; 1/2 means 1/sqrt(n).
    order
        The largest power that is kept.
    """

    def __init__(self, terms: Mapping[Any, DomainMatrix], order: Any) -> None:
        self.order = Rational(order)
        self.terms: dict[Rational, DomainMatrix] = {}
        for power, matrix in sorted((Rational(p), m) for p, m in terms.items()):
            if power < 0:
                raise ValueError(f"power must be a power >= 0 of 1/n; got {power}")
            if power <= self.order and not matrix.is_zero_matrix:
                self.terms[power] = matrix

    @property
    def T(self) -> Series:
        """The transpose."""
        return Series({p: m.transpose() for p, m in self.terms.items()}, self.order)

    def __add__(self, other: Series | DomainMatrix) -> Series:
        other = self._lift(other)
        terms = dict(self.terms)
        for power, matrix in other.terms.items():
            terms[power] = terms[power] + matrix if power in terms else matrix
        return Series(terms, min(self.order, other.order))

    def __radd__(self, other: DomainMatrix) -> Series:
        return self + other

    def __sub__(self, other: Series | DomainMatrix) -> Series:
        return self + self._lift(other) * -1

    def __mul__(self, other: Any) -> Series:
        if not isinstance(other, Series | DomainMatrix):
            return Series({p: _scaled(m, other) for p, m in self.terms.items()}, self.order)
        right = self._lift(other)
        order = min(self.order, right.order)
        terms: dict[Rational, DomainMatrix] = {}
        for p, left in self.terms.items():
            for q, matrix in right.terms.items():
                if p + q <= order:
                    product = left * matrix
                    terms[p + q] = terms[p + q] + product if p + q in terms else product
        return Series(terms, order)

    def __rmul__(self, other: DomainMatrix) -> Series:
        return self._lift(other) * self

    def _lift(self, other: Series | DomainMatrix) -> Series:
        if isinstance(other, Series):
            return other
        if isinstance(other, DomainMatrix):
            return Series({0: other}, self.order)
        raise ValueError(
            f"{other!r} cannot be added to a series; only a series or a matrix over its ring can"
        )


def _scaled(matrix: DomainMatrix, factor: Any) -> DomainMatrix:
    try:
        return matrix.scalarmul(matrix.domain.convert(factor))
    except (CoercionFailed, SympifyError):
        raise ValueError(
            f"{factor!r} is not an element of the series' ring: algebra[...] makes one"
        ) from None
