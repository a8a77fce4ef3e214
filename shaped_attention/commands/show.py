"""Print what a saved result holds: the command `show`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
def show(path: Path) -> None:
    """Print what a saved result holds and the call that made it.

    PATH is the .nc file or the .zarr folder of the result.
    """
    from shaped_attention.results.files import load
    from shaped_attention.results.provenance import record

    result = load(path)
    stored = record(result) if "specification" in result.attrs else None
    click.echo(result)
    if stored is not None:
        click.echo(json.dumps(stored, indent=1))
