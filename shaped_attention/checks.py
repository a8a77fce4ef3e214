"""Checks of arguments at the public boundary, with one sentence that names what is allowed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shaped_attention.lazy_torch import Tensor

LARGEST_WIDTH = 2**53
"""Integers up to this bound are exact in double precision."""


def check_fraction(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1."""
    if not (is_number(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"{name}={value!r}: a number from 0 to 1 is needed")


def check_inside(name: str, value: float) -> None:
    """Raise ValueError unless value is a number strictly between 0 and 1."""
    if not (is_number(value) and 0.0 < value < 1.0):
        raise ValueError(f"{name}={value!r}: a number strictly between 0 and 1 is needed")


def check_skip(skip: Any) -> None:
    """Raise ValueError unless a skip weight is None, a finite number or a finite schedule."""
    for value in getattr(skip, "values", (skip,)):
        if value is not None:
            check_finite("skip", value)


def check_nonnegative(name: str, value: float) -> None:
    """Raise ValueError unless value is finite and at least 0."""
    if not (is_number(value) and np.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name}={value!r}: a finite number >= 0 is needed")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless value is finite and positive."""
    if not (is_number(value) and np.isfinite(value) and value > 0.0):
        raise ValueError(f"{name}={value!r}: a positive finite number is needed")


def check_finite(name: str, value: float) -> None:
    """Raise ValueError unless value is a finite number."""
    if not (is_number(value) and np.isfinite(value)):
        raise ValueError(f"{name}={value!r}: a finite number is needed")


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless low <= value <= high."""
    if not (is_number(value) and low <= value <= high):
        raise ValueError(f"{name}={value!r}: a number from {low:g} to {high:g} is needed")


def check_count(name: str, value: int, lowest: int = 1) -> None:
    """Raise ValueError unless value is an integer >= lowest."""
    if not (is_number(value) and isinstance(value, int | np.integer) and value >= lowest):
        raise ValueError(f"{name}={value!r}: a whole number >= {lowest} is needed")


def check_width(name: str, value: int) -> None:
    """Raise ValueError unless value is an integer from 1 to `LARGEST_WIDTH`."""
    check_count(name, value)
    if value > LARGEST_WIDTH:
        raise ValueError(f"{name}={value!r}: a whole number from 1 to 2^53 is needed")


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError, suggesting the nearest choice, unless value is an allowed name."""
    choices = [str(choice) for choice in allowed]
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name}={value!r}: {did_you_mean(value, choices)}")


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Return the end of an error message: the choices and the one probably meant."""
    choices = list(choices)
    near = get_close_matches(str(value), choices, n=1, cutoff=0.6)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return f"one of {', '.join(choices)} is needed{guess}"


def check_keywords(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Raise ValueError unless every name in `given` is an argument of the function."""
    known = inspect.signature(function).parameters
    for name, value in given.items():
        if name not in known:
            raise ValueError(
                f"{name}={value!r}: {function.__name__} has no such argument; "
                f"{did_you_mean(name, known)}"
            )


def check_values(name: str, values: Sequence[object]) -> None:
    """Raise ValueError unless there is at least one value and none is repeated."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ValueError(f"{name}={values!r}: a list of values is needed")
    if len(values) == 0 or len(set(values)) < len(values):
        raise ValueError(f"{name}={list(values)}: different values, at least one, are needed")


def is_number(value: object) -> bool:
    """Return whether a value is a real number and not a truth value."""
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool | np.timedelta64)


def check_not_masked(value: Any, name: str) -> None:
    """Raise ValueError for an array with masked entries, which NumPy would use all the same."""
    masked = int(np.ma.getmaskarray(value).sum()) if isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"{name} must be an array without a mask; it has {masked} masked entries")


def real_array(value: ArrayLike, name: str, trained: bool = False) -> NDArray[np.float64]:
    """Return `value` as a float64 array; `trained` also accepts parameters of a model.

    Entries may be infinite or NaN.

    Raises
    ------
    ValueError
        If the entries are not real numbers, or if `value` is a tensor that requires gradients: the
        gradients would be lost.
    """
    if isinstance(value, Tensor):
        if value.requires_grad and not trained:
            raise ValueError(
                f"{name} requires gradients, which do not pass through here; {name}.detach() is "
                "needed"
            )
        value = value.detach().cpu()
    try:
        raw = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).split(". ")[0]
        raise ValueError(
            f"{name} is not an array ({reason}); an array of numbers is needed"
        ) from None
    check_not_masked(value, name)
    if np.iscomplexobj(raw):
        raise ValueError(f"{name} has complex entries; real numbers are needed")
    needed = f"{name} has entries of type {raw.dtype}; numbers are needed"
    if raw.dtype.kind not in "biufO":
        raise ValueError(needed)
    try:
        return raw.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise ValueError(needed) from None
