"""Options that several commands share, and options made from the arguments of a function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


class InputError(click.ClickException):
    """A bad argument: one sentence on the error stream, exit status 2."""

    exit_code = 2


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


class Listed(click.ParamType[Any]):
    """Values with commas between them."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name = f"{kind.__name__},..."

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """A tuple of the values."""
        if not isinstance(value, str):
            return value
        try:
            return tuple(self.kind(word) for word in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: values of type {self.kind.__name__} with commas are needed")


_KINDS: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "Sequence[int]": Listed(int),
    "Sequence[float]": Listed(float),
    "Sequence[str]": Listed(str),
}

_HERE = ("progress",)
"""Arguments that commands decide about."""


def options_of(function: Callable[..., Any]) -> list[click.Option]:
    """An option for each argument of a function that is a number, text, truth value or a list.

    The help of an option is the text of the argument in the function's docstring.
    """
    told = _argument_texts(inspect.getdoc(function) or "")
    found = []
    for name, argument in inspect.signature(function).parameters.items():
        known = argument.annotation == "bool" or argument.annotation in _KINDS
        if not known or name in _HERE:
            continue
        flag = f"--{name.replace('_', '-')}"
        shared: dict[str, Any] = {"default": argument.default, "help": told.get(name)}
        if argument.annotation == "bool":
            option = click.Option([f"{flag}/--no-{flag[2:]}"], show_default=True, **shared)
        else:
            kind = _KINDS[argument.annotation]
            shown: Any = True
            if isinstance(kind, Listed):
                shown = _short(argument.default)
            option = click.Option([flag], type=kind, show_default=shown, **shared)
        found.append(option)
    return found


def _short(values: Any) -> str:
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return ",".join(words if len(words) <= 8 else [*words[:2], "...", words[-1]])


def _argument_texts(docstring: str) -> dict[str, str]:
    """What the section Parameters of a docstring in NumPy's style says about each argument."""
    section = re.search(r"Parameters\n-+\n(.*?)(\n\n\w+\n---|\Z)", docstring, re.DOTALL)
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in section.group(1).splitlines() if section else ():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(",")]
        elif line.strip():
            for name in names:
                texts[name] = f"{texts.get(name, '')} {line.strip()}".strip()
    return texts
