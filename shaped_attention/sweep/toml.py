"""Sweeps from TOML files; each fault is reported with its line.

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
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from shaped_attention.checks import check_count, check_finite, did_you_mean, with_types
from shaped_attention.io.inputs import read_covariance, read_tokens
from shaped_attention.io.storage import reason
from shaped_attention.numerics.covariance import covariance_of
from shaped_attention.sweep.cells import LAYERS
from shaped_attention.sweep.faults import MOST_CELLS, SweepFaultsError
from shaped_attention.sweep.specification import Sweep

_SETTINGS = {
    "samplers": "samplers",
    "samples": "samples",
    "block": "block",
    "seed": "seed",
    "keep": "keep",
    "observables": "names",
    "fractions": "fractions",
    "device": "device",
    "dtype": "dtype",
    "seconds": "seconds",
    "target": "target",
}
"""Entries of a file apart from the tables `fixed` and `axes`, and the fields that they set."""

_BARE = re.compile(r"[A-Za-z_][\w.:-]*")

_PLACEHOLDER = None
"""Single value of an axis that could not be read."""


@with_types
def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep from a TOML file.

    Its tables `fixed` and `axes` have the parameters of `Sweep`; `layer` is required. An axis is a
    list, ``{linspace = [first, last, number]}``, or `logspace` with the ends themselves (not their
    logarithms). `fixed.covariance` and `fixed.token_file` may name a file (see
    `shaped_attention.read_covariance`, `read_tokens`), and `fixed.config` a config.json or its
    folder, relative to the sweep's own. The other
    entries are `samplers`, `samples`, `block`, `seed`, `keep`, `observables`, `fractions`,
    `device`, `dtype`, `seconds`, and the table `target`.

    Raises
    ------
    SweepFaultsError
        If the file has faults, with all of them and their lines.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
        entries = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SweepFaultsError([("", f"{source}: {reason(error)}")], str(source)) from None
    faults: list[tuple[str, str]] = []
    for name in entries:
        if name not in (*_SETTINGS, "fixed", "axes"):
            known = did_you_mean(name, (*_SETTINGS, "fixed", "axes"))
            faults.append((name, f"{name}: not an entry of a sweep; {known}"))
    settings = {_SETTINGS[k]: v for k, v in entries.items() if k in _SETTINGS}
    fixed, axes = (_table(entries, name, faults) for name in ("fixed", "axes"))
    for name, value in axes.items():
        try:
            axes[name] = axis_values(name, value)
        except ValueError as error:
            faults.append((name, str(error)))
            axes[name] = [_PLACEHOLDER]
    _read_start(fixed, source.parent, faults)
    known_faults = {name for name, _ in faults}
    try:
        sweep = Sweep(fixed=fixed, axes=axes, **settings)
    except SweepFaultsError as error:
        # A placeholder for an invalid entry is not a second fault.
        faults += [
            (name, sentence)
            for name, sentence in error.faults
            if name not in known_faults
            and not any(f"{bad}={_PLACEHOLDER!r}" in sentence for bad in known_faults)
        ]
    if "layer" not in {*fixed, *axes}:
        faults.append(("layer", f"layer: a value is needed, fixed or as an axis; {LAYERS}"))
    if faults:
        lines = _lines(text)
        raise SweepFaultsError(
            [(name, _with_line(sentence, _line(lines, name, axes))) for name, sentence in faults],
            str(source),
        )
    return sweep


def as_sweep(sweep: Sweep | str | Path) -> Sweep:
    """Return the sweep itself, or that of a TOML file.

    Raises
    ------
    ValueError
        If `sweep` is neither, or as in `read_sweep`.
    """
    if isinstance(sweep, Sweep):
        return sweep
    if isinstance(sweep, str | Path):
        return read_sweep(sweep)
    raise ValueError(f"sweep={sweep!r}: a Sweep, or the path of its TOML file, is needed")


def _table(entries: dict[str, Any], name: str, faults: list[tuple[str, str]]) -> dict[str, Any]:
    table = entries.get(name, {})
    if isinstance(table, dict):
        return dict(table)
    faults.append((name, f"{name}={table!r}: a table [{name}] is needed"))
    return {}


def _read_start(fixed: dict[str, Any], folder: Path, faults: list[tuple[str, str]]) -> None:
    """Replace the name of a file by its matrix, so that the sweep depends on no files."""
    config = fixed.get("config")
    if isinstance(config, str) and (folder / config).exists():
        fixed["config"] = str(folder / config)
    for name in ("covariance", "token_file"):
        value = fixed.get(name)
        if not isinstance(value, str):
            continue
        if name == "token_file" and "covariance" in fixed:
            faults.append((name, "token_file, covariance: one of the two is needed"))
            fixed.pop(name)
            continue
        fixed.pop(name)
        v0 = np.eye(1)
        try:
            read = read_covariance if name == "covariance" else read_tokens
            matrix = read(folder / value)
            v0 = matrix if name == "covariance" else covariance_of(matrix)
        except (ValueError, OSError) as error:
            faults.append((name, str(error)))
        fixed["covariance"] = v0.tolist()


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the first line of each entry and table, by its keys from the outermost inwards.

    A statement of TOML ends with the first line at which the parser accepts it.
    """
    lines: dict[tuple[str, ...], int] = {}
    header, statement, first = "", "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += f"{line}\n"
        heads = statement.lstrip().startswith("[")
        try:
            entries = tomllib.loads(statement if heads else header + statement)
        except tomllib.TOMLDecodeError:
            continue
        for path in _paths(entries):
            lines.setdefault(path, first)
        header = statement if heads else header
        statement, first = "", number + 1
    return lines


def _paths(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the keys of all entries of nested tables, outer ones first."""
    for name, entry in value.items() if isinstance(value, dict) else ():
        yield (name,)
        yield from ((name, *path) for path in _paths(entry))


def _line(lines: dict[tuple[str, ...], int], name: str, axes: dict[str, Any]) -> int | None:
    """Return the line of an entry: among the axes first if it is one."""
    if "." in name:
        return lines.get(tuple(name.split(".")), lines.get((name.partition(".")[0],)))
    places = ("axes", name), ("fixed", name), (name,)
    order = places if name in axes else (places[1], places[2], places[0])
    return next((lines[place] for place in order if place in lines), None)


def _with_line(sentence: str, line: int | None) -> str:
    return sentence if line is None else f"line {line}: {sentence}"


def axis_values(name: str, value: Any) -> list[Any]:
    """Return the values of an axis, given as a list or as a table `linspace` or `logspace`.

    Raises
    ------
    ValueError
        If `value` is neither.
    """
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and len(value) == 1 and (kind := next(iter(value))) in _SPACES:
        try:
            first, last, number = value[kind]
            check_count("the number of values", number)
            if number > MOST_CELLS:
                raise ValueError(f"at most {MOST_CELLS} values")
            for end in (first, last):
                check_finite("an end", end)
            found = _SPACES[kind](first, last, number)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}={value!r}: [first, last, number] is needed ({error})"
            ) from None
        whole = isinstance(first, int) and isinstance(last, int)
        whole = whole and all(x == round(x) for x in found)
        return [round(x) for x in found] if whole else found
    raise ValueError(
        f"{name}={value!r}: a list, {{linspace = [first, last, number]}} or logspace is needed"
    )


def read_axis(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values in NAME=VALUES, as given on a command line.

    Values are written as in TOML and separated by commas; text needs no quotes.

    Raises
    ------
    ValueError
        If `text` does not have this form.
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    needed = f"{text!r}: NAME=VALUES is needed, as in gamma=0.7,0.8"
    if not name or not equals or not values:
        raise ValueError(needed)
    words = [word.strip() for word in values.split(",")]
    try:
        found = tomllib.loads(f"values = [{values}]")["values"]
    except tomllib.TOMLDecodeError as error:
        if not all(_BARE.fullmatch(word) for word in words):
            raise ValueError(f"{needed} ({error})") from None
        return name, words
    if len(found) == 1:
        (only,) = found
        if isinstance(only, dict) and "schedule" not in only:
            return name, axis_values(name, only)
        # A list of values in brackets; a matrix is one value.
        if isinstance(only, list) and not any(isinstance(value, list) for value in only):
            return name, only
    return name, found


def _linear(first: float, last: float, number: int) -> list[float]:
    """Return the floating-point numbers nearest the exact ones: 0.3, and 1 / 3 as in Python."""
    low, high = Fraction(str(first)), Fraction(str(last))
    return [float(low + (high - low) * k / max(number - 1, 1)) for k in range(number)]


def _logarithmic(first: float, last: float, number: int) -> list[float]:
    """Return NumPy's values, or the round number that one of them is up to rounding."""
    if not (first > 0 and last > 0):
        raise ValueError("the ends of a logspace must be positive")
    exact = np.geomspace(first, last, number).tolist()
    short = [float(f"{x:.12g}") for x in exact]
    return [
        s if math.isclose(s, x, rel_tol=1e-14) else x for s, x in zip(short, exact, strict=True)
    ]


_SPACES: dict[str, Callable[[float, float, int], list[float]]] = {
    "linspace": _linear,
    "logspace": _logarithmic,
}
