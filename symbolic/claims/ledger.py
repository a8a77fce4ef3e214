"""Claims, as tables state them and functions check them.

``003.toml`` has the claims of document 003: where it prints them, what is claimed, the verdict on
record, what holds instead and why. The function of a claim has its key as its name; it computes
which parts hold, and the verdict that follows is compared with the one on record whenever the
ledger is run. A claim that only a simulation shows names its test, and one that cannot be judged
gives the reason.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

NOTES_FILES = ("000", "001", "002", "003", "004")
FILES = (*NOTES_FILES, "papers", "exact_laws", "architectures")
SUBJECTS = (
    "proportional_limit", "bilinear_forms", "particles", "clustering", "transport",
    "random_layers", "explosion", "architectures", "norms",
)  # fmt: skip

PAPERS = {
    "2510.22026": "Normalization in attention dynamics",
    "2512.01868": "The mean-field dynamics of transformers",
    "2601.21942": "Clustering in deep stochastic transformers",
    "2604.01978": "Homogenized transformers",
    "2604.26898": "Stochastic scaling limits and synchronization by noise",
}
"""The papers whose abstracts are judged, with their titles."""


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
    formulas: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def at(cls, place: str, *formulas: str) -> Passage:
        """Return a passage of one line, as in "003:95", or of lines, as in "003:9-14"."""
        document, _, lines = place.partition(":")
        first, _, last = lines.partition("-")
        return cls(document, int(first), int(last or first), formulas)

    @property
    def numbers(self) -> range:
        """The line numbers of the passage."""
        return range(self.first, self.last + 1)

    def overlaps(self, other: Passage) -> bool:
        """Return whether the two have a line in common."""
        same = self.document == other.document
        return same and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        last = f"-{self.last}" if self.last > self.first else ""
        return f"{self.document}:{self.first}{last}"


@dataclass(frozen=True)
class Finding:
    """Finding of a check: the verdict and the witness, a proof, counterexample or reason."""

    verdict: Verdict
    witness: str = ""


@dataclass(frozen=True)
class Claim:
    """A row of a table, with the function that checks it.

    `latex` and `instead_latex` are the formulas of a claim that the notes do not print; the
    passages of the others quote them. `witness` is that of the row, unless a fact fails,
    `why` the reason in one line, and `test` the test in ``tests/`` that shows it. `method` says how
    a proven claim is: "proven" if the machine does the whole, for symbolic sizes, and "identities
    verified" if the words of the witness carry the last step.
    """

    key: str
    source: str
    statement: str
    expected: Verdict
    check: Callable[[], Finding] | None
    latex: str = ""
    corrected: str = ""
    corrected_latex: str = ""
    passages: tuple[Passage, ...] = ()
    why: str = ""
    witness: str = ""
    test: str = ""
    method: str = ""

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


def proven(*identities: bool) -> Finding:
    """Return PROVEN if every identity holds, FALSE otherwise."""
    return _all(Verdict.PROVEN, identities)


def tested(*cases: bool) -> Finding:
    """Return TESTED if every case holds, FALSE otherwise."""
    return _all(Verdict.TESTED, cases)


def refuted(claim_fails: bool, correction_holds: bool) -> Finding:
    """Return FALSE if the claim fails at the counterexample and the corrected statement holds.

    A claim that does not fail counts as tested. A correction that does not hold raises
    ArithmeticError, since the ledger then has no true statement to print.
    """
    if not correction_holds:
        raise ArithmeticError("the corrected statement does not hold")
    return Finding(Verdict.FALSE if claim_fails else Verdict.TESTED)


def imprecise(part_that_holds: bool, part_that_fails: bool) -> Finding:
    """Return IMPRECISE if one part holds and one fails, TESTED if all holds, FALSE otherwise."""
    if part_that_holds and part_that_fails:
        return Finding(Verdict.IMPRECISE)
    return Finding(Verdict.TESTED if part_that_holds else Verdict.FALSE)


def _all(verdict: Verdict, facts: tuple[bool, ...]) -> Finding:
    if not facts:
        raise ValueError("facts=(): at least one computed fact is needed")
    for k, fact in enumerate(facts, 1):
        if not fact:
            return Finding(Verdict.FALSE, f"fact {k} of {len(facts)} fails")
    return Finding(verdict)


@dataclass(frozen=True)
class Document:
    """A document of the notes, which is no part of the repository.

    `silent` says what is on the lines that state nothing. Claims judge the others, unless they are
    blank.
    """

    name: str
    title: str
    lines: int
    blank: frozenset[int]
    digest: str
    silent: Mapping[Passage, str]


_IDENTITIES = "identities verified"
"""The verdict "proven" where words carry the last step."""


def _table(name: str) -> dict[str, Any]:
    """Return the rows of a table by their keys; those from one source are a table in the file."""
    text = (files("symbolic.claims") / f"{name}.toml").read_text(encoding="utf-8")
    rows: dict[str, Any] = {}
    for key, row in tomllib.loads(text).items():
        alone = key == "document" or "claim" in row
        rows |= {key: row} if alone else {k: {"source": key, **inside} for k, inside in row.items()}
    for row in rows.values():
        if row.get("verdict") == _IDENTITIES:
            row |= {"verdict": "proven", "method": _IDENTITIES}
    return rows


def _document(name: str) -> Document:
    table = _table(name)["document"]
    silent = {Passage.at(f"{name}:{lines}"): what for lines, what in table["silent"].items()}
    gaps = (Passage.at(f"{name}:{lines}") for lines in table["blank"].split())
    blank = frozenset(n for gap in gaps for n in gap.numbers)
    return Document(name, table["title"], table["lines"], blank, table["digest"], silent)


DOCUMENTS = {name: _document(name) for name in NOTES_FILES}
"""The documents of the notes by their numbers."""


@cache
def claims() -> tuple[Claim, ...]:
    """Return all claims: those of the notes in the order of their lines, then the others.

    Raises
    ------
    ValueError
        If a key is used twice, a claim has no check, or a check no claim.
    """
    modules = [import_module(f"symbolic.claims.{name}") for name in SUBJECTS]
    checks = {
        name: function
        for module in modules
        for name, function in vars(module).items()
        if getattr(function, "__annotations__", {}).get("return") == "Finding"
        and function.__module__ == module.__name__
        and not name.startswith("_")
    }
    made = [
        _claim(name, key, row, checks.get(_name(key)))
        for name in FILES
        for key, row in _table(name).items()
        if key != "document"
    ]
    taken = Counter(_name(x.key) for x in made)
    wrong = [f"{name} is the key of {count} claims" for name, count in taken.items() if count > 1]
    wrong += [f"no claim has the check {name}" for name in checks.keys() - taken.keys()]
    wrong += [
        f"{x.key} has no check"
        for x in made
        if x.check is None and x.expected is not Verdict.NOT_JUDGED and not x.test
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    return (
        *sorted((x for x in made if x.passages), key=lambda x: x.passages),
        *(x for x in made if not x.passages),
    )


def _name(key: str) -> str:
    """Return the name of the check of a claim."""
    return re.sub(r"\W", "_", key)


def _claim(name: str, key: str, row: Mapping[str, Any], check: Any) -> Claim:
    names = {"instead": "corrected", "instead_latex": "corrected_latex"}
    words = {names.get(column, column): content for column, content in row.items()}
    statement, verdict = words.pop("claim"), Verdict(words.pop("verdict"))
    source, printed = words.pop("source", name), words.pop("printed", ())
    passages = tuple(Passage.at(*place) for place in printed)
    return Claim(key, source, statement, verdict, check, passages=passages, **words)


def notes() -> tuple[Claim, ...]:
    """Return the claims of the notes."""
    return tuple(x for x in claims() if x.passages)


SOURCES = tuple(
    dict.fromkeys(row.get("source", name) for name in FILES for row in _table(name).values())
)
"""The names by which `select` knows the sources."""


def select(source: str) -> tuple[Claim, ...]:
    """Return the claims of a source, or those on lines of a document: "003:95", "4:96-104".

    Raises
    ------
    ValueError
        If there is no such source or line.
    """
    if source not in DOCUMENTS and source in SOURCES:
        return tuple(x for x in claims() if x.source == source and not x.passages)
    here = lines_of(source)
    return tuple(x for x in notes() if any(map(here.overlaps, x.passages)))


def lines_of(source: str) -> Passage:
    """Return the lines of the notes that a source such as "003", "003:95", "4:96-104" names.

    Raises
    ------
    ValueError
        If there is no such document or line.
    """
    match = re.fullmatch(r"(\d+)(?::(\d+)(?:-(\d+))?)?", source)
    name = match[1].zfill(3) if match else ""
    if match is None or name not in DOCUMENTS:
        raise ValueError(
            f"source must be one of {', '.join(SOURCES)}, or lines of the notes such as 003:95 "
            f"or 004:96-104; got {source!r}"
        )
    size = DOCUMENTS[name].lines
    first, last = int(match[2] or 1), int(match[3] or match[2] or size)
    if not 1 <= first <= last <= size:
        raise ValueError(f"source must name lines from 1 to {size} of {name}; got {source!r}")
    return Passage(name, first, last)


@dataclass(frozen=True)
class Entry:
    """Claim with the finding of its check."""

    claim: Claim
    finding: Finding

    @property
    def changed(self) -> bool:
        """Whether the verdict differs from the one on record."""
        return self.finding.verdict is not self.claim.expected


def judge(claim: Claim) -> Entry:
    """Run one claim's check."""
    found = Finding(claim.expected) if claim.check is None else claim.check()
    return Entry(claim, Finding(found.verdict, found.witness or claim.witness))


_FEW = 12
"""Claims for which other processes take longer to start than they save."""


def judge_all(claims: Sequence[Claim]) -> Iterator[Entry]:
    """Run the checks, many of them on all processors, and yield the entries in this order."""
    if len(claims) <= _FEW:
        yield from map(judge, claims)
        return
    with ProcessPoolExecutor() as pool:
        yield from pool.map(judge, claims)


def problems(claims: Sequence[Claim]) -> list[str]:
    """Return which lines are in no passage that claims judge or that states nothing, or in two."""
    result: list[str] = []
    judged = {x for claim in claims for x in claim.passages}
    for document in DOCUMENTS.values():
        passages = [*document.silent, *(x for x in judged if x.document == document.name)]
        covered = Counter(n for passage in passages for n in passage.numbers)
        result += [
            f"{document.name}:{line}: in {covered[line]} passages"
            for line in range(1, document.lines + 1)
            if covered[line] > 1 or (covered[line] == 0 and line not in document.blank)
        ]
    return result


def problems_with_documents(claims: Sequence[Claim], folder: Path) -> list[str]:
    """Return where table and claims differ from the documents in a folder.

    The name of a document's file begins with its number. Its digest, its blank lines and
    the formulas that claims quote are compared.

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
        result += [
            f"{claim.key}: {formula} is not printed at {passage}"
            for claim in claims
            for passage in claim.passages
            if passage.document == document.name
            for formula in passage.formulas
            if _bare(formula) not in _bare("".join(lines[passage.first - 1 : passage.last]))
        ]
    return result


def _bare(text: str) -> str:
    """The text without space and dollars."""
    return "".join(text.split()).replace("$", "")
