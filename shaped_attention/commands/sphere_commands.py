"""The commands of the group `sphere`: a figure each, with the options of its data."""

from __future__ import annotations

import sys
from inspect import signature
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.options import figures_option, options_of, results_option
from shaped_attention.figures import plots
from shaped_attention.figures.recipes import make
from shaped_attention.io.storage import check_writable
from shaped_attention.results.files import save
from shaped_attention.sphere.figures.catalogue import FIGURES
from shaped_attention.sphere.trained import (
    example_hidden_states,
    read_hidden_states,
)


def _figure_command(name: str) -> click.Command:
    """A command for a figure, with an option for each argument of the function of its data."""

    @figures_option
    @results_option
    def command(figures: Path, results: Path | None, **options: Any) -> None:
        _draw(name, figures, results, **options)

    recipe = FIGURES[name]
    made = click.command(name=name, help=f"{recipe.about}\n\n{recipe.takes}")(command)
    made.params = [*options_of(recipe.simulate), *made.params]
    return made


energy = _figure_command("energy")
ensembles = _figure_command("ensembles")
mean_field = _figure_command("mean-field")
metastability = _figure_command("metastability")
noise = _figure_command("noise")
phase = _figure_command("phase")


@click.command()
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
        if "progress" in signature(FIGURES[name].simulate).parameters:
            options["progress"] = sys.stderr.isatty()
        drawn, data = make(FIGURES, name, **options)
        paths = plots.save_figure(drawn, figures / f"sphere-{name}")
        if results is not None:
            paths.append(save(data, results / f"sphere-{name}.nc"))
    except (ValueError, FloatingPointError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(data)
    for path in paths:
        click.echo(path)
