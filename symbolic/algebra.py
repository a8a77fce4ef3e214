"""Exact polynomials in the entries of V, in parameters and in Gaussian fields.

The polynomials are elements of a sparse polynomial ring of sympy: sums and products are exact and
fast, equality is decided by comparing coefficients, and nothing is ever simplified.

A *field* is an m x m matrix of random symbols with mean zero, such as the scores G. Its moments are
polynomials in the other generators; `Algebra.expect` replaces products of field entries by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from sympy import QQ, Expr, Matrix, Rational, Symbol, sympify
from sympy.polys.matrices import DomainMatrix
from sympy.polys.polyerrors import CoercionFailed
from sympy.polys.rings import PolyRing

from symbolic.checks import check_tokens
from symbolic.gaussian import isserlis

Poly = Any
"""An element of the ring (sympy.polys.rings.PolyElement)."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class Field:
    """Random m x m matrix, independent of the other fields.

    Attributes
    ----------
    name
        Name of the field; its entries are printed as ``name_ab``.
    covariance
        Function of (algebra, (a, b), (c, d)) that returns E[X_ab X_cd], an element of the ring.
    moment
        Function of (algebra, pairs) that returns E[prod X_ab]; None for a Gaussian field, whose
        moments follow from the covariance.
    """

    name: str
    covariance: Callable[[Algebra, Pair, Pair], Poly]
    moment: Callable[[Algebra, Sequence[Pair]], Poly] | None = None


class Algebra:
    """The ring Q[generators, V[0,0], V[0,1], ..., fields] for m tokens.

    Parameters
    ----------
    tokens
        The number of tokens m.
    generators
        Parameters (gamma, 1/tau_0, ...) and functions of V that are not polynomials; each
        expression is one generator.
    fields
        The random matrices.
    v
        None for a symbolic V, or an m x m symmetric matrix of rational numbers.
    """

    def __init__(
        self,
        tokens: int,
        generators: Sequence[Expr] = (),
        fields: Sequence[Field] = (),
        v: Matrix | None = None,
    ) -> None:
        self.tokens = check_tokens(tokens)
        self.v_expressions = symbolic_covariance(tokens) if v is None else v
        entries = [e for e in vech(self.v_expressions) if not e.is_number]
        symbols = {
            field: _entry_symbols(name, tokens)
            for field, name in zip(fields, _distinct([f.name for f in fields]), strict=True)
        }
        flat = [s for field in fields for row in symbols[field] for s in row]
        # A function of V may be a number at a given V; then it is not a generator.
        known = [generator for generator in dict.fromkeys(generators) if not generator.is_Rational]
        self.ring = PolyRing([*known, *entries, *flat], QQ)
        self._generator = dict(zip(self.ring.symbols, self.ring.gens, strict=True))
        self._entry_of = {
            self.ring.symbols.index(symbols[field][a][b]): (field, (a, b))
            for field in fields
            for a in range(tokens)
            for b in range(tokens)
        }
        self._field_start = min(self._entry_of, default=self.ring.ngens)
        self._symbols = symbols
        self._moments: dict[tuple[int, ...], Poly] = {}
        self.v = self.matrix(
            [[self[self.v_expressions[a, b]] for b in range(tokens)] for a in range(tokens)]
        )

    def __getitem__(self, value: Expr | int) -> Poly:
        """Return a declared generator, or a rational number, as an element of the ring."""
        expression = sympify(value)
        if expression in self._generator:
            return self._generator[expression]
        try:
            return self.ring.domain_new(expression) * self.ring.one
        except CoercionFailed:
            pass
        try:
            return self.ring.from_expr(expression)
        except (ValueError, CoercionFailed):
            raise ValueError(
                f"{expression} is not a polynomial in the generators {self.ring.symbols}; "
                "every generator that a block uses must be declared in its `generators`"
            ) from None

    def matrix(self, rows: Sequence[Sequence[Any]]) -> DomainMatrix:
        """Return a matrix over the ring from rows of ring elements, expressions or numbers."""
        ring = self.ring
        elements = [
            [e if getattr(e, "ring", None) == ring else self[e] for e in row] for row in rows
        ]
        return DomainMatrix(elements, (len(elements), len(elements[0])), ring.to_domain())

    def field(self, field: Field) -> DomainMatrix:
        """Return a field as an m x m matrix of symbols.

        Raises
        ------
        ValueError
            If `field` is not one of the algebra's fields.
        """
        if field not in self._symbols:
            raise ValueError(
                f"field {field.name!r} is unknown; every field that a block uses must be declared "
                "in its `fields`"
            )
        return self.matrix([[self[s] for s in row] for row in self._symbols[field]])

    @property
    def coefficient_generators(self) -> list[Expr]:
        """The generators that are not entries of fields, in the order of the ring."""
        return list(self.ring.symbols[: self._field_start])

    @property
    def parameters(self) -> list[Symbol]:
        """The symbols other than the entries of V and of the fields, sorted by name."""
        generators = self.coefficient_generators
        free = {symbol for generator in generators for symbol in generator.free_symbols}
        return sorted(free - self.v_expressions.free_symbols, key=lambda symbol: symbol.name)

    @property
    def is_symbolic(self) -> bool:
        """Whether V is a matrix of symbols rather than numbers."""
        return bool(self.v_expressions.free_symbols)

    def transfer(self, matrix: DomainMatrix) -> DomainMatrix:
        """Convert a matrix without fields over another algebra's ring to this ring.

        Raises
        ------
        ValueError
            If the matrix contains a generator that this ring does not have.
        """
        rows = [[entry.set_ring(self.ring) for entry in row] for row in matrix.to_list()]
        return self.matrix(rows)

    @property
    def identity(self) -> DomainMatrix:
        """The m x m identity."""
        return DomainMatrix.eye(self.tokens, self.ring.to_domain()).to_dense()

    def zeros(self, size: int) -> DomainMatrix:
        """Return a square matrix of zeros."""
        return DomainMatrix.zeros((size, size), self.ring.to_domain()).to_dense()

    def entry(self, matrix: DomainMatrix, a: int, b: int) -> Poly:
        """Return one entry of a matrix as an element of the ring."""
        return matrix[a, b].element

    def expect(self, polynomial: Poly) -> Poly:
        """Return the expectation of a polynomial over all fields, a polynomial without fields."""
        grouped: dict[tuple[int, ...], dict[tuple[int, ...], Any]] = defaultdict(dict)
        start = self._field_start
        padding = (0,) * (self.ring.ngens - start)
        for exponents, coefficient in polynomial.items():
            grouped[exponents[start:]][exponents[:start] + padding] = coefficient
        total = self.ring.zero
        for powers, rest in grouped.items():
            moment = self._moment(powers)
            if moment:
                total += self.ring.from_dict(rest) * moment
        return total

    def covariance(self, left: Poly, right: Poly) -> Poly:
        """Return Cov[left, right] over all fields."""
        if not self.is_random(left) or not self.is_random(right):
            return self.ring.zero
        return self.expect(left * right) - self.expect(left) * self.expect(right)

    def is_random(self, polynomial: Poly) -> bool:
        """Return whether a field occurs in the polynomial."""
        start = self._field_start
        return any(any(exponents[start:]) for exponents in polynomial)

    def _moment(self, powers: tuple[int, ...]) -> Poly:
        if powers not in self._moments:
            pairs: dict[Field, list[Pair]] = defaultdict(list)
            for offset, power in enumerate(powers):
                if power:
                    field, pair = self._entry_of[self._field_start + offset]
                    pairs[field] += [pair] * power
            moment = self.ring.one
            for field, entries in pairs.items():
                moment *= self._field_moment(field, entries)
            self._moments[powers] = moment
        return self._moments[powers]

    def _field_moment(self, field: Field, pairs: list[Pair]) -> Poly:
        if field.moment is not None:
            return field.moment(self, pairs)
        return isserlis(pairs, lambda x, y: field.covariance(self, x, y))


def _distinct(names: list[str]) -> list[str]:
    """Number repeated names, since the fields of two blocks may share a name."""
    return [
        name if names.count(name) == 1 else f"{name}{names[: k + 1].count(name)}"
        for k, name in enumerate(names)
    ]


def symbolic_covariance(tokens: int, name: str = "V") -> Matrix:
    """Return the symmetric matrix of symbols V[0,0], V[0,1], V[1,1], ..., or of another name."""
    return Matrix(
        tokens, tokens, lambda a, b: Symbol(f"{name}[{min(a, b)},{max(a, b)}]", real=True)
    )


def vech_pairs(tokens: int) -> list[Pair]:
    """Return the entries of the lower triangle row by row, the order of half-vectorisation."""
    return [(a, b) for a in range(tokens) for b in range(a + 1)]


def vech(matrix: Matrix) -> list[Expr]:
    """Return the lower triangle of a symmetric matrix, row by row."""
    return [matrix[a, b] for a, b in vech_pairs(matrix.rows)]


def _entry_symbols(name: str, tokens: int) -> list[list[Symbol]]:
    return [[Symbol(f"{name}[{a},{b}]") for b in range(tokens)] for a in range(tokens)]


def rational_covariance(tokens: int, seed: int) -> Matrix:
    """Return a random positive definite matrix of small rationals, for exact checks at a point."""
    random = Random(seed)
    factor = Matrix(
        tokens, tokens, lambda _a, _b: Rational(random.randint(-4, 4), random.randint(1, 4))
    )
    return factor * factor.T / tokens + Matrix.eye(tokens) / 4
