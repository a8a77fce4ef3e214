"""The gallery: every committed figure and the command that makes it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from shaped_attention.checks import check_choice
from shaped_attention.commands.figures import RECIPES
from shaped_attention.commands.options import figures_option, progress_option
from shaped_attention.figures.recipes import Recipe

STORE = "STORE"
"""Stands in a command for a folder that is thrown away."""


@dataclass(frozen=True)
class Entry:
    """Names of figure files, and calls that make them.

    The last call takes ``--figures``; the arguments `small` make it small.
    """

    figures: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    small: tuple[str, ...]


_GROUPS = (*RECIPES, "sweep")
"""Words of commands that a further word follows."""


def _small(recipe: Recipe) -> tuple[str, ...]:
    """Return the small arguments of a recipe as a user would type them."""
    words = []
    for name, value in recipe.small.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", ",".join(map(str, values))]
    return tuple(words)


GALLERY: dict[str, Entry] = {
    **{
        f"{group} {name}": Entry((f"{group}-{name}",), ((group, name),), _small(recipe))
        for group, recipes in RECIPES.items()
        for name, recipe in recipes.items()
    },
    "compare": Entry(
        ("compare-trajectories", "compare-densities"),
        (("compare", "--results", STORE, "--overwrite"),),
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
@click.option(
    "--small/--no-small", default=False, help="Use few samples, to check that every command works."
)
@figures_option
@progress_option
def gallery_command(
    names: tuple[str, ...], small: bool, figures: Path, progress: bool | None
) -> None:
    """Reproduce the figures of the gallery.

    NAME, such as paper or compare, selects the figures whose command contains it; without NAME all
    are made, which takes about three quarters of an hour on 2 cores. Run it in the folder that
    contains notebooks/sweep.toml.
    """
    parts = {name: {name, *name.split()} for name in GALLERY}
    for name in names:
        if all(name not in words for words in parts.values()):
            check_choice("NAME", name, ("paper", *GALLERY))
    chosen = {name: GALLERY[name] for name in GALLERY if not names or parts[name] & set(names)}
    root = click.get_current_context().find_root().command
    option = {} if progress is None else {"progress": progress}
    for name, entry in chosen.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            for command in entry.commands:
                words = [str(Path(folder) / "store") if word == STORE else word for word in command]
                if command == entry.commands[-1]:
                    words += ["--figures", str(figures), *(entry.small if small else ())]
                first, second = words[:2] if len(words) > 1 else (words[0], "")
                shown = {first: {second: option} if first in _GROUPS else option}
                # Without standalone mode, click returns the status that a command exits with.
                status = root.main(words, standalone_mode=False, default_map=shown)
                if status:
                    raise click.exceptions.Exit(status)
        click.echo(f"{name}: {time.perf_counter() - began:.0f} s", err=True)
