"""Proofs that the derived coefficients are the closed forms.

For few tokens the two are compared as polynomials: equal coefficients are an identity for all V.
For more tokens they are compared at random rational V, in exact arithmetic. A nonzero polynomial
rarely vanishes at a random point (Schwartz 1980; Zippel 1979), so agreement at a few points is
strong evidence, but only the comparison of polynomials is a proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from sympy import QQ, Dummy, Expr, Matrix, N, Poly, Rational
from sympy.polys.matrices import DomainMatrix
from sympy.polys.polyerrors import CoercionFailed, GeneratorsError, PolynomialError

from symbolic.algebra import Algebra, rational_covariance, vech
from symbolic.checks import check_count, check_tokens
from symbolic.closed_forms import closed_form
from symbolic.limit import Layer, Limit, blocks_of, derive

LARGEST_EXACT = 5
"""Most tokens for which identities of polynomials are proven; 5 take seconds, 6 minutes."""

_DIGITS = 60
"""Digits with which expressions that are no polynomials are evaluated."""


@dataclass(frozen=True)
class Proof:
    """Outcome of a comparison of derived coefficients with the closed form.

    Attributes
    ----------
    holds
        Whether all entries agree; None if no closed form is recorded for the layer.
    entries
        The number of entries of drift and diffusion that were compared.
    points
        The number of rational V at which they were compared; 0 for an identity of polynomials.
    where
        The first entry that differs; empty if all agree.
    difference
        Its difference, as text.
    witness
        Numbers at which the two sides of that entry differ, as text; empty if none was sought.
    against
        What the derived coefficients were compared with.
    """

    holds: bool | None
    entries: int = 0
    points: int = 0
    where: str = ""
    difference: str = ""
    witness: str = ""
    against: str = "closed form"

    def __str__(self) -> str:
        if self.holds is None:
            return "not compared: no closed form is recorded for this block"
        if not self.holds:
            return "; ".join(
                filter(None, (f"DISPROVED: {self.where}", self.witness, self.difference))
            )
        entries = "1 entry" if self.entries == 1 else f"{self.entries} entries"
        if self.points:
            verb = "agrees" if self.entries == 1 else "agree"
            return (
                f"true at {self.points} random rational V, exactly: {entries} of drift and "
                f"diffusion {verb} with the {self.against}"
            )
        verb = "is" if self.entries == 1 else "are"
        return (
            f"proven: {entries} of drift and diffusion minus the {self.against} {verb} the zero "
            "polynomial"
        )


Statement: TypeAlias = Any
"""Drift (m, m) or diffusion (d, d), or a function that returns it for the matrix V."""


def prove(
    layer: Layer, tokens: int, *, drift: Statement | None = None, diffusion: Statement | None = None
) -> Proof:
    """Prove drift and diffusion of a layer: the closed forms, or statements of yours.

    Parameters
    ----------
    layer
        A symbolic block, or a list of blocks.
    tokens
        Number of tokens m, at most `LARGEST_EXACT`; `check_at_points` allows more for the closed
        forms.
    drift, diffusion
        Statements: matrices of expressions in the entries V[0,0], V[0,1], ... and the parameters
        of the layer, or functions of the symbolic V. Symbols count by their names alone: they get
        the assumptions of the layer's, and other names are refused. The diffusion is that of the
        lower triangle of V, row by row. If neither is given, the closed forms are proven.

    Returns
    -------
    Proof. Statements that are polynomials in V, parameters and declared functions are proven or
    disproven as identities; others are compared at rational points. A false statement comes with a
    `witness`, numbers at which it fails.

    Raises
    ------
    ValueError
        If there are too many tokens, or a statement has the wrong shape or unknown symbols.

    Examples
    --------
    >>> from symbolic import ShapedMLP, prove
    >>> from sympy import Matrix, Symbol
    >>> gamma = Symbol("gamma")
    >>> print(prove(ShapedMLP(), 1, diffusion=lambda v: Matrix([[4 * gamma**2 * v[0, 0] ** 2]])))
    proven: 1 entry of drift and diffusion minus the statement is the zero polynomial
    >>> print(prove(ShapedMLP(), 1, drift=lambda v: Matrix([[v[0, 0]]])))
    DISPROVED: drift entry (0, 0); at V = [[1]], c_minus = 1/2, c_plus = 1/3, gamma = 1/4 \
derived 0, stated 1; derived minus stated is -V[0,0]
    """
    check_exact(tokens)
    limit = derive(layer, tokens)
    if drift is None and diffusion is None:
        return compare(layer, limit)
    sides = (
        ("drift", limit.drift_polynomials, drift),
        ("diffusion", limit.diffusion_polynomials, diffusion),
    )
    entries, points = 0, 0
    for name, derived, statement in sides:
        if statement is None:
            continue
        stated = _matrix_of(name, statement, limit.algebra, derived.shape)
        for i, row in enumerate(derived.to_list()):
            for j, entry in enumerate(row):
                where = f"{name} entry ({i}, {j})"
                found = _compare_entry(where, entry, stated[i, j], limit)
                if not found.holds:
                    return found
                points = max(points, found.points)
        entries += derived.shape[0] * derived.shape[1]
    return Proof(True, entries, points, against="statement")


def _matrix_of(name: str, statement: Statement, algebra: Algebra, shape: tuple[int, int]) -> Matrix:
    """Return a statement as a matrix of expressions in V and the parameters."""
    v = algebra.v_expressions
    try:
        stated = Matrix(statement(v) if callable(statement) else statement)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not a matrix of expressions ({error})") from None
    if stated.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {stated.shape}")
    known = v.free_symbols | {s for g in algebra.ring.symbols for s in g.free_symbols}
    by_name = {symbol.name: symbol for symbol in known}
    unknown = sorted({s.name for s in stated.free_symbols} - by_name.keys())
    if unknown:
        raise ValueError(
            f"{name} contains the symbol {unknown[0]}; those of the layer and of V are "
            f"{', '.join(sorted(by_name))}"
        )
    return stated.subs({s: by_name[s.name] for s in stated.free_symbols - known})


_POINTS = 5
"""Rational points at which a statement that is no polynomial is compared."""


def _compare_entry(where: str, derived: Any, stated: Expr, limit: Limit) -> Proof:
    """Compare one entry, as a polynomial or at rational points."""
    algebra = limit.algebra
    element = _element(algebra, stated)
    if element == derived:
        return Proof(True, 1)
    witness = _witness(algebra, derived.as_expr(), stated)
    if element is not None:
        text = f"derived minus stated is {(derived - element).as_expr()}"
    elif witness:
        text = f"derived is {derived.as_expr()}, stated {stated}"
    else:
        return Proof(True, 1, _POINTS)
    return Proof(False, where=where, difference=text, witness=witness)


def _element(algebra: Algebra, expression: Expr) -> Any:
    """Return an expression as an element of the ring; None if it is not a polynomial."""
    generators = algebra.ring.symbols
    places = [Dummy() for _ in generators]
    for generator, place in zip(generators, places, strict=True):
        if generator.is_Pow and generator.exp == -1:
            expression = expression.subs(generator.base, 1 / place)
        else:
            expression = expression.subs(generator, place)
    try:
        polynomial = Poly(expression, *places, domain=QQ)
    except (PolynomialError, CoercionFailed, GeneratorsError):
        return None
    return algebra.ring.from_dict(polynomial.as_dict())


def _witness(algebra: Algebra, derived: Expr, stated: Expr) -> str:
    """Return numbers at which two expressions differ, as text; empty if none was found."""
    m = algebra.tokens
    symbols = {s for generator in algebra.ring.symbols for s in generator.free_symbols}
    parameters = sorted(symbols - algebra.v_expressions.free_symbols, key=str)
    numbers = {s: Rational(1, 2 + k) for k, s in enumerate(parameters)}
    for v in (Matrix.eye(m), *(rational_covariance(m, seed) for seed in range(_POINTS))):
        entries = dict(zip(vech(algebra.v_expressions), vech(v), strict=True))
        values = [side.subs(entries | numbers) for side in (derived, stated)]
        if abs(N(values[0] - values[1], _DIGITS)) > Rational(1, 10 ** (_DIGITS // 2)):
            at = ", ".join([f"V = {v.tolist()}", *(f"{s} = {x}" for s, x in numbers.items())])
            return f"at {at} derived {values[0]}, stated {values[1]}"
    return ""


def check_at_points(layer: Layer, tokens: int, points: int = 3, seed: int = 0) -> Proof:
    """Compare derivation and closed form at random positive definite rational V, exactly.

    Raises
    ------
    ValueError
        If `tokens` or `points` is not positive.
    """
    check_count("points", points)
    entries = 0
    for point in range(points):
        proof = compare(layer, derive(layer, tokens, rational_covariance(tokens, seed + point)))
        if not proof.holds:
            return proof
        entries = proof.entries
    return Proof(True, entries, points)


def check_exact(tokens: int) -> None:
    """Raise ValueError if there are too many tokens for an identity of polynomials."""
    check_tokens(tokens)
    if tokens > LARGEST_EXACT:
        raise ValueError(
            f"tokens must be at most {LARGEST_EXACT} for an identity of polynomials in V; got "
            f"{tokens}"
        )


def expected(layer: Layer, algebra: Algebra) -> tuple[DomainMatrix, DomainMatrix] | None:
    """Return the sum of the closed forms of a layer's blocks; None if a block has none."""
    total = None
    for block in blocks_of(layer):
        coefficients = closed_form(block, algebra)
        if coefficients is None:
            return None
        if total is None:
            total = coefficients
        else:
            total = (total[0] + coefficients[0], total[1] + coefficients[1])
    return total


def compare(layer: Layer, limit: Limit) -> Proof:
    """Compare a limit derived from `layer` with the closed forms.

    At a symbolic V this is a proof; at a rational V it counts as one point.
    """
    forms = expected(layer, limit.algebra)
    if forms is None:
        return Proof(None)
    derived = (limit.drift_polynomials, limit.diffusion_polynomials)
    for name, ours, theirs in zip(("drift", "diffusion"), derived, forms, strict=True):
        for i, row in enumerate((ours - theirs).to_list()):
            for j, entry in enumerate(row):
                if entry:
                    where = f"{name} entry ({i}, {j})"
                    text = f"derived minus closed form is {entry.as_expr()}"
                    return Proof(False, where=where, difference=text)
    entries = sum(matrix.shape[0] * matrix.shape[1] for matrix in derived)
    return Proof(True, entries, points=0 if limit.algebra.is_symbolic else 1)
