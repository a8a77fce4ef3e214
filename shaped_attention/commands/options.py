"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

figures_option = click.option(
    "--figures",
    type=click.Path(path_type=Path),
    default=Path("figures"),
    show_default=True,
    help="Folder for the figures (PNG and SVG).",
)
"""Where figures go."""

results_option = click.option(
    "--results",
    type=click.Path(path_type=Path),
    help="Folder for the data of the figures (netCDF); by default they are not kept.",
)
"""Where the data of figures go."""
