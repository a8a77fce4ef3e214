"""What a claim is, and how a verdict comes about.

A verdict is never written down as a result: `expected` is what the ledger says, `check` computes
which parts of the claim hold, and the two are compared whenever the ledger is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The outcome for a claim."""

    PROVEN = "proven"
    TESTED = "true for tested cases"
    IMPRECISE = "imprecise"
    FALSE = "false"


@dataclass(frozen=True)
class Finding:
    """What a check found: the verdict and the witness, a proof or a counterexample."""

    verdict: Verdict
    witness: str


@dataclass(frozen=True)
class Claim:
    """One claim of the source notes.

    Attributes
    ----------
    key
        A short name.
    statement, latex
        The claim as stated, as text and in LaTeX.
    expected
        The verdict on record.
    corrected, corrected_latex
        What is true instead; empty if the claim stands.
    check
        Computes the finding.
    """

    key: str
    statement: str
    latex: str
    expected: Verdict
    check: Callable[[], Finding]
    corrected: str = ""
    corrected_latex: str = ""


def proven(witness: str, *identities: bool) -> Finding:
    """PROVEN if every identity holds; FALSE otherwise."""
    return _all(Verdict.PROVEN, witness, identities)


def tested(witness: str, *cases: bool) -> Finding:
    """TESTED if every case holds; FALSE otherwise."""
    return _all(Verdict.TESTED, witness, cases)


def refuted(witness: str, claim_fails: bool, correction_holds: bool) -> Finding:
    """FALSE if the claim fails at the counterexample and the corrected statement holds.

    A claim that does not fail counts as tested; a correction that does not hold is an error, for
    then the ledger has nothing true to say.
    """
    if not correction_holds:
        raise ArithmeticError("the corrected statement does not hold")
    return Finding(Verdict.FALSE if claim_fails else Verdict.TESTED, witness)


def imprecise(witness: str, part_that_holds: bool, part_that_fails: bool) -> Finding:
    """IMPRECISE if one part holds and another fails; TESTED or FALSE if all or nothing holds."""
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
