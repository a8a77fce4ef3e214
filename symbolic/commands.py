"""The commands of ``python -m symbolic``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

import click

from symbolic.blocks import ShapedAttention, ShapedMLP
from symbolic.claims.ledger import (
    SOURCES,
    Verdict,
    claims,
    judge_all,
    lines_of,
    notes,
    problems,
    problems_with_documents,
    select,
)
from symbolic.claims.text import (
    as_latex,
    as_text,
    coverage_summary,
    summary,
    table,
    without_statement,
)
from symbolic.closed_forms import closed_form_in_words
from symbolic.display import diffusion_entries, drift_entries, equation
from symbolic.expansion import expand_attention
from symbolic.limit import Limit, derive, drift_correction
from symbolic.orders import limit_or_reason, term_orders
from symbolic.proof import check_at_points, check_exact, compare
from symbolic.recursion import Block

MASK = click.option(
    "--mask", type=click.Choice(["full", "causal"]), default="full", help="Mask.", show_default=True
)


@contextmanager
def _refusals() -> Iterator[None]:
    """Report invalid arguments, and a recursion without a limit, with the exit status 2."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise click.UsageError(str(error)) from None


@click.group()
def main() -> None:
    """Derive the limiting SDE of token covariances, and judge claims about it."""


def _modifications(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that undo the three modifications of shaped attention."""
    for option in (
        click.option(
            "--temperature-power",
            default="1/2",
            help="Power p in tau = tau_0 sqrt(n_k) n^p.",
            show_default=True,
        ),
        click.option(
            "--no-centring", is_flag=True, help="Leave out the centring: w is not subtracted."
        ),
        click.option("--no-identity", is_flag=True, help="Leave out the identity: I is not added."),
    ):
        command = option(command)
    return command


@main.command(name="derive")
@click.option(
    "--block",
    required=True,
    type=click.Choice(["attention", "mlp", "transformer"]),
    help="Block.",
)
@click.option("--tokens", required=True, type=int, help="Number of tokens m.")
@MASK
@click.option("--heads", default=1, help="Number of heads H.", show_default=True)
@click.option("--output-projection", is_flag=True, help="Mix the heads with a Gaussian matrix.")
@click.option("--biases", is_flag=True, help="Add query and key biases of variances s_Q and s_K.")
@_modifications
@click.option("--correction", is_flag=True, help="Also print the next order of the drift in 1/n.")
@click.option("--all", "every", is_flag=True, help="Print every entry, not just one of each kind.")
@click.option(
    "--points",
    type=int,
    help="Check the closed form only at this many random rational V, which allows more tokens.",
)
@click.option("--latex", "as_latex", is_flag=True, help="Print LaTeX (amsmath) instead of text.")
def derive_command(
    block: str,
    tokens: int,
    correction: bool,
    every: bool,
    points: int | None,
    as_latex: bool,
    **options: Any,
) -> None:
    """Print drift and diffusion of a block's limit, and whether the closed form is proven.

    The exit status is 1 if the derived coefficients differ from the closed form, and 2 if the
    arguments are invalid or the recursion has no limit.
    """
    with _refusals():
        layer = _layer(block, options)
        if points is not None:
            if correction or every or as_latex:
                raise ValueError(
                    "points: with --points only the check is printed; leave out --correction, "
                    "--all and --latex"
                )
            proof = check_at_points(layer, tokens, points)
            if proof.holds is None:
                raise ValueError("points: there is no closed form to compare with")
            click.echo(f"{block}, {tokens} tokens: {proof}")
        else:
            check_exact(tokens)
            limit = derive(layer, tokens)
            proof = compare(layer, limit)
            exchangeable = options["mask"] == "full" and not every
            click.echo(_report(block, layer, limit, exchangeable, correction, str(proof), as_latex))
    sys.exit(1 if proof.holds is False else 0)


@main.command(name="expand")
@click.option("--order", default=4, help="Largest degree of the Taylor terms.", show_default=True)
@click.option("--tokens", type=int, help="Also print the matrices for this number of tokens.")
@MASK
@_modifications
def expand_command(order: int, tokens: int | None, **options: Any) -> None:
    """Print the Taylor terms of the attention matrix, their orders in n, and their effect on V."""
    with _refusals():
        block = _attention(options)
        terms = term_orders(order, block.identity, block.centring, block.temperature_power)
        click.echo(EXPANSION)
        for term in terms:
            click.echo(f"degree {term.degree}, order n^-({term.power}): {term.entry}")
            click.echo(f"    {term.role}")
        click.echo(f"\n{limit_or_reason(block)}")
        if tokens is None:
            return
        matrices = expand_attention(tokens, order, block.mask, block.identity, block.centring)
        for k, matrix in enumerate(matrices.values()):
            click.echo(f"\nA_{k}")
            for a in range(tokens):
                click.echo(f"  row {a}: {', '.join(map(str, matrix.row(a)))}")


EXPANSION = """\
A = [identity] + softmax(Y / tau) - [centring], entry (a, b) for m tokens;
x = G_ab / tau_0, mu[j] = mean over c of (G_ac / tau_0)^j. With a mask, m counts
the tokens that a may see, and the means are over them.
"""


@main.command(name="claims")
@click.option("--latex", "in_latex", is_flag=True, help="Print LaTeX (longtable) instead of text.")
@click.option("--only", help="Judge only the claims whose key contains this text.")
@click.option(
    "--source",
    help=f"Judge only the claims of a source ({', '.join(SOURCES)}), or of lines such as 003:95 or "
    "4:96-104.",
)
@click.option(
    "--verdict",
    type=click.Choice([verdict.value for verdict in Verdict], case_sensitive=False),
    help="Print only claims with this verdict.",
)
@click.option(
    "--coverage", is_flag=True, help="Instead, print which claims judge which lines of the notes."
)
@click.option(
    "--notes",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="With --coverage: compare digests and quotations with the documents in this folder.",
)
def claims_command(
    in_latex: bool,
    only: str | None,
    source: str | None,
    verdict: str | None,
    coverage: bool,
    folder: Path | None,
) -> None:
    """Judge every claim of the notes, papers, exact laws and architectures, and print the ledger.

    The exit status is 1 if a verdict differs from the one on record or, with --coverage, if a line
    of the notes has no place in the table, and 2 if the arguments are invalid.
    """
    with _refusals():
        if coverage:
            if in_latex or only or source or verdict:
                raise ValueError("--coverage takes no other option than --notes")
            sys.exit(_print_coverage(folder))
        if folder:
            raise ValueError("--notes needs --coverage")
        chosen = claims() if source is None else select(source)
        if only is not None:
            chosen = tuple(claim for claim in chosen if only.lower() in claim.key)
            if not chosen:
                raise ValueError(f"only={only!r}: no claim has such a key")
    if source and not chosen:
        click.echo("\n".join(without_statement(lines_of(source))))
        return
    entries = []
    for entry in judge_all(chosen):
        if verdict in (None, entry.finding.verdict.value):
            entries.append(entry)
            if not in_latex:
                click.echo(f"{as_text(entry)}\n")
    click.echo(as_latex(entries) if in_latex else summary(entries))
    sys.exit(1 if any(entry.changed for entry in entries) else 0)


for _command in main.commands.values():
    # Without this, click cuts the first sentence of a description in the list of commands.
    _command.short_help = (_command.help or "").partition("\n\n")[0]


def _print_coverage(folder: Path | None) -> int:
    """Print the table of the notes, what is incomplete, and a summary; return the exit status."""
    wrong = problems(notes())
    wrong += problems_with_documents(notes(), folder) if folder else []
    entries = list(judge_all(notes()))
    verdicts = {entry.claim.key: entry.finding.verdict for entry in entries}
    wrong += [f"{entry.claim.key}: VERDICT CHANGED" for entry in entries if entry.changed]
    for line in (*table(verdicts), "", *wrong):
        click.echo(line)
    compared = " and equal to the documents" if folder else ""
    status = f"INCOMPLETE: {len(wrong)} problems" if wrong else f"complete{compared}"
    click.echo(f"{coverage_summary(verdicts)}; {status}")
    return 1 if wrong else 0


def _layer(block: str, options: dict[str, Any]) -> list[Block]:
    plain = {"mask": "full", "heads": 1, "temperature_power": "1/2"}
    if block == "mlp" and any(value != plain.get(name, False) for name, value in options.items()):
        raise ValueError("the options of attention have no effect with --block mlp")
    blocks: list[Block] = [_attention(options), ShapedMLP()]
    return {"attention": blocks[:1], "mlp": blocks[1:], "transformer": blocks}[block]


def _attention(options: dict[str, Any]) -> ShapedAttention:
    biases = options.get("biases", False)
    return ShapedAttention(
        mask=None if options["mask"] == "full" else options["mask"],
        heads=options.get("heads", 1),
        output_projection=options.get("output_projection", False),
        query_bias="s_Q" if biases else 0,
        key_bias="s_K" if biases else 0,
        identity=not options["no_identity"],
        centring=not options["no_centring"],
        temperature_power=options["temperature_power"],
    )


def _report(
    name: str,
    layer: list[Block],
    limit: Limit,
    exchangeable: bool,
    correction: bool,
    status: str,
    as_latex: bool,
) -> str:
    sections = [("Drift b = lim n E[V' - V | V]", drift_entries(limit, exchangeable))]
    if correction:
        if len(layer) > 1:
            raise ValueError(f"block={name!r}: the correction is derived only for a single block")
        next_order = drift_correction(layer[0], limit.tokens)
        heading = "Finite width: n E[V' - V | V] = b + b1 / n + O(n^-2)"
        sections.append((heading, drift_entries(next_order, exchangeable, "b1")))
    heading = "Diffusion Sigma_ab,cd = lim n Cov[V'_ab, V'_cd | V]"
    sections.append((heading, diffusion_entries(limit, exchangeable)))
    comments = [f"{name}, m = {limit.tokens}: dV = b(V) dt + Sigma(V)^(1/2) dW, t = layer / n"]
    if exchangeable and limit.tokens > 1:
        comments.append("One entry of each kind; renaming tokens gives the others (--all).")
    lines = [f"% {comment}" if as_latex else comment for comment in comments]
    for heading, entries in sections:
        equations = [equation(entry, terms, as_latex) for entry, terms in entries]
        if as_latex:
            body = "\n".join(equations).removesuffix(r" \\")
            lines += [f"% {heading}", r"\begin{align*}", body, r"\end{align*}"]
        else:
            lines += ["", heading, *[indent(line, "  ") for line in equations]]
    words = [line for block in layer for line in closed_form_in_words(block)]
    ending = ["", *(["Closed form", *[f"  {line}" for line in words], ""] if words else []), status]
    lines += [f"% {line}" for line in ending if line] if as_latex else ending
    return "\n".join(lines)
