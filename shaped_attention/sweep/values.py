"""Values in a sweep as plain data, and its functions as names, which a file holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shaped_attention.checks import argument_error, names_code


def each(change: Callable[[Any], Any], value: Any) -> Any:
    """Return nested lists and mappings with every value in them changed."""
    if isinstance(value, Mapping):
        return {name: each(change, entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [each(change, entry) for entry in value]
    return change(value)


def named(value: Any) -> Any:
    """Return the name by which a file records a function; any other value as it is."""
    return f"{value.__module__}:{value.__qualname__}" if callable(value) else value


def plain(value: Any) -> Any:
    """Return a value without NumPy's types; raise ValueError for what has no name in a file."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if callable(value) and (not inspect.isfunction(value) or "<" in value.__qualname__):
        raise argument_error("layer", "a function at the top level of a module", value)
    return value


def refuse_code(name: str, value: Any) -> None:
    """Raise ValueError, naming the parameter, for a text that names code."""
    if names_code(value):
        raise argument_error(
            name, "a function itself: no code that a file names is imported", value
        )
