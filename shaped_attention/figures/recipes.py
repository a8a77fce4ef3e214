"""Recipes of figures by name: where the data and the drawing are, and the options of the command.

A recipe names its two functions as "module:function". They are imported when the figure is made,
so that lists of figures and help texts load no library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from shaped_attention.checks import argument_error

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

FEWEST = 10
"""Smallest number of samples that is drawn."""

Value = bool | int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
"""What an option may hold; a tuple is typed with commas between its values."""


class Option(NamedTuple):
    """An option with a help text of its own, or without a default: then `kind` is its type."""

    help: str
    default: Value | None
    kind: type = tuple[float, ...]


@dataclass(frozen=True)
class Recipe:
    """How a figure is made.

    Attributes
    ----------
    data, plot
        "module:function" of the function that returns the data, and of the one that draws them.
    about
        What the figure shows, in one sentence.
    title
        Title of the figure, with values from the attributes of the data.
    options
        Arguments of the function of the data with their defaults, besides `seed` and `progress`.
        Help texts are those of `shaped_attention.commands.options`, except of an `Option`.
    small
        Arguments that make it small enough for a test.
    takes
        Its run time, in a sentence.
    random
        Whether the function of the data takes `seed` and `progress`.
    """

    data: str
    plot: str
    about: str
    title: str
    options: Mapping[str, Value | Option]
    small: Mapping[str, Value]
    takes: str = ""
    random: bool = True


def make(name: str, recipe: Recipe, **arguments: Any) -> tuple[Figure, xr.Dataset]:
    """Simulate and draw a figure; the arguments go to the function of its data."""
    samples = arguments.get("samples", FEWEST)
    if samples < FEWEST:
        raise argument_error("samples", f"at least {FEWEST} to draw a figure", samples)
    data = resolve_name(recipe.data)(**arguments).assign_attrs(figure=name)
    return resolve_name(recipe.plot)(data, recipe.title % data.attrs), data
