"""Groups of commands, whose commands are imported when they are run: help loads no library."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

import click

from shaped_attention.checks import did_you_mean
from shaped_attention.commands.options import one_sentence


class Later(click.Command):
    """The name of a command and its first sentence, until it is needed as a whole.

    Parameters
    ----------
    name
        What the user types.
    place
        Where the command is: "module:attribute", the module one of `shaped_attention.commands`.
    about
        The first sentence of its help text; `tests/test_quick_start.py` compares the two.
    """

    def __init__(self, name: str, place: str, about: str) -> None:
        super().__init__(name, help=about)
        self._place = place

    def load(self) -> click.Command:
        """Import the command."""
        command: click.Command = resolve_name(f"{__package__}.{self._place}")
        return command


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
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Later) else command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and first sentences of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, c.get_short_help_str(limit=1000)) for name, c in self.commands.items()]
            )


class Program(Group):
    """The group of all commands; it reports what they raise."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with one_sentence():
            return super().invoke(ctx)
