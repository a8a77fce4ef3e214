"""The ledger in print: paragraphs, a table in LaTeX, and what judges which line of the notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill

from symbolic.claims.ledger import DOCUMENTS, Claim, Document, Entry, Passage, Verdict, notes

WIDTH = 96


def as_text(entry: Entry) -> str:
    """Return a paragraph: verdict and key, statement, correction, reason, witness."""
    claim, finding = entry.claim, entry.finding
    head = f"{finding.verdict.value.upper()}  {claim.key}"
    if claim.passages:
        head += f"  {', '.join(map(str, claim.passages))}"
    if entry.changed:
        head += f"  (VERDICT CHANGED: {claim.expected.value} is on record)"
    lines = [head, _paragraph("claim", claim.statement)]
    if claim.passages and claim.formula:
        lines.append(_paragraph("printed", claim.formula))
    if claim.corrected:
        lines.append(_paragraph("instead", claim.corrected))
    if claim.why:
        lines.append(_paragraph("why", claim.why))
    label = "reason" if finding.verdict is Verdict.NOT_JUDGED else "witness"
    lines.append(_paragraph(label, finding.witness))
    if claim.method and not entry.changed:
        lines.append(
            _paragraph(
                "method", f"{claim.method} by computer algebra; the witness gives the last step"
            )
        )
    if claim.test:
        lines.append(_paragraph("test", f"tests/{claim.test}"))
    return "\n".join(lines)


def summary(entries: Sequence[Entry]) -> str:
    """Return the number of claims for each verdict, and which verdicts have changed."""
    of_notes = [entry for entry in entries if entry.claim.passages]
    changed = [entry.claim.key for entry in entries if entry.changed]
    ending = f"VERDICTS CHANGED: {', '.join(changed)}" if changed else "no verdict has changed"
    text = f"{len(entries)} claim{'s' if len(entries) != 1 else ''}: {_counts(entries)}; {ending}"
    proven = [x for x in entries if x.finding.verdict is Verdict.PROVEN]
    words = sum(bool(x.claim.method) for x in proven)
    if words and len(entries) > len(of_notes):
        text += (
            f"\nof the proven {len(proven) - words} by the machine alone; in {words} it verifies "
            "identities, and words carry the last step"
        )
    if not 0 < len(of_notes) < len(entries):
        return text
    return f"{text}\n{len(of_notes)} of these are statements of the notes: {_counts(of_notes)}"


def _counts(entries: Sequence[Entry]) -> str:
    """Return how many claims have each verdict."""
    counts = Counter(entry.finding.verdict for entry in entries)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


def as_latex(entries: Iterable[Entry]) -> str:
    """Return a longtable with a row per claim; it needs the packages longtable and amsmath."""
    lines = [
        r"\begin{longtable}{p{0.4\linewidth}p{0.13\linewidth}p{0.4\linewidth}}",
        r"Claim & Verdict & Corrected statement, witness \\ \hline \endhead",
    ]
    for entry in entries:
        claim, finding = entry.claim, entry.finding
        instead = claim.corrected_latex or _escaped(claim.corrected).rstrip(".")
        corrected = f"{instead}. " if instead else ""
        changed = r" (\textbf{changed})" if entry.changed else ""
        lines.append(
            f"{claim.formula or _escaped(claim.statement)} & {finding.verdict.value}{changed} & "
            f"{corrected}{_escaped(finding.witness)} \\\\"
        )
    return "\n".join([*lines, r"\end{longtable}"])


def _paragraph(label: str, text: str) -> str:
    return fill(
        text,
        WIDTH,
        initial_indent=f"    {label:8}",
        subsequent_indent=" " * 12,
        break_on_hyphens=False,
    )


def _escaped(text: str) -> str:
    table = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "|": r"\textbar{}"}
    table |= {character: "\\" + character for character in "_&%$#{}"}
    table |= {"<": r"\textless{}", ">": r"\textgreater{}"}
    return "".join(table.get(character, character) for character in text)


def by_passage(document: Document) -> dict[Passage, list[Claim]]:
    """Return the claims that judge each passage of a document, in the order of the lines."""
    found: dict[Passage, list[Claim]] = {passage: [] for passage in document.silent}
    for claim in notes():
        for passage in claim.passages:
            if passage.document == document.name:
                found.setdefault(passage, []).append(claim)
    return {passage: found[passage] for passage in sorted(found)}


def table(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield a line for each statement of the notes: place, verdict, claim, content."""
    for document in DOCUMENTS.values():
        for passage, claims in by_passage(document).items():
            for claim in claims:
                yield f"{passage!s:12} {verdicts[claim.key].value.upper():22} {claim.key}"
            if not claims:
                yield f"{passage!s:12} {'-':22} {document.silent[passage]}"


def without_statement(lines: Passage) -> Iterator[str]:
    """Yield what is on these lines where they state nothing, and which of them are blank."""
    document = DOCUMENTS[lines.document]
    for passage, content in document.silent.items():
        if lines.overlaps(passage):
            yield f"{passage} states nothing: {content}"
    for line in sorted(document.blank):
        if lines.first <= line <= lines.last:
            yield f"{lines.document}:{line} is blank"


def coverage_summary(verdicts: Mapping[str, Verdict]) -> str:
    """Return how many statements there are and how many have which verdict, in one line."""
    counts, places = Counter(verdicts.values()), sum(len(claim.passages) for claim in notes())
    parts = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    lines = sum(document.lines - len(document.blank) for document in DOCUMENTS.values())
    return (
        f"{len(verdicts)} statements at {places} places of {len(DOCUMENTS)} documents "
        f"({lines} lines): {parts}"
    )
