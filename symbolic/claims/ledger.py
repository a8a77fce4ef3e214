"""Claims, and how a verdict is reached.

A verdict is always computed: `expected` is the verdict on record, `check` computes which parts of
the claim hold, and the two are compared whenever the ledger is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Outcome for a claim."""

    PROVEN = "proven"
    TESTED = "true for tested cases"
    IMPRECISE = "imprecise"
    FALSE = "false"


@dataclass(frozen=True)
class Finding:
    """Finding of a check: the verdict and the witness, a proof or a counterexample."""

    verdict: Verdict
    witness: str


@dataclass(frozen=True)
class Claim:
    """Claim of the source notes, of the page on exact laws, or on the limit of an architecture.

    Attributes
    ----------
    key
        A short name.
    statement, latex
        The claim as stated, in text and in LaTeX.
    expected
        The verdict on record.
    corrected, corrected_latex
        The corrected claim; empty if the claim holds as stated.
    check
        Function that computes the finding.
    """

    key: str
    statement: str
    latex: str
    expected: Verdict
    check: Callable[[], Finding]
    corrected: str = ""
    corrected_latex: str = ""


def proven(witness: str, *identities: bool) -> Finding:
    """Return PROVEN if every identity holds, FALSE otherwise."""
    return _all(Verdict.PROVEN, witness, identities)


def tested(witness: str, *cases: bool) -> Finding:
    """Return TESTED if every case holds, FALSE otherwise."""
    return _all(Verdict.TESTED, witness, cases)


def refuted(witness: str, claim_fails: bool, correction_holds: bool) -> Finding:
    """Return FALSE if the claim fails at the counterexample and the corrected statement holds.

    A claim that does not fail counts as tested. A correction that does not hold raises
    ArithmeticError, since the ledger then has no true statement to print.
    """
    if not correction_holds:
        raise ArithmeticError("the corrected statement does not hold")
    return Finding(Verdict.FALSE if claim_fails else Verdict.TESTED, witness)


def imprecise(witness: str, part_that_holds: bool, part_that_fails: bool) -> Finding:
    """Return IMPRECISE if one part holds and one fails, TESTED if all holds, FALSE otherwise."""
    if part_that_holds and part_that_fails:
        return Finding(Verdict.IMPRECISE, witness)
    return Finding(Verdict.TESTED if part_that_holds else Verdict.FALSE, witness)


def _all(verdict: Verdict, witness: str, facts: tuple[bool, ...]) -> Finding:
    if not facts:
        raise ValueError("facts=(): at least one computed fact is needed")
    failures = [k + 1 for k, fact in enumerate(facts) if not fact]
    if failures:
        return Finding(Verdict.FALSE, f"fact {failures[0]} of {len(facts)} fails")
    return Finding(verdict, witness)
