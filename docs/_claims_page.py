"""The pages for authors: what is right, what to mend and what is wrong in the notes and papers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from symbolic.claims.ledger import (
    DOCUMENTS,
    PAPERS,
    Document,
    Entry,
    Verdict,
    claims,
    judge_all,
    select,
)
from symbolic.claims.text import by_passage

SECTIONS: Mapping[str, tuple[Verdict, ...]] = {
    "Wrong": (Verdict.FALSE,),
    "Fix this": (Verdict.IMPRECISE,),
    "Right": (Verdict.PROVEN, Verdict.TESTED),
    "Not to be judged": (Verdict.NOT_JUDGED,),
}
"""The sections of a document and the verdicts that they hold, the most urgent first."""

WORDS: Mapping[Verdict, str] = {verdict: verdict.value for verdict in Verdict} | {
    Verdict.TESTED: "tested",
    Verdict.NOT_JUDGED: "not judged",
}
"""The verdicts in a list of lines."""


@cache
def judged() -> dict[str, Entry]:
    """Return all entries by key."""
    return {entry.claim.key: entry for entry in judge_all(claims())}


def authors_page() -> str:
    """Return the page in Markdown: for each document, a table for each section."""
    return "\n".join(line for document in DOCUMENTS.values() for line in _document(document))


def papers_page() -> str:
    """Return a table for each paper whose abstract is judged, in Markdown."""
    lines = []
    for source, title in PAPERS.items():
        lines += [f"## {title} (arXiv {source})", ""]
        lines += [
            "| statement | verdict | instead, or why not | claim |",
            "| --- | --- | --- | --- |",
        ]
        for entry in _of(source):
            claim, verdict = entry.claim, entry.finding.verdict
            note = entry.finding.witness if verdict is Verdict.NOT_JUDGED else claim.corrected
            lines.append(_row(claim.statement, verdict.value, note, f"`{claim.key}`"))
        lines.append("")
    return "\n".join(lines)


def _of(source: str) -> list[Entry]:
    return [judged()[claim.key] for claim in select(source)]


def _document(document: Document) -> Iterator[str]:
    entries = sorted(_of(document.name), key=lambda e: _places(e, document))
    yield from (f"## {document.name}: {document.title}", "")
    words = {entry.claim.key: WORDS[entry.finding.verdict] for entry in entries}
    lines = [
        f"{str(passage).partition(':')[2]} {', '.join(words[claim.key] for claim in judging)}"
        for passage, judging in by_passage(document).items()
        if judging
    ]
    yield from (f"Every judged line: {'; '.join(lines)}. The others state nothing.", "")
    for title, verdicts in SECTIONS.items():
        chosen = [entry for entry in entries if entry.finding.verdict in verdicts]
        if chosen:
            yield from (f"### {title} ({document.name})", "")
            yield from _table(chosen, document, mended=title in ("Wrong", "Fix this"))
            yield ""


def _places(entry: Entry, document: Document) -> list[int]:
    return [p.first for p in entry.claim.passages if p.document == document.name]


def _table(entries: Iterable[Entry], document: Document, mended: bool) -> Iterator[str]:
    """A row for each entry: lines, what they say, what to write instead and why, or the verdict."""
    if mended:
        yield from ("| line | printed | write instead | why |", "| --- | --- | --- | --- |")
    else:
        yield from ("| line | statement | verdict | claim |", "| --- | --- | --- | --- |")
    for entry in entries:
        claim, verdict = entry.claim, entry.finding.verdict
        passages = (p for p in claim.passages if p.document == document.name)
        lines = ", ".join(str(p).partition(":")[2] for p in passages)
        if mended:
            cells = [claim.statement, claim.corrected, f"{claim.why} (`{claim.key}`)"]
        elif verdict is Verdict.NOT_JUDGED:
            cells = [claim.statement, entry.finding.witness, f"`{claim.key}`"]
        else:
            cells = [claim.statement, verdict.value, f"`{claim.key}`"]
        yield _row(lines, *cells)


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """The text with what Markdown would read as a link, stress, a tag or the end of a cell."""
    return "".join("\\" + character if character in "[]*<|" else character for character in text)
