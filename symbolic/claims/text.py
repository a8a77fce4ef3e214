"""The ledger in print: paragraphs, a table in LaTeX, and what judges which line of the notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill

from symbolic.claims.ledger import DOCUMENTS, Claim, Entry, Passage, Row, Verdict, notes

WIDTH = 96


def as_text(entry: Entry) -> str:
    """Return a paragraph: verdict and key, statement, corrected statement, witness."""
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
    label = "reason" if finding.verdict is Verdict.NOT_JUDGED else "witness"
    lines.append(_paragraph(label, finding.witness))
    if claim.method and not entry.changed:
        lines.append(_paragraph("method", f"{claim.method}: the witness carries the last step"))
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
    if words:
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


def judging(row: Row) -> list[Claim]:
    """Return the claims that judge the lines of a row."""
    return [claim for claim in notes() if row.passage in claim.passages]


def _rows() -> list[tuple[Row, list[str]]]:
    """Return all rows of the notes, with the keys of their claims."""
    rows = [row for document in DOCUMENTS.values() for row in document.rows]
    return [(row, [claim.key for claim in judging(row)]) for row in rows]


def table(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield a line for each statement of the notes: place, verdict, claim, content."""
    for row, keys in _rows():
        for key in keys:
            verdict = verdicts[key].value.upper() if key in verdicts else "NO SUCH CLAIM"
            yield f"{row.passage!s:12} {verdict:22} {key}"
        if not keys:
            yield f"{row.passage!s:12} {'-':22} {row.content}"


def without_statement(lines: Passage) -> Iterator[str]:
    """Yield what is on the rows among these lines that state nothing, and which lines are blank."""
    for row, keys in _rows():
        if not keys and lines.overlaps(row.passage):
            yield f"{row.passage} states nothing: {row.content}"
    for line in sorted(DOCUMENTS[lines.document].blank):
        if lines.first <= line <= lines.last:
            yield f"{lines.document}:{line} is blank"


def coverage_summary(verdicts: Mapping[str, Verdict]) -> str:
    """Return how many statements there are and how many have which verdict, in one line."""
    keys = [key for _, some in _rows() for key in some]
    counts = Counter(verdicts[key] for key in set(keys) if key in verdicts)
    parts = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    lines = sum(document.lines - len(document.blank) for document in DOCUMENTS.values())
    return (
        f"{len(set(keys))} statements at {len(keys)} places of {len(DOCUMENTS)} documents "
        f"({lines} lines): {parts}"
    )
