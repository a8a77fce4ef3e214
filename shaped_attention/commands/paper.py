"""The group of commands that simulate the figures of the paper, and those beyond it."""

from __future__ import annotations

import click

from shaped_attention.commands.figure_commands import figure_command
from shaped_attention.commands.later import PlainGroup
from shaped_attention.figures.paper.catalogue import FIGURES


@click.group(
    name="paper",
    cls=PlainGroup,
    commands=[figure_command("paper", name, FIGURES) for name in FIGURES],
)
def paper_command() -> None:
    """Simulate the figures of The Shaped Transformer again.

    Numbers are those of the paper (Noci et al., arXiv 2306.17759); the others go beyond it. A
    figure takes 5 to 100 seconds on 2 cores, unless its help says more.
    """
