"""What commands share: groups, options, pictures as files, errors as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shaped_attention.checks import did_you_mean
from shaped_attention.libraries import MissingLibraryError, extras

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HELP = {
    "device": "'cpu', 'cuda' or 'cuda:INDEX' (not yet tested on a GPU).",
    "figures": "Folder for the figures (PNG).",
    "progress": "Show progress bars.  [default: only if the error stream is a terminal]",
    "results": "Folder for the data (netCDF).",
    "seed": "Seed of the random numbers (whole number >= 0).",
    "width": "Width n of the networks.",
}
"""Help texts of options by name."""

INCOMPLETE = 3
"""Exit status of a sweep that leaves units undone, was interrupted, or gave units up."""

INTERRUPTED = 130
"""Exit status of other commands that were interrupted, as shells have it."""


class InputError(click.ClickException):
    """A bad argument: one sentence on the error stream, exit status 2."""

    exit_code = 2


@contextmanager
def one_sentence() -> Iterator[None]:
    """Report what a command raises as one sentence: exit status 2 for bad arguments, 1 for others.

    Bad arguments raise ValueError, or FileNotFoundError if they name a file.
    """
    try:
        with extras():
            yield
    except BrokenPipeError:
        # Whoever reads the output has enough; click ends in silence.
        raise
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (ValueError, FileNotFoundError) as error:
        raise InputError(str(error)) from error
    except (FloatingPointError, MemoryError, MissingLibraryError, OSError) as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def optional_figure(written: Iterable[Path], err: bool = False) -> Iterator[None]:
    """At the end of a command, print which files it wrote, or that its figure needs an extra.

    With `err` it is printed on standard error.
    """
    missing = None
    try:
        with extras():
            yield
    except MissingLibraryError as error:
        missing = error
    if paths := ", ".join(map(str, written)):
        click.echo(f"written: {paths}", err=err)
    if missing:
        click.echo(f"no figure: {missing}", err=err)


class Group(click.Group):
    """A group that lists its commands in whole sentences and suggests the one that was meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in their own order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of a command, the command, and the arguments left for it."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            ctx.fail(f"{args[0]!r}: {did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and first sentences of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, c.get_short_help_str(limit=1000)) for name, c in self.commands.items()]
            )


class Choice(click.Choice[str]):
    """Names, one of which is needed; the nearest is suggested."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the end of the error message."""
        return f"{value!r}: {did_you_mean(value, self.choices)}"


results_option = click.option(
    "--results",
    type=click.Path(path_type=Path),
    help=f"{HELP['results']}  [default: data are not saved]",
)


progress_option = click.option("--progress/--no-progress", default=None, help=HELP["progress"])

seed_option = click.option("--seed", default=0, help=HELP["seed"])

device_option = click.option("--device", default="cpu", help=HELP["device"])

json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object, and nothing else, on standard output.",
)

overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the output of an earlier command."
)


def figure_option(help: str) -> Callable[[Any], Any]:
    """Return the option --figure, with what is drawn."""
    return click.option("--figure", type=click.Path(path_type=Path), metavar="FILE", help=help)


def check_new(how: str, overwrite: bool, paths: Iterable[Path]) -> None:
    """Raise ValueError if there is something at one of the paths; `how` says what avoids it."""
    for path in () if overwrite else paths:
        if path.exists():
            raise ValueError(f"{path} exists; choose {how}, or --overwrite")


def save_png(figure: Figure, path: Path) -> Path:
    """Write a figure completely or not at all; the same figure gives the same bytes."""
    from shaped_attention.io.storage import written

    with written(path) as draft:
        figure.savefig(
            draft, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None}
        )
    return path


def with_options(options: Iterable[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Decorate a command with options, in their order."""

    def decorate(command: Any) -> Any:
        for option in reversed(list(options)):
            command = option(command)
        return command

    return decorate
