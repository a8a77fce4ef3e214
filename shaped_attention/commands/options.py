"""Options that commands share, and options made from the arguments of a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shaped_attention.checks import did_you_mean

if TYPE_CHECKING:
    from shaped_attention.figures.deferred import Deferred

HELP = {
    "betas": "Inverse temperatures.",
    "depth": "Number L of layers.",
    "device": "'cpu', or 'cuda' or 'cuda:INDEX' (not yet tested on a GPU).",
    "dimension": "Dimension d of the space of the sphere.",
    "figures": "Folder for the figures (PNG and SVG).",
    "gammas": "Weights of the attention branch, each in [0, 1].",
    "progress": "Show progress bars.  [default: if the error stream is a terminal]",
    "results": "Folder for the data (netCDF).",
    "samples": "Number of samples.",
    "seed": "Seed of the random numbers (whole number >= 0).",
    "tau0s": "Temperatures; logits are divided by tau0 sqrt(n n_k).",
    "tokens": "Number of tokens.",
    "width": "Width n of the networks.",
}
"""Help texts of options by name; the docstring of a function may say more about an argument."""

SAME = ("device", "figures", "progress", "seed")
"""Options whose help text is the same everywhere."""


INCOMPLETE = 3
"""Exit status of a sweep that leaves units undone, was interrupted, or gave units up."""

INTERRUPTED = 130
"""Exit status of other commands that were interrupted, as shells have it."""


class InputError(click.ClickException):
    """A bad argument: one sentence on the error stream, exit status 2."""

    exit_code = 2


@contextmanager
def one_sentence() -> Iterator[None]:
    """Report what a command raises as one sentence: exit status 2 for bad arguments, 1 for others.

    Bad arguments raise ValueError, or FileNotFoundError if they name a file.
    """
    try:
        yield
    except BrokenPipeError:
        # Whoever reads the output has enough; click ends in silence.
        raise
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (ValueError, FileNotFoundError) as error:
        raise InputError(str(error)) from error
    except (FloatingPointError, OSError) as error:
        raise click.ClickException(str(error)) from error


class Choice(click.Choice[str]):
    """Names, one of which is needed; the nearest is suggested."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the end of the error message."""
        return f"{value!r}: {did_you_mean(value, self.choices)}"


class Listed(click.ParamType[Any]):
    """Values with commas between them."""

    name = "list"

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a tuple of the values."""
        if not isinstance(value, str):
            return value
        try:
            return tuple(self.kind(word.strip()) for word in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: values of type {self.kind.__name__} with commas are needed")


figures_option = click.option(
    "--figures", type=click.Path(path_type=Path), default=Path("figures"), help=HELP["figures"]
)
"""Where figures go."""

results_option = click.option(
    "--results",
    type=click.Path(path_type=Path),
    help=f"{HELP['results']}  [default: the data are not written]",
)
"""Where the data of figures go."""

progress_option = click.option("--progress/--no-progress", default=None, help=HELP["progress"])
"""Whether to show progress bars."""

seed_option = click.option("--seed", default=0, help=HELP["seed"])
"""The seed."""

device_option = click.option("--device", default="cpu", help=HELP["device"])
"""Where samples are computed."""

_SHORT = 8
"""Values of a list that fit into one line."""

_KINDS: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "Sequence[int]": Listed(int),
    "Sequence[float]": Listed(float),
    "Sequence[str]": Listed(str),
}


def options_of(function: Deferred) -> list[click.Option]:
    """Return an option for each argument that is a number, text, truth value or a list.

    The help of an option is the text of the argument in the function's docstring, or in `HELP`.
    """
    texts = _argument_texts(function.documentation)
    found = []
    for argument in function.arguments:
        flag = f"--{argument.name.replace('_', '-')}"
        text = HELP.get(argument.name)
        if argument.name not in SAME:
            text = texts.get(argument.name, text)
        if argument.annotation in ("bool", "bool | None"):
            flag = f"{flag}/--no-{flag[2:]}"
            found.append(click.Option([flag], default=argument.default, help=text))
            continue
        optional = argument.annotation.removesuffix(" | None")
        kind = _KINDS.get(optional)
        if kind is not None:
            default = argument.default
            if isinstance(kind, Listed) and default is not None:
                words = [_word(value) for value in default]
                # Long lists are wrapped between their values.
                default = (",", ", ")[len(words) > _SHORT].join(words)
            found.append(click.Option([flag], type=kind, default=default, help=text))
    return found


def _word(value: object) -> str:
    """A value as a user would type it."""
    return str(value).removesuffix(".0")


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


def with_options(options: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Decorate a command with options, in their order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
