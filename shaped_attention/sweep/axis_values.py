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
"""Rounding error of NumPy's logarithmic spacing: a round number so close is meant."""

_BARE = re.compile(r"[A-Za-z_][\w.:-]*")


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
    steps = max(number - 1, 1)
    return [float(low + (high - low) * k / steps) for k in range(number)]


def _logarithmic(first: float, last: float, number: int) -> list[float]:
    """Return NumPy's values, or the round number or simple fraction that is meant by one."""
    if not (first > 0 and last > 0):
        raise ValueError("the ends of a logspace must be positive")
    return [_meant(float(x)) for x in np.geomspace(first, last, number)]


def _meant(x: float) -> float:
    candidates = float(f"{x:.12g}"), float(Fraction(x).limit_denominator(1000))
    return next((c for c in candidates if math.isclose(c, x, rel_tol=_ROUNDING)), x)


_SPACES: dict[str, Callable[[float, float, int], list[float]]] = {
    "linspace": _linear,
    "logspace": _logarithmic,
}
