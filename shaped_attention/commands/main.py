"""The command line: its commands by name, each imported when it is run."""

from __future__ import annotations

import warnings
from pkgutil import resolve_name
from typing import Any

import click

from shaped_attention.commands.options import Group, one_sentence
from shaped_attention.libraries import __version__

_COMMANDS = {
    "check": "Check whether a torch module is initialised as its configuration says.",
    "compare": "Compare finite shaped transformers with their limiting SDE.",
    "coordinates": "Check by width or depth whether a learning rate transfers: muP's picture.",
    "model": "Show a model at step 0: its tokens by layer, its loss and its gradients.",
    "show": "Print the contents of a saved result and the call that produced it.",
    "sweep": "Run grids of parameters in batches; an interrupt never loses finished work.",
}
"""First sentences of the help texts by name; `tests/test_quick_start.py` compares them."""


def load(name: str) -> click.Command:
    """Import a command."""
    command: click.Command = resolve_name(f"{__package__}.{name}:{name}_command")
    return command


class Program(Group):
    """The group of all commands, each imported when it is run; it reports what they raise."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of a command, the command, and the arguments left for it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in _COMMANDS else command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with one_sentence():
            return super().invoke(ctx)


@click.group(
    cls=Program,
    commands=[click.Command(name, help=about) for name, about in _COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="shaped-attention")
@click.pass_context
def main(context: click.Context) -> None:
    """Token covariances of very deep, very wide random transformers."""
    # The filters and the function for printing are put back when the command ends.
    context.with_resource(warnings.catch_warnings())
    warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line on the error stream, without the line of code that issued it."""
    click.echo(f"Warning: {' '.join(str(message).split())}", err=True)
