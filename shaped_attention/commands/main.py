"""The command line: its commands by name, each imported when it is run."""

from __future__ import annotations

import warnings
from typing import Any

import click

from shaped_attention.commands.later import Later, Program
from shaped_attention.version import __version__

_COMMANDS = [
    Later(
        "compare",
        "compare:compare",
        "Compare finite shaped transformers with their limiting SDE.",
    ),
    Later(
        "gallery",
        "gallery:gallery_command",
        "Make the figures of the gallery again.",
    ),
    Later(
        "model",
        "model:model_command",
        "Show what depth does to the tokens of a model at initialisation, from its configuration.",
    ),
    Later(
        "paper",
        "paper:paper_command",
        "Simulate the figures of The Shaped Transformer again.",
    ),
    Later(
        "show",
        "show:show",
        "Print what a saved result holds and the call that made it.",
    ),
    Later(
        "sphere",
        "sphere:sphere_command",
        "Draw self-attention on the sphere: how tokens cluster.",
    ),
    Later(
        "stopping",
        "stopping:stopping_command",
        "Draw when eigenvalues leave [10^-4, 10^4], and how often paths explode.",
    ),
    Later(
        "sweep",
        "sweep:sweep_command",
        "Run grids of parameters in batches; an interrupt loses no finished work.",
    ),
]


@click.group(
    cls=Program,
    commands=_COMMANDS,
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
