"""Recipes of figures by name: data, drawing and title."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shaped_attention.checks import check_choice
from shaped_attention.figures.deferred import Deferred

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

FEWEST = 10
"""Smallest number of samples that is drawn."""


@dataclass(frozen=True)
class Recipe:
    """Recipe of a figure: `simulate` returns its data, and `draw` draws them under `title`.

    Values in the title come from the attributes of the data.
    """

    simulate: Deferred
    draw: Deferred
    title: str
    takes: str = ""
    """Its run time, in words."""
    small: tuple[str, ...] = ("--samples", "16")
    """Options of its command that make it small enough for a test."""

    @property
    def about(self) -> str:
        """What it shows, in one sentence."""
        return self.simulate.documentation.partition("\n")[0]


def make(recipes: Mapping[str, Recipe], name: str, **options: Any) -> tuple[Figure, xr.Dataset]:
    """Simulate and draw a figure; `options` go to the function of its data.

    Raises
    ------
    ValueError
        If the name is unknown, or an option is outside its range.
    """
    check_choice("figure", name, recipes)
    if options.get("samples", FEWEST) < FEWEST:
        raise ValueError(f"samples={options['samples']!r}: at least {FEWEST} are needed to draw")
    recipe = recipes[name]
    data = recipe.simulate(**options).assign_attrs(figure=name)
    return recipe.draw(data, recipe.title % data.attrs), data
