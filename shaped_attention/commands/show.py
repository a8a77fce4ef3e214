"""Print what a saved result holds: the command `show`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(name="show")
@click.argument("path", type=click.Path(path_type=Path))
def show_command(path: Path) -> None:
    """Print the contents of a saved result and the call that produced it.

    PATH is the .nc file of the result. Its arrays are neither read nor
    verified.
    """
    from shaped_attention.results.files import ATTRIBUTE, opened
    from shaped_attention.results.provenance import record

    with opened(path) as result:
        result.attrs.pop(ATTRIBUTE, None)
        stored = record(result) if "specification" in result.attrs else None
        click.echo(result)
    if stored is not None:
        click.echo(json.dumps(stored, indent=1))
