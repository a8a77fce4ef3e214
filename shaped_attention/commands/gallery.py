"""The gallery: every committed figure and the command that makes it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from shaped_attention.commands.options import figures_option
from shaped_attention.figures.paper.catalogue import FIGURES as PAPER
from shaped_attention.sphere.figures.catalogue import FIGURES as SPHERE

STORE = "STORE"
"""Stands in a command for a folder that is thrown away."""


@dataclass(frozen=True)
class Entry:
    """Commands that make figures.

    Attributes
    ----------
    figures
        Names of the files, without suffix.
    commands
        Arguments of `shaped-attention`, one tuple for each call; the last takes ``--figures``.
    small
        Arguments that make the last call small, for a test.
    """

    figures: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    small: tuple[str, ...]


_RECIPES = {"paper": PAPER, "sphere": SPHERE}
"""Figures by the group of commands that makes them."""

GALLERY: dict[str, Entry] = {
    **{
        f"{group} {name}": Entry((f"{group}-{name}",), ((group, name),), recipe.small)
        for group, recipes in _RECIPES.items()
        for name, recipe in recipes.items()
    },
    "compare": Entry(
        ("compare-trajectories", "compare-densities"),
        (("compare", "--output", STORE),),
        ("--width", "40", "--depth", "30", "--samples", "64", "--network-samples", "16"),
    ),
    "stopping": Entry(
        ("stopping-map", "stopping-explosion"),
        (("stopping",),),
        ("--samples", "64", "--map-samples", "4"),
    ),
    "sweep": Entry(
        ("sweep-mean", "sweep-stopped", "sweep-distance", "sweep-curves"),
        (("sweep", "run", "notebooks/sweep.toml", STORE), ("sweep", "draw", STORE)),
        (),
    ),
}
"""The figures in `figures/` by their command."""


@click.command(name="gallery")
@click.argument("names", nargs=-1)
@click.option("--small", is_flag=True, help="Few samples: to see that every command works.")
@figures_option
def gallery_command(names: tuple[str, ...], small: bool, figures: Path) -> None:
    """Make the figures of the gallery again: all, or those whose command has a NAME in it.

    All take about half an hour on 2 cores. Run it where notebooks/sweep.toml is.
    """
    chosen = {
        name: entry
        for name, entry in GALLERY.items()
        if not names or set(names) & {*name.split(), name}
    }
    if not chosen:
        raise click.ClickException(f"{', '.join(names)}: one of {', '.join(GALLERY)} is needed")
    root = click.get_current_context().find_root().command
    for name, entry in chosen.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            for command in entry.commands:
                words = [str(Path(folder) / "store") if word == STORE else word for word in command]
                if command == entry.commands[-1]:
                    words += ["--figures", str(figures), *(entry.small if small else ())]
                root.main(words, standalone_mode=False)
        click.echo(f"{name}: {time.perf_counter() - began:.0f} s", err=True)
