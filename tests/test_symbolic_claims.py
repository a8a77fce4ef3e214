"""The ledger: verdicts as recorded, and a place in it for every line of the notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symbolic.claims import ledger
from symbolic.claims.ledger import (
    Verdict,
    claims,
    judge,
    notes,
    problems,
)


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.key)
def test_the_verdict_is_the_one_on_record(claim: Any) -> None:
    entry = judge(claim)
    assert not entry.changed, entry.finding
    assert entry.finding.witness


def test_the_ledger_is_well_formed() -> None:
    mended = (Verdict.IMPRECISE, Verdict.FALSE)
    for claim in claims():
        assert bool(claim.corrected) == (claim.expected in mended), claim.key
        assert bool(claim.latex) != bool(claim.passages), claim.key
        if claim.latex:
            assert bool(claim.corrected_latex) == bool(claim.corrected), claim.key
        if claim.passages:
            assert bool(claim.why) == bool(claim.corrected), claim.key
            assert len(claim.why) <= 160, claim.key
        if claim.test:
            file, _, name = claim.test.partition("::")
            source = (Path(__file__).parent / file).read_text(encoding="utf-8")
            assert f"def {name}(" in source, claim.key


def test_verdicts_follow_from_facts() -> None:
    assert ledger.proven(True, True).verdict is Verdict.PROVEN
    assert ledger.proven(True, False).verdict is Verdict.FALSE
    assert ledger.tested(True).verdict is Verdict.TESTED
    assert ledger.tested(False).verdict is Verdict.FALSE
    assert ledger.refuted(claim_fails=True, correction_holds=True).verdict is Verdict.FALSE
    assert ledger.refuted(claim_fails=False, correction_holds=True).verdict is Verdict.TESTED
    assert ledger.imprecise(True, True).verdict is Verdict.IMPRECISE
    assert ledger.imprecise(True, False).verdict is Verdict.TESTED
    assert ledger.imprecise(False, True).verdict is Verdict.FALSE
    with pytest.raises(ArithmeticError, match="the corrected statement does not hold"):
        ledger.refuted(claim_fails=True, correction_holds=False)
    with pytest.raises(ValueError, match="at least one computed fact is needed"):
        ledger.proven()


def test_every_line_of_the_notes_is_in_one_row_and_every_statement_has_its_claim() -> None:
    assert problems(notes()) == []
