"""The command that simulates the figures of the paper."""

from __future__ import annotations

from pathlib import Path

import click

from shaped_attention.commands.options import figures_option, results_option
from shaped_attention.figures import plots
from shaped_attention.figures.paper import catalogue as paper_figures
from shaped_attention.figures.recipes import make
from shaped_attention.io.storage import check_writable
from shaped_attention.results.files import save

_LISTED = "\n".join(f"  {name:12} {figure.about}" for name, figure in paper_figures.FIGURES.items())


@click.command(
    name="paper",
    epilog=f"\b\nFigures (5 to 100 seconds each on 2 cores; numbers are the paper's):\n{_LISTED}",
)
@click.argument("figure")
@click.option("--samples", type=int, help="Samples; by default those of the figure.")
@click.option(
    "--tokens",
    type=int,
    help="Tokens m >= 2.  [default: 4; in figures 2 and heads 2]",
)
@click.option("--seed", type=int, default=0, show_default=True)
@figures_option
@results_option
def paper_command(
    figure: str,
    samples: int | None,
    tokens: int | None,
    seed: int,
    figures: Path,
    results: Path | None,
) -> None:
    """Simulate FIGURE of The Shaped Transformer (arXiv 2306.17759) again, or one beyond it."""
    options = {"samples": samples, "tokens": tokens}
    if figure == "tokens" and tokens is not None:
        raise click.ClickException(f"--tokens {tokens}: figure 'tokens' has all of 2, 4, 8, 16")
    try:
        check_writable(figures, "figures")
        if results is not None:
            check_writable(results, "results")
        drawn, data = make(
            paper_figures.FIGURES,
            figure,
            seed=seed,
            **{k: v for k, v in options.items() if v is not None},
        )
        paths = plots.save_figure(drawn, figures / f"paper-{figure}")
        if results is not None:
            paths.append(save(data, results / f"paper-{figure}.nc"))
        for path in paths:
            click.echo(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(data)
