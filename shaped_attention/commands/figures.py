"""Commands that make figures from their recipes: the group `paper`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shaped_attention.commands.options import (
    Group,
    options_of,
    with_options,
)
from shaped_attention.figures.paper.catalogue import FIGURES as PAPER
from shaped_attention.figures.recipes import Recipe, make

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

RECIPES = {"paper": PAPER}
"""Figures by the group of commands that makes them."""


def check_places(figures: Path, results: Path | None) -> None:
    """Raise ValueError unless the folders of figures and data can be written."""
    from shaped_attention.io.storage import check_writable

    check_writable(figures, "figures")
    if results is not None:
        check_writable(results, "results")


def write_figure(
    name: str, figure: Figure, data: xr.Dataset, figures: Path, results: Path | None
) -> list[Path]:
    """Write a figure, and its data if they have a folder; return the paths of the files."""
    from shaped_attention.figures.output import save_figure
    from shaped_attention.results.files import save

    paths = save_figure(figure, figures / name)
    return paths if results is None else [*paths, save(data, results / f"{name}.nc")]


def _draw(group: str, name: str, figures: Path, results: Path | None, /, **arguments: Any) -> None:
    """Make a figure, write it and perhaps its data, print the data and name the files."""
    check_places(figures, results)
    drawn, data = make(name, RECIPES[group][name], **arguments)
    paths = write_figure(f"{group}-{name}", drawn, data, figures, results)
    click.echo(data)
    for path in paths:
        click.echo(path)


def _command(group: str, name: str, recipe: Recipe) -> click.Command:
    def command(figures: Path, results: Path | None, **arguments: Any) -> None:
        _draw(group, name, figures, results, **arguments)

    text = f"{recipe.about}\n\n{recipe.takes}"
    return click.command(name=name, help=text)(with_options(options_of(recipe))(command))


def _group(name: str, recipes: Mapping[str, Recipe], about: str) -> Group:
    commands = [_command(name, figure, recipe) for figure, recipe in recipes.items()]
    return Group(name, commands=commands, help=about)


paper_command = _group(
    "paper",
    PAPER,
    """Reproduce the figures of The Shaped Transformer.

    Figures with a number are those of the paper (Noci et al., arXiv 2306.17759); the others go
    beyond it. A figure takes 5 to 100 seconds on 2 cores, unless its help says otherwise.
    """,
)
