"""Values of axes as TOML writes them: lists, and tables of evenly spaced values."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from shaped_attention.checks import check_count, check_finite
from shaped_attention.sweep.faults import MOST_CELLS

_ROUNDING = 1e-14
"""Relative error of NumPy's logarithmic spacing, below which a round number is meant."""

_BARE = re.compile(r"[A-Za-z_][\w.:-]*")


def axis_values(name: str, value: Any) -> list[Any]:
    """Return the values of an axis: of a list, or of a table `linspace` or `logspace`.

    Raises
    ------
    ValueError
        If it is neither.
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
        f"{name}={value!r}: a list, or {{linspace = [first, last, number]}} or logspace"
    )


def read_axis(text: str) -> tuple[str, list[Any]]:
    """Return name and values of NAME=VALUES on a command line.

    Values are as TOML writes them, with commas between them; text needs no quotes.

    Raises
    ------
    ValueError
        If it cannot be read so.
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
    """Return the floating-point numbers next to the exact ones: 0.3, and 1 / 3 as Python has it."""
    low, high = Fraction(str(first)), Fraction(str(last))
    steps = max(number - 1, 1)
    return [float(low + (high - low) * k / steps) for k in range(number)]


def _logarithmic(first: float, last: float, number: int) -> list[float]:
    """Return NumPy's values, and the round number or simple fraction where it is meant by one."""
    if not (first > 0 and last > 0):
        raise ValueError("the ends of a logspace are positive")
    return [_meant(float(x)) for x in np.geomspace(first, last, number)]


def _meant(x: float) -> float:
    candidates = float(f"{x:.12g}"), float(Fraction(x).limit_denominator(1000))
    return next((c for c in candidates if math.isclose(c, x, rel_tol=_ROUNDING)), x)


_SPACES: dict[str, Callable[[float, float, int], list[float]]] = {
    "linspace": _linear,
    "logspace": _logarithmic,
}
