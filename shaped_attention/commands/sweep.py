"""Batch runs: the group of commands `sweep`."""

from __future__ import annotations

import click

from shaped_attention.commands.later import Later, LazyGroup

_COMMANDS = [
    Later(
        "draw",
        "sweep_commands:draw",
        "Draw means, distances between chain and SDE, and stopped paths over the grid of STORE.",
    ),
    Later(
        "export",
        "sweep_commands:export",
        "Write the sweep in STORE to OUTPUT: .nc or .zarr, or a table of the summary as .csv.",
    ),
    Later(
        "plan",
        "sweep_commands:plan",
        "Check the sweep in FILE (TOML) and say what it will cost, without running it.",
    ),
    Later("resume", "sweep_commands:resume", "Go on with the sweep in the folder STORE."),
    Later(
        "run",
        "sweep_commands:run",
        "Run the sweep in FILE (TOML) into the folder STORE, or go on with it there.",
    ),
    Later(
        "status",
        "sweep_commands:status",
        "Say how far the sweep in STORE is; also while it runs.",
    ),
]


@click.group(name="sweep", cls=LazyGroup, commands=_COMMANDS)
def sweep_command() -> None:
    """Batch runs over grids of parameters, which lose nothing when they are stopped."""
