"""Commands that are imported when they are run, so that help on a group loads no library."""

from __future__ import annotations

from importlib import import_module

import click


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
        module, attribute = self._place.split(":")
        command: click.Command = getattr(import_module(f"{__package__}.{module}"), attribute)
        return command


class LazyGroup(click.Group):
    """A group of commands, some of them a `Later`: those are imported when they are run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of a command, the command, and the arguments left for it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Later) else command, rest
