"""The commands for self-attention on the sphere."""

from __future__ import annotations

from pathlib import Path

import click

from shaped_attention import plots
from shaped_attention.commands.options import figures_option, results_option
from shaped_attention.results import save
from shaped_attention.sphere import plots as sphere_plots
from shaped_attention.sphere.phase import DIMENSIONS, phase_diagram
from shaped_attention.storage import check_writable


@click.group(name="sphere")
def sphere_command() -> None:
    """Self-attention on the sphere: clustering of tokens."""


@sphere_command.command()
@click.option("--tokens", type=int, default=32, show_default=True, help="Number of tokens N.")
@click.option("--delta", type=float, default=1e-3, show_default=True, help="How close is close.")
@click.option("--samples", type=int, default=1024, show_default=True, help="Of a dimension.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--dimensions",
    default=",".join(map(str, DIMENSIONS)),
    show_default=True,
    help="Dimensions d of the panels, with commas.",
)
@figures_option
@results_option
def phase(
    tokens: int,
    delta: float,
    samples: int,
    seed: int,
    dimensions: str,
    figures: Path,
    results: Path | None,
) -> None:
    """Draw P(<x_1, x_2> >= 1 - delta) over (t, beta) for uniform starts in several dimensions.

    About ten minutes on 2 cores with 1024 samples; the cost does not depend on the dimension.
    """
    try:
        panels = [int(word) for word in dimensions.split(",")]
    except ValueError:
        message = f"--dimensions {dimensions}: whole numbers with commas are needed"
        raise click.ClickException(message) from None
    try:
        check_writable(figures, "figures")
        if results is not None:
            check_writable(results, "results")
        data = phase_diagram(panels, tokens=tokens, delta=delta, samples=samples, seed=seed)
        title = rf"Tokens that have met: SA, N = {tokens}, $\delta$ = {delta:g}"
        paths = plots.save_figure(sphere_plots.phase_panels(data, title), figures / "sphere-phase")
        if results is not None:
            paths.append(save(data, results / "sphere-phase.nc"))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    for path in paths:
        click.echo(path)
