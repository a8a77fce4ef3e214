"""The ledger: verdicts as recorded, and a place in it for every line of the notes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symbolic.claims import ledger
from symbolic.claims.ledger import (
    Claim,
    Document,
    Passage,
    Verdict,
    claims,
    judge,
    notes,
    problems,
    problems_with_documents,
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


# The lines of the notes.


def test_every_line_of_the_notes_is_in_one_row_and_every_statement_has_its_claim() -> None:
    assert problems(notes()) == []


TEXT = "# Title\n\nOne is $1 = 1$.\nTwo is\n$2 = 3$,\n\nas everybody knows.\n"
CLAIM = Claim(
    key="two",
    source="900",
    statement="Two is three.",
    expected=Verdict.NOT_JUDGED,
    check=None,
    passages=(Passage.at("900:4-5", "2=3"),),
)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[dict[Passage, str], Path]:
    """What is on the lines of a document of seven lines that state nothing, and its folder."""
    silent = {Passage("900", 1, 1): "title", Passage("900", 3, 3): "definition of one"}
    silent |= {Passage("900", 7, 7): "rhetoric"}
    whole = hashlib.sha256(TEXT.encode()).hexdigest()
    document = Document("900", "Numbers", 7, frozenset({2, 6}), whole, silent)
    monkeypatch.setattr(ledger, "DOCUMENTS", {"900": document})
    (tmp_path / "900_numbers.txt").write_text(TEXT, encoding="utf-8")
    return silent, tmp_path


def test_what_is_incomplete_is_seen(numbers: tuple[dict[Passage, str], Path]) -> None:
    """A claim, a line of its passage or of those that state nothing is missing or there twice."""
    silent, _ = numbers
    assert problems([CLAIM]) == []
    assert problems([]) == ["900:4: in 0 passages", "900:5: in 0 passages"]
    elsewhere = replace(CLAIM, passages=(Passage.at("900:4"), Passage.at("900:7")))
    assert problems([elsewhere]) == ["900:5: in 0 passages", "900:7: in 2 passages"]
    silent.popitem()
    assert problems([CLAIM]) == ["900:7: in 0 passages"]


def test_another_text_is_seen(numbers: tuple[dict[Passage, str], Path]) -> None:
    """A formula is not printed, and a document was edited."""
    _, folder = numbers
    assert problems_with_documents([CLAIM], folder) == []
    misquoted = replace(CLAIM, passages=(Passage.at("900:4-5", "2=2"),))
    assert problems_with_documents([misquoted], folder) == ["two: 2=2 is not printed at 900:4-5"]
    (folder / "900_numbers.txt").write_text(TEXT.replace("One", "Uno"), encoding="utf-8")
    found = problems_with_documents([CLAIM], folder)
    assert found == ["900: 900_numbers.txt is another document"]
    with pytest.raises(FileNotFoundError, match="has no file whose name begins with 900"):
        problems_with_documents([CLAIM], folder / "nowhere")
