"""The group of commands for self-attention on the sphere."""

from __future__ import annotations

import click

from shaped_attention.commands.later import Later, LazyGroup

_COMMANDS = [
    Later(
        "energy",
        "sphere_commands:energy",
        "Energies in time under SA, USA and SA with V = -I, from the same uniform starts.",
    ),
    Later(
        "ensembles",
        "sphere_commands:ensembles",
        "The probability that two tokens are close, from uniform starts, for random matrices.",
    ),
    Later(
        "histograms",
        "sphere_commands:histograms",
        "Draw the inner products of tokens by layer, of the hidden states (layers, tokens, d) "
        "in FILE.",
    ),
    Later(
        "mean-field",
        "sphere_commands:mean_field",
        "The mean field on the circle, paths of tokens over it, and their distance by N.",
    ),
    Later(
        "metastability",
        "sphere_commands:metastability",
        "Clusters in time from uniform starts, for each beta from the same ones.",
    ),
    Later(
        "noise",
        "sphere_commands:noise",
        "Mean cosine and share of close pairs over time, with noise of several strengths.",
    ),
    Later(
        "phase",
        "sphere_commands:phase",
        "The probability that two tokens are close, from uniform starts in several dimensions.",
    ),
]


@click.group(name="sphere", cls=LazyGroup, commands=_COMMANDS)
def sphere_command() -> None:
    """Self-attention on the sphere: clustering of tokens."""
