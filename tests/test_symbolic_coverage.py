"""Every line of the notes has its place in the ledger."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from symbolic.claims import ledger
from symbolic.claims.ledger import (
    SOURCES,
    Claim,
    Document,
    Passage,
    Row,
    Verdict,
    claims,
    digest,
    notes,
    problems,
    problems_with_documents,
    select,
)
from symbolic.commands import main

ROOT = Path(__file__).parents[1]


def test_every_line_of_the_notes_is_in_one_row_and_every_statement_has_its_claim() -> None:
    assert problems(notes()) == []


TEXT = "# Title\n\nOne is $1 = 1$.\nTwo is\n$2 = 3$,\n\nas everybody knows.\n"
LINES = TEXT.split("\n")
CLAIM = Claim(
    "two", "900", "Two is three.", Verdict.NOT_JUDGED, None,
    passages=(Passage.at("900:4-5", "2=3"),),
)  # fmt: skip


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[Row], Path]:
    """A document of seven lines with three rows, in a folder."""
    here = [
        Row(Passage("900", 1, 1), digest(LINES[:1]), "title"),
        Row(Passage("900", 3, 3), digest(LINES[2:3]), "definition of one"),
        Row(Passage("900", 4, 5), digest(LINES[3:5])),
        Row(Passage("900", 7, 7), digest(LINES[6:7]), "rhetoric"),
    ]
    whole = hashlib.sha256(TEXT.encode()).hexdigest()
    document = Document("900", "Numbers", 7, frozenset({2, 6}), whole, here)  # type: ignore[arg-type]
    monkeypatch.setattr(ledger, "DOCUMENTS", {"900": document})
    (tmp_path / "900_numbers.txt").write_text(TEXT, encoding="utf-8")
    return here, tmp_path


def test_a_complete_table_has_no_problems(numbers: tuple[list[Row], Path]) -> None:
    assert problems([CLAIM]) == []
    assert problems_with_documents([CLAIM], numbers[1]) == []


def test_what_is_incomplete_is_seen(numbers: tuple[list[Row], Path]) -> None:
    """Negative controls: a row, a claim, a passage that is missing, and a line twice."""
    assert problems([]) == ["900:4-5: no claim judges it"]
    elsewhere = replace(CLAIM, passages=(Passage.at("900:4"), Passage.at("900:7")))
    assert problems([elsewhere]) == [
        "900:4-5: no claim judges it",
        "900:7: a claim judges it",
        "900:4 is no row of the table",
    ]
    rows, _ = numbers
    last = rows.pop()
    assert problems([CLAIM]) == ["900:7: in no row of the table"]
    rows += [last, last]
    assert problems([CLAIM]) == ["900:7: in 2 rows of the table"]


def test_another_text_is_seen(numbers: tuple[list[Row], Path]) -> None:
    """Negative controls: a formula that is not printed, and a document that was edited."""
    _, folder = numbers
    misquoted = replace(CLAIM, passages=(Passage.at("900:4-5", "2=2"),))
    assert problems_with_documents([misquoted], folder) == ["two: 2=2 is not printed at 900:4-5"]
    (folder / "900_numbers.txt").write_text(TEXT.replace("One", "Uno"), encoding="utf-8")
    found = problems_with_documents([CLAIM], folder)
    assert found[0] == "900: 900_numbers.txt is another document"
    assert found[1].startswith("900:3: the digest of these lines is ")
    with pytest.raises(FileNotFoundError, match="has no file whose name begins with 900"):
        problems_with_documents([CLAIM], folder / "nowhere")


def test_claims_are_selected_by_source_and_line() -> None:
    by_source = [claim for source in SOURCES for claim in select(source)]
    assert set(by_source) == set(claims())
    for source in SOURCES:
        assert len(set(select(source))) == len(select(source)), source
    assert [claim.key for claim in select("003:95")] == ["svd-terms-orthogonal"]
    assert select("3:95") == select("003:95")
    assert select("4:96-104") == select("004:100")
    assert set(select("004:360-361")) == {*select("004:360"), *select("004:361")}
    assert select("003:1-95") == select("003")
    for wrong in (
        "005",
        "003:0",
        "003:96",
        "003:x",
        "exact-laws:3",
        "",
        "4:9-",
        "4:9-8",
        "4:1-2-3",
    ):
        with pytest.raises(ValueError, match="source must"):
            select(wrong)


def run(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["claims", *options])
    return result.exit_code, result.output


def test_commands_find_the_verdict_on_a_line() -> None:
    status, text = run("--source", "003:95")
    assert (status, text.split("\n")[0]) == (0, "PROVEN  svd-terms-orthogonal  003:95")
    status, text = run("--source", "003:76-89", "--verdict", "FALSE")
    assert status == 0
    heads = [line for line in text.split("\n") if line and not line.startswith(" ")]
    assert len(heads) > 1
    assert all(head.startswith("FALSE  ") for head in heads[:-1])
    for options in (
        ("--source", "005"),
        ("--source", "003:95-96"),
        ("--source", "003:1", "--only", "svd"),
        ("--verdict", "wrong"),
        ("--notes", str(ROOT)),
        ("--coverage", "--latex"),
        ("--coverage", "--notes", str(ROOT)),
    ):
        assert run(*options)[0] == 2, options


def test_lines_that_state_nothing_are_shown_with_what_is_on_them() -> None:
    status, text = run("--source", "1:2")
    assert (status, text) == (
        0,
        "001:2-3 states nothing: definition of the proportional limit, L/n tends to d/w\n",
    )
    assert run("--source", "003:1-2") == (0, "003:1 states nothing: heading\n003:2 is blank\n")


def test_the_table_of_coverage_ends_with_its_summary() -> None:
    status, text = run("--coverage")
    assert status == 0
    last = text.rstrip("\n").split("\n")[-1]
    assert last.startswith(f"{len(notes())} statements at ")
    assert last.endswith("; complete")


def test_an_incomplete_table_has_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without its last row, a line of the notes is in no row."""
    document = ledger.DOCUMENTS["003"]
    monkeypatch.setitem(ledger.DOCUMENTS, "003", replace(document, rows=document.rows[:-1]))
    status, text = run("--coverage")
    assert status == 1
    assert "003:95: in no row of the table\n" in text
    assert "INCOMPLETE" in text.rstrip("\n").split("\n")[-1]
