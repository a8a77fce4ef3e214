"""The commands for self-attention on the sphere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shaped_attention import plots
from shaped_attention.commands.options import figures_option, results_option
from shaped_attention.recipes import make
from shaped_attention.results import save
from shaped_attention.sphere.figures import FIGURES
from shaped_attention.sphere.phase import DIMENSIONS
from shaped_attention.sphere.trained import (
    example_hidden_states,
    read_hidden_states,
)
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
def phase(dimensions: str, figures: Path, results: Path | None, **options: Any) -> None:
    """Draw P(<x_1, x_2> >= 1 - delta) over (t, beta) for uniform starts in several dimensions.

    About ten minutes on 2 cores with 1024 samples; the cost does not depend on the dimension.
    """
    try:
        panels = [int(word) for word in dimensions.split(",")]
    except ValueError:
        message = f"--dimensions {dimensions}: whole numbers with commas are needed"
        raise click.ClickException(message) from None
    _draw("phase", figures, results, dimensions=panels, **options)


def _add_figure(name: str) -> None:
    """A command for a figure that has samples and a seed and nothing else to choose."""

    @click.option("--samples", type=int, help="Realisations; by default those of the figure.")
    @click.option("--seed", type=int, default=0, show_default=True)
    @figures_option
    @results_option
    def command(samples: int | None, seed: int, figures: Path, results: Path | None) -> None:
        chosen = {} if samples is None else {"samples": samples}
        _draw(name, figures, results, seed=seed, **chosen)

    command.__doc__ = FIGURES[name].about
    sphere_command.command(name=name)(command)


for _name in FIGURES:
    if _name not in ("phase", "histograms"):
        _add_figure(_name)


@sphere_command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--key", help="Name of the array in FILE, if it has several.")
@click.option("--delta", type=float, default=0.1, show_default=True, help="How close is close.")
@figures_option
@results_option
def histograms(
    file: Path | None, key: str | None, delta: float, figures: Path, results: Path | None
) -> None:
    """Draw the inner products of tokens by layer, of the hidden states (layers, tokens, d) in FILE.

    FILE is .npy, .npz or .pt; without it, 70 tokens of Moby-Dick in all-MiniLM-L6-v2 are shown.
    """
    try:
        states = example_hidden_states()[1] if file is None else read_hidden_states(file, key)
    except (ValueError, FileNotFoundError) as error:
        raise click.ClickException(str(error)) from None
    _draw("histograms", figures, results, hidden_states=states, delta=delta)


def _draw(name: str, figures: Path, results: Path | None, **options: Any) -> None:
    """Make a figure, save it and perhaps its data, and name the files."""
    try:
        check_writable(figures, "figures")
        if results is not None:
            check_writable(results, "results")
        drawn, data = make(FIGURES, name, **options)
        paths = plots.save_figure(drawn, figures / f"sphere-{name}")
        if results is not None:
            paths.append(save(data, results / f"sphere-{name}.nc"))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(data)
    for path in paths:
        click.echo(path)
