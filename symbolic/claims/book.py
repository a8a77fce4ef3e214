"""The ledger: all claims, how to judge them, and how to print the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import fill

from symbolic.claims import (
    activations,
    affine_maps,
    attention_as_gradient,
    attention_layers,
    attention_weights,
    centres,
    clustering,
    clustering_rates,
    clustering_theorems,
    continuity,
    energy_extremes,
    explosion_bounds,
    explosion_coordinates,
    explosion_equations,
    explosion_law,
    feature_copying,
    figures_and_questions,
    gram_flow,
    groups,
    interaction_energy,
    kinetic_energy,
    lazy_weights,
    lengths,
    limits,
    long_contexts,
    mean_field_flow,
    mlp_noise,
    noise_and_clusters,
    normalisation_speeds,
    optimal_transport,
    post_norm,
    pre_norm,
    proportional_limit,
    qk_norm,
    quadratic_forms,
    random_heads,
    random_mlp,
    random_values,
    removed_denominator,
    repulsion,
    resnets,
    rotary,
    sandwich,
    scaled_attention,
    scaling,
    scores,
    singular_values,
    softmax,
    softmax_at_zero,
    sublayers,
    token_flows,
    tokens,
    wasserstein_flow,
    wasserstein_gradient,
    weighted_gradient,
)
from symbolic.claims.coverage import DOCUMENTS
from symbolic.claims.ledger import Claim, Finding, Passage, Verdict

_MODULES = {
    "2306.17759": (softmax, softmax_at_zero, proportional_limit, scaling, limits),
    "2312.10794": (
        quadratic_forms,
        affine_maps,
        scores,
        singular_values,
        feature_copying,
        attention_layers,
        mean_field_flow,
        gram_flow,
        interaction_energy,
        energy_extremes,
        attention_as_gradient,
        removed_denominator,
        weighted_gradient,
        clustering_theorems,
        clustering_rates,
        random_mlp,
        figures_and_questions,
        scaled_attention,
        token_flows,
        optimal_transport,
        kinetic_energy,
        wasserstein_gradient,
        wasserstein_flow,
        attention_weights,
        clustering,
        continuity,
        lengths,
        repulsion,
        resnets,
        sublayers,
        tokens,
    ),
    "2510.22026": (normalisation_speeds,),
    "2512.01868": (long_contexts,),
    "2601.21942": (random_values, noise_and_clusters),
    "2604.01978": (random_heads,),
    "2604.26898": (mlp_noise,),
    "exact-laws": (
        explosion_equations,
        explosion_law,
        explosion_coordinates,
        explosion_bounds,
    ),
    "lazy-weights": (lazy_weights,),
    "architectures": (
        centres,
        rotary,
        qk_norm,
        groups,
        activations,
        post_norm,
        pre_norm,
        sandwich,
    ),
}
"""Where a claim is from that the notes do not print: a paper, the pages on exact laws and on lazily
revealed weights, the limits of architectures."""

PAPERS = {
    "2510.22026": "Normalization in attention dynamics",
    "2512.01868": "The mean-field dynamics of transformers",
    "2601.21942": "Clustering in deep stochastic transformers",
    "2604.01978": "Homogenized transformers",
    "2604.26898": "Stochastic scaling limits and synchronization by noise",
}
"""The papers whose abstracts are judged, with their titles."""

_ALL = [
    (source, claim)
    for source, modules in _MODULES.items()
    for module in modules
    for claim in module.CLAIMS
]

NOTES: tuple[Claim, ...] = tuple(
    sorted((claim for _, claim in _ALL if claim.passages), key=lambda claim: claim.passages)
)
"""The claims of the notes, in the order in which they are printed."""

OTHERS: dict[str, tuple[Claim, ...]] = {
    name: tuple(claim for source, claim in _ALL if source == name and not claim.passages)
    for name in _MODULES
}
"""The other claims by their source."""

CLAIMS: tuple[Claim, ...] = (*NOTES, *(claim for claims in OTHERS.values() for claim in claims))
"""Every claim: those of the notes, papers, exact laws, lazy weights, architectures in use."""

SOURCES = (*DOCUMENTS, *OTHERS)
"""The names by which `select` knows the sources."""


def select(source: str) -> tuple[Claim, ...]:
    """Return the claims of a source, or those on lines of a document: "003:95", "4:96-104".

    Raises
    ------
    ValueError
        If there is no such source or line.
    """
    if source in OTHERS:
        return OTHERS[source]
    here = lines_of(source)
    return tuple(claim for claim in NOTES if any(map(here.overlaps, claim.passages)))


def lines_of(source: str) -> Passage:
    """Return the lines of the notes that a source such as "003", "003:95", "4:96-104" names.

    Raises
    ------
    ValueError
        If there is no such document or line.
    """
    name, _, lines = source.partition(":")
    name = name.zfill(3) if name.isdecimal() else name
    if name not in DOCUMENTS:
        raise ValueError(
            f"source must be one of {', '.join(SOURCES)}, or lines of the notes such as 003:95 or "
            f"004:96-104; got {source!r}"
        )
    size = DOCUMENTS[name].lines
    first, dash, last = (lines or f"1-{size}").partition("-")
    numbers = [int(n) for n in (first, last if dash else first) if n.isdecimal()]
    if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1] <= size:
        raise ValueError(f"source must name lines from 1 to {size} of {name}; got {source!r}")
    return Passage(name, numbers[0], numbers[1])


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


_judged = cache(judge)


def judge_all(claims: Iterable[Claim] = CLAIMS) -> Iterator[Entry]:
    """Run the checks one after the other, each once in a process."""
    return map(_judged, claims)


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
    if claim.test:
        lines.append(_paragraph("test", f"tests/{claim.test}"))
    return "\n".join(lines)


def summary(entries: Sequence[Entry]) -> str:
    """Return the number of claims for each verdict, and which verdicts have changed."""
    notes = [entry for entry in entries if entry.claim.passages]
    changed = [entry.claim.key for entry in entries if entry.changed]
    ending = f"VERDICTS CHANGED: {', '.join(changed)}" if changed else "no verdict has changed"
    text = f"{len(entries)} claim{'s' if len(entries) != 1 else ''}: {_counts(entries)}; {ending}"
    if not 0 < len(notes) < len(entries):
        return text
    return f"{text}\n{len(notes)} of these are statements of the notes: {_counts(notes)}"


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
