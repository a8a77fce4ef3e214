"""The ledger: all claims, how to judge them, and how to print the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill

from symbolic.claims import (
    activations,
    centres,
    explosion_bounds,
    explosion_coordinates,
    explosion_equations,
    explosion_law,
    groups,
    limits,
    post_norm,
    pre_norm,
    qk_norm,
    rotary,
    sandwich,
    scaling,
    scores,
    softmax,
    sphere,
    transport,
)
from symbolic.claims.ledger import Claim, Finding, Verdict

CLAIMS: tuple[Claim, ...] = (
    *softmax.CLAIMS,
    *scaling.CLAIMS,
    *limits.CLAIMS,
    *scores.CLAIMS,
    *sphere.CLAIMS,
    *transport.CLAIMS,
    *explosion_equations.CLAIMS,
    *explosion_law.CLAIMS,
    *explosion_coordinates.CLAIMS,
    *explosion_bounds.CLAIMS,
    *centres.CLAIMS,
    *rotary.CLAIMS,
    *qk_norm.CLAIMS,
    *groups.CLAIMS,
    *activations.CLAIMS,
    *post_norm.CLAIMS,
    *pre_norm.CLAIMS,
    *sandwich.CLAIMS,
)
"""Every claim: those of the notes, of the page on exact laws, and on architectures in use."""

WIDTH = 96


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
    return Entry(claim, claim.check())


def judge_all(claims: Iterable[Claim] = CLAIMS) -> Iterator[Entry]:
    """Run the checks one after the other."""
    return map(judge, claims)


def as_text(entry: Entry) -> str:
    """Return a paragraph: verdict and key, statement, corrected statement, witness."""
    claim, finding = entry.claim, entry.finding
    head = f"{finding.verdict.value.upper()}  {claim.key}"
    if entry.changed:
        head += f"  (VERDICT CHANGED: {claim.expected.value} is on record)"
    lines = [head, _paragraph("claim", claim.statement)]
    if claim.corrected:
        lines.append(_paragraph("instead", claim.corrected))
    lines.append(_paragraph("witness", finding.witness))
    return "\n".join(lines)


def summary(entries: Sequence[Entry]) -> str:
    """Return the number of claims for each verdict, and which verdicts have changed."""
    counts = Counter(entry.finding.verdict for entry in entries)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    changed = [entry.claim.key for entry in entries if entry.changed]
    ending = f"VERDICTS CHANGED: {', '.join(changed)}" if changed else "no verdict has changed"
    return f"{len(entries)} claims: {', '.join(parts)}; {ending}"


def as_latex(entries: Iterable[Entry]) -> str:
    """Return a longtable with a row per claim; it needs the packages longtable and amsmath."""
    lines = [
        r"\begin{longtable}{p{0.4\linewidth}p{0.13\linewidth}p{0.4\linewidth}}",
        r"Claim & Verdict & Corrected statement, witness \\ \hline \endhead",
    ]
    for entry in entries:
        claim, finding = entry.claim, entry.finding
        corrected = f"{claim.corrected_latex}. " if claim.corrected_latex else ""
        changed = r" (\textbf{changed})" if entry.changed else ""
        lines.append(
            f"{claim.latex} & {finding.verdict.value}{changed} & "
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
