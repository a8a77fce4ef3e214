"""The group of commands for self-attention on the sphere."""

from __future__ import annotations

from pathlib import Path

import click

from shaped_attention.commands.figure_commands import draw, figure_command
from shaped_attention.commands.later import PlainGroup
from shaped_attention.commands.options import figures_option, results_option
from shaped_attention.sphere.figures.catalogue import FIGURES


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--key", metavar="NAME", help="Name of the array in a .npz or .pt file.")
@click.option(
    "--delta", default=0.1, help="Two tokens are close if their cosine is at least 1 - delta."
)
@figures_option
@results_option
def histograms(
    file: Path | None, key: str | None, delta: float, figures: Path, results: Path | None
) -> None:
    """Draw the cosines between tokens in each layer of a trained model.

    FILE holds its hidden states (layers, tokens, d): .npy, .npz or .pt. Without FILE it is
    all-MiniLM-L6-v2 on 70 tokens of Moby-Dick.
    """
    from shaped_attention.sphere.trained import example_hidden_states, read_hidden_states

    if file is None and key is not None:
        raise ValueError(f"--key {key} needs FILE")
    states = example_hidden_states()[1] if file is None else read_hidden_states(file, key)
    draw("sphere", "histograms", FIGURES, figures, results, hidden_states=states, delta=delta)


@click.group(
    name="sphere",
    cls=PlainGroup,
    commands=[
        histograms if name == "histograms" else figure_command("sphere", name, FIGURES)
        for name in sorted(FIGURES)
    ],
)
def sphere_command() -> None:
    """Draw self-attention on the sphere: how tokens cluster."""
