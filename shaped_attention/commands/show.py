"""Print what a saved result holds: the command `show`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from shaped_attention.commands.options import InputError


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
def show(path: Path) -> None:
    """Print what a saved result (.nc or .zarr) holds and the call that made it."""
    from shaped_attention.results.files import load
    from shaped_attention.results.provenance import record

    try:
        result = load(path)
        stored = record(result) if "specification" in result.attrs else None
    except (ValueError, FileNotFoundError) as error:
        raise InputError(str(error)) from error
    click.echo(result)
    if stored is not None:
        click.echo(json.dumps(stored, indent=1))
