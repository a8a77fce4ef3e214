"""Sweeps from TOML files; each fault is reported with the table and the key of its entry.

samplers = ["chain", "sde"]
samples = 4096
[fixed]
layer = "attention"
tokens = 4
width = 300
depth = 300
[axes]
gamma = { linspace = [0.1, 0.6, 6] }   # first, last, number
tau0 = { logspace = [0.5, 2.0, 6] }    # first, last, number
heads = [1, 2]
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    did_you_mean,
    with_types,
)
from shaped_attention.io.inputs import read_covariance, read_tokens
from shaped_attention.io.storage import reason
from shaped_attention.numerics.covariance import covariance_of
from shaped_attention.sweep.cells import LAYERS
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.specification_faults import MOST_CELLS, SweepFaultsError

_TABLES = ("fixed", "axes")

_ENTRIES = ["observables" if entry.name == "names" else entry.name for entry in fields(Sweep)]
"""Entries of a file."""

_BARE = re.compile(r"(?!(true|false|inf|nan)$)[A-Za-z_][\w.:-]*")
"""Text without quotes."""

_SPACES: dict[str, Callable[..., NDArray[np.float64]]] = {
    "linspace": np.linspace,
    "logspace": np.geomspace,
}


@with_types
def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep from a TOML file.

    Its tables `fixed` and `axes` contain the parameters of `Sweep`; `layer` is required. An axis is
    a list, ``{linspace = [first, last, number]}``, or `logspace` with the ends themselves (not
    their logarithms). `fixed.covariance` and `fixed.token_file` may name a file (see
    `shaped_attention.read_covariance`, `read_tokens`), and `fixed.config` a config.json or its
    folder, relative to the sweep's own. The other entries are `samplers`, `samples`, `block`,
    `seed`, `keep`, `observables`, `fractions`, `device`, `dtype`, `seconds`, and the table
    `target`.

    Raises
    ------
    SweepFaultsError
        If the file has faults. Those that cannot be read and values of the wrong type come first,
        then all others.
    """
    source = Path(path)
    try:
        entries = tomllib.loads(source.read_text(encoding="utf-8"))
        tables = {name: _table(name, entries.get(name, {})) for name in _TABLES}
        fixed, axes = _with_files(tables["fixed"], source.parent), tables["axes"]
        axes = {name: axis_values(name, value) for name, value in axes.items()}
    except (OSError, ValueError) as error:
        raise SweepFaultsError([f"{source}: {reason(error)}"], str(source)) from None
    faults = [
        f"{name} is not an entry of a sweep; {did_you_mean(name, _ENTRIES)}"
        for name in entries
        if name not in _ENTRIES
    ]
    if "layer" not in {*fixed, *axes}:
        faults.append(f"layer must be given, fixed or as an axis; {LAYERS}")
    settings = {name: entries[name] for name in _ENTRIES if name in entries}
    if "observables" in settings:
        settings["names"] = settings.pop("observables")
    try:
        sweep = Sweep(**settings | {"fixed": fixed, "axes": axes})
    except SweepFaultsError as error:
        for entry, sentence in error.faults:
            table = "axes." if entry in axes else "fixed." if entry in fixed else ""
            faults.append(table + sentence)
    if faults:
        raise SweepFaultsError(faults, str(source))
    return sweep


def as_sweep(sweep: Sweep | str | Path) -> Sweep:
    """Return the sweep itself, or that of a TOML file."""
    return sweep if isinstance(sweep, Sweep) else read_sweep(sweep)


def _table(name: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise argument_error(name, f"a table [{name}]", table)
    return table


def _with_files(fixed: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Replace the name of a file by its matrix, so that the sweep depends on no files."""
    config, start = fixed.get("config"), fixed.get("covariance")
    if isinstance(config, str) and (folder / config).exists():
        fixed = fixed | {"config": str(folder / config)}
    if "token_file" in fixed:
        if start is not None:
            raise ValueError("token_file, covariance: give exactly one of the two")
        tokens = read_tokens(folder / str(fixed["token_file"]))
        fixed = fixed | {"covariance": covariance_of(tokens).tolist()}
        del fixed["token_file"]
    elif isinstance(start, str):
        fixed = fixed | {"covariance": read_covariance(folder / start).tolist()}
    return fixed


def axis_values(name: str, value: Any) -> list[Any]:
    """Return the values of an axis, given as a list or as a table `linspace` or `logspace`.

    The values of a table are those of NumPy's `linspace` and `geomspace`, or the number of 12
    digits that one of them is up to rounding.
    """
    if isinstance(value, list):
        return value
    if not (isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _SPACES):
        needed = "a list, {linspace = [first, last, number]} or {logspace = [...]}"
        raise argument_error(name, needed, value)
    ((kind, ends),) = value.items()
    try:
        first, last, number = ends
        check_count("the number of values", number)
        if number > MOST_CELLS:
            raise ValueError(f"at most {MOST_CELLS} values")
        for end in (first, last):
            check_finite("an end", end)
            if kind == "logspace" and end <= 0:
                raise ValueError("the ends of a logspace must be positive")
    except (TypeError, ValueError) as error:
        needed = f"{{{kind} = [first, last, number]}} ({error})"
        raise argument_error(name, needed, value) from None
    exact = _SPACES[kind](first, last, number).tolist()
    short = [float(f"{x:.12g}") for x in exact]
    values = [
        s if math.isclose(s, x, rel_tol=1e-14) else x for s, x in zip(short, exact, strict=True)
    ]
    whole = isinstance(first, int) and isinstance(last, int) and all(x == round(x) for x in values)
    return [round(x) for x in values] if whole else values


def read_axis(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values in NAME=VALUES, as given on a command line.

    Values are written as in TOML and separated by commas; text needs no quotes.
    """
    name, _, values = (part.strip() for part in text.partition("="))
    words = [word.strip() for word in values.split(",")]
    if name and all(map(_BARE.fullmatch, words)):
        return name, words
    try:
        if not (name and values):
            raise ValueError("a part is missing")
        listed = tomllib.loads(f"values = [{values}]")["values"]
    except ValueError as error:
        raise ValueError(f"{text!r} must have the form gamma=0.7,0.8 ({error})") from None
    if len(listed) == 1:
        (only,) = listed
        if isinstance(only, dict) and "schedule" not in only:
            return name, axis_values(name, only)
        # A list of values in brackets; a matrix is one value.
        if isinstance(only, list) and not any(isinstance(value, list) for value in only):
            return name, only
    return name, listed
