"""Batch runs: the group of commands `sweep`."""

from __future__ import annotations

import click

from shaped_attention.commands.later import Later, LazyGroup

_COMMANDS = [
    Later(
        "draw",
        "sweep_commands:draw",
        "Draw the sweep in the folder STORE.",
    ),
    Later(
        "export",
        "sweep_commands:export",
        "Write the sweep in STORE to OUTPUT: .nc, .zarr, .csv or .parquet.",
    ),
    Later(
        "extend",
        "sweep_commands:extend",
        "Extend the sweep in STORE: more samples, or values on its axes.",
    ),
    Later(
        "plan",
        "sweep_commands:plan",
        "Check the sweep in FILE (TOML) and estimate its cost.",
    ),
    Later(
        "repair",
        "sweep_commands:repair",
        "Take damaged files out of STORE, so that resume draws their units again.",
    ),
    Later("resume", "sweep_commands:resume", "Continue the sweep in the folder STORE."),
    Later(
        "run",
        "sweep_commands:run",
        "Run the sweep in FILE (TOML) and keep it in the folder STORE.",
    ),
    Later(
        "status",
        "sweep_commands:status",
        "Print how much of the sweep in STORE is done, also while it runs.",
    ),
    Later(
        "summary",
        "sweep_commands:summary",
        "Print the means of the sweep in STORE with their confidence intervals.",
    ),
    Later(
        "verify",
        "sweep_commands:verify",
        "Compare all files of the sweep in STORE with their checksums.",
    ),
]


@click.group(name="sweep", cls=LazyGroup, commands=_COMMANDS)
def sweep_command() -> None:
    """Run grids of parameters in batches; an interrupt loses no finished work."""
