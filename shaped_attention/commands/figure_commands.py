"""Groups of commands with one command for each figure, made from its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.options import figures_option, options_of, results_option
from shaped_attention.figures.recipes import Recipe, make


def figure_command(group: str, name: str, recipes: Mapping[str, Recipe]) -> click.Command:
    """Return the command of a figure, with an option for each argument of the function of its data.

    Its first sentence says what the figure shows, its second how long it takes.
    """

    @figures_option
    @results_option
    def command(figures: Path, results: Path | None, **options: Any) -> None:
        draw(group, name, recipes, figures, results, **options)

    recipe = recipes[name]
    made = click.command(name=name, help=f"{recipe.about}\n\n{recipe.takes}")(command)
    made.params = [*options_of(recipe.simulate), *made.params]
    return made


def draw(
    group: str,
    name: str,
    recipes: Mapping[str, Recipe],
    figures: Path,
    results: Path | None,
    **options: Any,
) -> None:
    """Make a figure, save it and perhaps its data, print the data and name the files."""
    from shaped_attention.figures import plots
    from shaped_attention.io.storage import check_writable
    from shaped_attention.results.files import save

    check_writable(figures, "figures")
    if results is not None:
        check_writable(results, "results")
    drawn, data = make(recipes, name, **options)
    paths = plots.save_figure(drawn, figures / f"{group}-{name}")
    if results is not None:
        paths.append(save(data, results / f"{group}-{name}.nc"))
    click.echo(data)
    for path in paths:
        click.echo(path)
