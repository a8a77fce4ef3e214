"""Which line of the notes is judged by which claim: nothing is left out, nothing invented.

The documents are no part of the repository. ``statements/documents.csv`` keeps their digests and
``statements/003.csv`` divides the lines of document 003 that are not blank into rows: the claims
that judge what the lines state, or none, if they state nothing (headings, definitions, pictures),
and what is on the lines. A row's digest identifies its text.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from symbolic.claims.ledger import Claim, Passage, Verdict

_FOLDER = files("symbolic.claims") / "statements"


@dataclass(frozen=True)
class Document:
    """A document of the notes: title, number of lines, the blank ones, digest of the whole."""

    name: str
    title: str
    lines: int
    blank: frozenset[int]
    digest: str


@dataclass(frozen=True)
class Row:
    """Some lines of a document: their digest, the keys of their claims, what is on them."""

    passage: Passage
    digest: str
    keys: tuple[str, ...]
    content: str


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of ranges such as ``2 4-6``."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _table(name: str) -> list[dict[str, str]]:
    text = (_FOLDER / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


DOCUMENTS: dict[str, Document] = {
    row["document"]: Document(
        row["document"],
        row["title"],
        int(row["lines"]),
        frozenset(_numbers(row["blank"])),
        row["digest"],
    )
    for row in _table("documents")
}
"""The source documents by their numbers."""


def rows(document: str) -> list[Row]:
    """Return the rows of a document, in the order of the lines."""
    result = []
    for row in _table(document):
        numbers = list(_numbers(row["lines"]))
        passage = Passage(document, numbers[0], numbers[-1])
        result.append(Row(passage, row["digest"], tuple(row["claims"].split()), row["content"]))
    return result


def all_rows() -> list[Row]:
    """Return the rows of all documents."""
    return [row for document in DOCUMENTS for row in rows(document)]


def problems(claims: Sequence[Claim]) -> list[str]:
    """Return what is incomplete: lines in no row, rows without their claim and the reverse."""
    known = {claim.key: claim for claim in claims}
    result = []
    for document in DOCUMENTS.values():
        here = rows(document.name)
        covered = Counter(n for r in here for n in range(r.passage.first, r.passage.last + 1))
        for line in range(1, document.lines + 1):
            if covered[line] == 0 and line not in document.blank:
                result.append(f"{document.name}:{line}: in no row of the table")
            if covered[line] > 1:
                result.append(f"{document.name}:{line}: in {covered[line]} rows of the table")
        for row in here:
            for key in row.keys:
                if key not in known:
                    result.append(f"{row.passage}: there is no claim {key}")
                elif row.passage not in map(_lines, known[key].passages):
                    result.append(f"{row.passage}: {key} does not name these lines")
    named = {(row.passage, key) for row in all_rows() for key in row.keys}
    result += [
        f"{claim.key}: {passage} is not in the table with this key"
        for claim in claims
        for passage in claim.passages
        if (_lines(passage), claim.key) not in named
    ]
    return result


def _lines(passage: Passage) -> Passage:
    """The passage without its formulas."""
    return Passage(passage.document, passage.first, passage.last)


def digest(lines: Iterable[str]) -> str:
    """Return the digest of some lines; blank ones and space at their ends do not count."""
    text = "\n".join(line.strip() for line in lines if line.strip())
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def problems_with_documents(claims: Sequence[Claim], folder: Path) -> list[str]:
    """Return where table and claims differ from the documents in a folder.

    The name of a document's file begins with its number. Its digest, its blank lines, the digest of
    every row and the formulas that claims quote are compared.

    Raises
    ------
    FileNotFoundError
        If a document is not in the folder.
    """
    result = []
    for document in DOCUMENTS.values():
        paths = sorted(folder.glob(f"{document.name}*"))
        if not paths:
            raise FileNotFoundError(f"{folder} has no file whose name begins with {document.name}")
        content = paths[0].read_bytes()
        if hashlib.sha256(content).hexdigest() != document.digest:
            result.append(f"{document.name}: {paths[0].name} is another document")
        lines = content.decode().split("\n")
        blank = {k for k in range(1, document.lines + 1) if not "".join(lines[k - 1 : k]).strip()}
        if blank != document.blank:
            result.append(f"{document.name}: other lines are blank")
        for row in rows(document.name):
            text = lines[row.passage.first - 1 : row.passage.last]
            if digest(text) != row.digest:
                result.append(f"{row.passage}: the digest of these lines is {digest(text)}")
        for claim in claims:
            for passage in claim.passages:
                if passage.document != document.name:
                    continue
                text = lines[passage.first - 1 : passage.last]
                result += [
                    f"{claim.key}: {formula} is not printed at {passage}"
                    for formula in passage.formulas
                    if _bare(formula) not in _bare("".join(text))
                ]
    return result


def _bare(text: str) -> str:
    """The text without space and dollars."""
    return "".join(text.split()).replace("$", "")


def table(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield a line for each statement of the notes: place, verdict, claim, content."""
    for row in all_rows():
        for key in row.keys:
            verdict = verdicts[key].value.upper() if key in verdicts else "NO SUCH CLAIM"
            yield f"{row.passage!s:12} {verdict:22} {key}"
        if not row.keys:
            yield f"{row.passage!s:12} {'-':22} {row.content}"


def without_statement(lines: Passage) -> Iterator[str]:
    """Yield what is on the rows among these lines that state nothing, and which lines are blank."""
    for row in rows(lines.document):
        if not row.keys and lines.overlaps(row.passage):
            yield f"{row.passage} states nothing: {row.content}"
    for line in sorted(DOCUMENTS[lines.document].blank):
        if lines.first <= line <= lines.last:
            yield f"{lines.document}:{line} is blank"


def coverage_summary(verdicts: Mapping[str, Verdict]) -> str:
    """Return how many statements there are and how many have which verdict, in one line."""
    keys = [key for row in all_rows() for key in row.keys]
    counts = Counter(verdicts[key] for key in set(keys) if key in verdicts)
    parts = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    lines = sum(document.lines - len(document.blank) for document in DOCUMENTS.values())
    return (
        f"{len(set(keys))} statements at {len(keys)} places of {len(DOCUMENTS)} documents "
        f"({lines} lines): {parts}"
    )
