"""Sweeps from TOML files, such as ``notebooks/sweep.toml``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    function_named,
    names_code,
    with_types,
)
from shaped_attention.io.inputs import read_covariance, read_tokens
from shaped_attention.io.storage import reason
from shaped_attention.numerics.covariance import covariance_of
from shaped_attention.sweep.cells import LAYERS
from shaped_attention.sweep.file import SweepFile
from shaped_attention.sweep.specification import MOST_CELLS, Sweep, SweepFaultsError

_SPACES: dict[str, Callable[..., NDArray[np.float64]]] = {
    "linspace": np.linspace,
    "logspace": np.geomspace,
}


@with_types
def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep from a TOML file, or the specification in a ``.sweep`` file.

    The tables `fixed` and `axes` of a TOML file contain the parameters of `Sweep`; `layer` is
    required, and may be 'module:function', which is imported. An axis is a list,
    ``{linspace = [first, last, number]}``, or `logspace` with the ends themselves (not their
    logarithms). `fixed.covariance` and `fixed.token_file` may name a file (see
    `shaped_attention.read_covariance`, `read_tokens`), and `fixed.config` a config.json or its
    folder, relative to the sweep's own. The other entries are those of `Sweep`.

    From a ``.sweep`` nothing is imported: of its functions it has the names.

    Raises
    ------
    SweepFaultsError
        If the file has faults; all of them are listed.
    SweepFileError
        If a ``.sweep`` cannot be read.
    """
    source = Path(path)
    if source.suffix == ".sweep":
        with SweepFile(source) as file:
            return file.sweep
    try:
        entries = tomllib.loads(source.read_text(encoding="utf-8"))
        tables = {name: _table(name, entries.pop(name, {})) for name in ("fixed", "axes")}
        fixed = _with_files(tables["fixed"], source.parent)
        axes = {name: axis_values(name, value) for name, value in tables["axes"].items()}
        if "layer" not in {*fixed, *axes}:
            raise ValueError(f"layer must be given, fixed or as an axis; {LAYERS}")
        for table in (fixed, axes):
            if "layer" in table:
                table["layer"] = _imported(table["layer"])
    except (OSError, ValueError) as error:
        raise SweepFaultsError([reason(error)], str(source)) from None
    try:
        return Sweep(fixed, axes, **entries)
    except SweepFaultsError as error:
        raise SweepFaultsError(error.faults, str(source)) from None


def _table(name: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise argument_error(name, f"a table [{name}]", table)
    return table


def _imported(layer: Any) -> Any:
    """Return the function that 'module:function' names; anything else as it is."""
    if isinstance(layer, list):
        return list(map(_imported, layer))
    return function_named(layer) if names_code(layer) else layer


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
