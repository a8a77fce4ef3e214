"""Claims, where they are printed, and how a verdict is reached.

A verdict is computed wherever that is possible: `expected` is the verdict on record, `check`
computes which parts of the claim hold, and the two are compared whenever the ledger is run. What
only a simulation shows has a `Simulated` check and names the test that runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Outcome for a claim."""

    PROVEN = "proven"
    TESTED = "true for tested cases"
    IMPRECISE = "imprecise"
    FALSE = "false"
    NOT_JUDGED = "not to be judged"


@dataclass(frozen=True, order=True)
class Passage:
    """Lines `first` to `last` of a source document, and what they print: formulas, word by word.

    A document is named by the number with which the name of its file begins.
    """

    document: str
    first: int
    last: int
    formulas: tuple[str, ...] = ()

    def overlaps(self, other: Passage) -> bool:
        """Return whether the two have a line in common."""
        return (
            self.document == other.document
            and self.first <= other.last
            and other.first <= self.last
        )

    def __str__(self) -> str:
        last = f"-{self.last}" if self.last > self.first else ""
        return f"{self.document}:{self.first}{last}"


def at(place: str, *formulas: str) -> Passage:
    """Return a passage of one line, as in "003:95", or of lines, as in "003:9-14"."""
    document, _, lines = place.partition(":")
    first, _, last = lines.partition("-")
    return Passage(document, int(first), int(last or first), formulas)


@dataclass(frozen=True)
class Finding:
    """Finding of a check: the verdict and the witness, a proof, counterexample or reason."""

    verdict: Verdict
    witness: str


@dataclass(frozen=True)
class Claim:
    """Claim of the source notes, of the papers or on exact laws, or on an architecture's limit.

    Attributes
    ----------
    key
        A short name.
    statement
        What is claimed, in words and plain formulas.
    latex
        The formula in LaTeX; empty for a claim of the notes, whose passages quote it.
    expected
        The verdict on record.
    check
        Function that computes the finding.
    corrected, corrected_latex
        The corrected claim; empty if the claim holds as stated, or cannot be judged.
    passages
        Where the notes print it. The formulas are judged as they stand there.
    why
        For a claim of the notes that is imprecise or false: the reason, in one line.
    test
        The test that shows it, ``file.py::test_name`` in ``tests/``, where no proof does.
    """

    key: str
    statement: str
    latex: str
    expected: Verdict
    check: Callable[[], Finding]
    corrected: str = ""
    corrected_latex: str = ""
    passages: tuple[Passage, ...] = ()
    why: str = ""
    test: str = ""

    @property
    def formula(self) -> str:
        """The formula in LaTeX, with dollars: as printed in the first passage that has one."""
        quoted = (passage.formulas for passage in self.passages if passage.formulas)
        return self.latex or ", ".join(map(_in_dollars, next(quoted, ())))


_COMMAND, _TEXT = re.compile(r"\\[A-Za-z]+"), re.compile(r"\\text\{[^}]*\}")
_WORDS = re.compile(r"\b[A-Za-z]{2,} [a-z]{2,}\b")


def _in_dollars(quotation: str) -> str:
    """Return a formula with dollars, and words in quotation marks, with dollars at commands."""
    if "$" not in quotation and _WORDS.search(_COMMAND.sub("", _TEXT.sub("", quotation))):
        return f'"{_COMMAND.sub(lambda command: f"${command[0]}$", quotation)}"'
    return f"${quotation}$"


def note(
    key: str,
    statement: str,
    expected: Verdict,
    check: Callable[[], Finding],
    *passages: Passage,
    corrected: str = "",
    corrected_latex: str = "",
    why: str = "",
    test: str = "",
) -> Claim:
    """Return a claim of the notes: its passages quote the formulas."""
    return Claim(
        key, statement, "", expected, check, corrected, corrected_latex, passages, why, test
    )


@dataclass(frozen=True)
class Simulated:
    """Check of a claim that a simulation decides: the ledger does not run the package.

    The claim names the test that runs it and would fail for another verdict.
    """

    verdict: Verdict
    witness: str

    def __call__(self) -> Finding:
        """Return what the test establishes."""
        return Finding(self.verdict, self.witness)


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


def not_to_be_judged(reason: str) -> Callable[[], Finding]:
    """Return the check of a sentence that computation cannot decide, for this reason."""
    return lambda: Finding(Verdict.NOT_JUDGED, reason)


def _all(verdict: Verdict, witness: str, facts: tuple[bool, ...]) -> Finding:
    if not facts:
        raise ValueError("facts=(): at least one computed fact is needed")
    failures = [k + 1 for k, fact in enumerate(facts) if not fact]
    if failures:
        return Finding(Verdict.FALSE, f"fact {failures[0]} of {len(facts)} fails")
    return Finding(verdict, witness)
