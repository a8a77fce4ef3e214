"""Proofs that the derived coefficients are the closed forms.

For few tokens the two are compared as polynomials: equal coefficients are an identity for all V.
For more tokens they are compared at random rational V, in exact arithmetic. A nonzero polynomial
rarely vanishes at a random point (Schwartz 1980; Zippel 1979), so agreement at a few points is
strong evidence, but only the comparison of polynomials is a proof.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, rational_covariance
from symbolic.checks import check_count, check_tokens
from symbolic.closed_forms import closed_form
from symbolic.limit import Layer, Limit, blocks_of, derive

LARGEST_EXACT = 5
"""Most tokens for which identities of polynomials are proven; 5 take seconds, 6 minutes."""

LARGEST_AT_POINTS = 12
"""Most tokens for which the coefficients are compared at rational points."""


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
    difference
        The first difference found, as text.
    """

    holds: bool | None
    entries: int = 0
    points: int = 0
    difference: str = ""

    def __str__(self) -> str:
        if self.holds is None:
            return "not compared: no closed form is recorded for this block"
        if not self.holds:
            return f"DISPROVED: {self.difference}"
        if self.points:
            return (
                f"true at {self.points} random rational V, exactly: {self.entries} entries of "
                "drift and diffusion agree with the closed form"
            )
        return (
            f"proven: {self.entries} entries of drift and diffusion minus the closed form are the "
            "zero polynomial"
        )


def prove(layer: Layer, tokens: int) -> Proof:
    """Prove that drift and diffusion of a layer are the closed forms, as polynomials in V.

    Raises
    ------
    ValueError
        If `tokens` is above `LARGEST_EXACT`; `check_at_points` allows more tokens.
    """
    check_exact(tokens)
    return compare(layer, derive(layer, tokens))


def check_at_points(layer: Layer, tokens: int, points: int = 3, seed: int = 0) -> Proof:
    """Compare derivation and closed form at random positive definite rational V, exactly.

    Raises
    ------
    ValueError
        If `tokens` is above `LARGEST_AT_POINTS`, or `points` is not positive.
    """
    check_tokens(tokens)
    check_count("points", points)
    if tokens > LARGEST_AT_POINTS:
        raise ValueError(
            f"tokens={tokens}: at most {LARGEST_AT_POINTS} are possible for a check at points"
        )
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
            f"tokens={tokens}: polynomials in V are derived and proven for at most {LARGEST_EXACT} "
            f"tokens; exact checks at rational points go up to {LARGEST_AT_POINTS}"
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
                    where = f"{name} entry ({i + 1}, {j + 1})"
                    text = f"{where}: derived minus closed form is {entry.as_expr()}"
                    return Proof(False, difference=text)
    entries = sum(matrix.shape[0] * matrix.shape[1] for matrix in derived)
    return Proof(True, entries, points=0 if limit.algebra.is_symbolic else 1)
