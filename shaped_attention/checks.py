"""Checks of arguments at the public boundary, with one sentence that names what is allowed."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shaped_attention.libraries import Tensor

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_WIDTH = 2**53
"""Integers up to this bound are exact in double precision."""

_LONGEST = 80
"""Characters of the longest value that an error message shows."""


def argument_error(name: str, requirement: str, value: object) -> ValueError:
    """Return the error of an argument that is outside its range.

    Examples
    --------
    >>> raise argument_error("gamma", "in [0, 1]", 1.5)
    Traceback (most recent call last):
    ValueError: gamma must be in [0, 1]; got 1.5
    """
    return ValueError(f"{name} must be {requirement}; got {shown(value)}")


def shown(value: object) -> str:
    """Return a value as an error message shows it; a long one by its type or by its call."""
    attrs = getattr(value, "attrs", None)
    function = attrs.get("function") if isinstance(attrs, Mapping) else None
    if isinstance(function, str):
        return f"a result of {function.rpartition(':')[2]}"
    if inspect.isfunction(value):
        return f"the function {value.__name__}"
    text = repr(value)
    if len(text) <= _LONGEST and "\n" not in text:
        return text
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    shape = getattr(value, "shape", None)
    return f"{article} {kind}" + (f" of shape {tuple(shape)}" if shape is not None else "")


def check_fraction(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1."""
    check_range(name, value, 0.0, 1.0)


def check_inside(name: str, value: float) -> None:
    """Raise ValueError unless value is a number strictly between 0 and 1."""
    if not (is_number(value) and 0.0 < value < 1.0):
        raise argument_error(name, _kind_of_number(value) + "in (0, 1)", value)


def check_skip(skip: Any) -> None:
    """Raise ValueError unless a skip weight is None, a finite number or a finite schedule."""
    for value in getattr(skip, "values", (skip,)):
        if value is not None:
            check_finite("skip", value)


def check_nonnegative(name: str, value: float) -> None:
    """Raise ValueError unless value is finite and at least 0."""
    if not (is_number(value) and np.isfinite(value) and value >= 0.0):
        raise argument_error(name, "finite and >= 0", value)


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless value is finite and positive."""
    if not (is_number(value) and np.isfinite(value) and value > 0.0):
        raise argument_error(name, "positive and finite", value)


def check_finite(name: str, value: float) -> None:
    """Raise ValueError unless value is a finite number."""
    if not (is_number(value) and np.isfinite(value)):
        raise argument_error(name, "a finite number", value)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless low <= value <= high."""
    if not (is_number(value) and low <= value <= high):
        raise argument_error(name, f"{_kind_of_number(value)}in [{low:g}, {high:g}]", value)


def _kind_of_number(value: object) -> str:
    return "" if is_number(value) else "a number "


def check_count(name: str, value: int, lowest: int = 1) -> None:
    """Raise ValueError unless value is an integer >= lowest."""
    if not (is_number(value) and isinstance(value, int | np.integer) and value >= lowest):
        raise argument_error(name, f"an integer >= {lowest}", value)


def check_width(name: str, value: int) -> None:
    """Raise ValueError unless value is an integer from 1 to `LARGEST_WIDTH`."""
    check_count(name, value)
    if value > LARGEST_WIDTH:
        raise argument_error(name, "an integer in [1, 2^53]", value)


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError, suggesting the nearest choice, unless value is an allowed name."""
    choices = [str(choice) for choice in allowed]
    if not (isinstance(value, str) and value in choices):
        guess = _guess(value, choices)
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {shown(value)}{guess}")


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Return the end of an error message: the choices and the one probably meant."""
    choices = list(choices)
    return f"choose one of {', '.join(choices)}{_guess(value, choices)}"


def suggestion(value: object, choices: Iterable[str]) -> str:
    """Return "did you mean ...?" with the nearest choice, or an empty text if none is near."""
    near = get_close_matches(str(value), list(choices), n=1, cutoff=0.65)
    return f"did you mean {near[0]!r}?" if near else ""


def _guess(value: object, choices: Sequence[str]) -> str:
    near = suggestion(value, choices)
    return f" ({near})" if near else ""


def check_keywords(function: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raise ValueError unless every keyword is an argument of the function."""
    known = inspect.signature(function).parameters
    for name in keywords:
        if name not in known:
            raise ValueError(
                f"{function.__name__} has no argument {name!r}; {did_you_mean(name, known)}"
            )


def check_branch(block: object, branch: Any, tokens: Any) -> None:
    """Raise ValueError unless a branch has the shape of the tokens, so that their sum is defined.

    Torch would repeat a single row or column in silence.
    """
    expected, shape = tuple(tokens.shape)[-2:], getattr(branch, "shape", None)
    if shape is None or tuple(shape)[-2:] != expected:
        got = type(branch).__name__ if shape is None else f"shape {tuple(shape)[-2:]}"
        rows, columns = expected
        raise ValueError(
            f"branch of {type(block).__name__} must return one row of {columns} columns for each "
            f"of the {rows} tokens; got {got}"
        )


def bound_arguments(
    name: str, signature: inspect.Signature, values: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments of a call; an error names the function, and the keyword meant."""
    try:
        return signature.bind(*values, **named)
    except TypeError as error:
        known = list(signature.parameters)
        unknown = [keyword for keyword in named if keyword not in known]
        if not unknown or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            raise TypeError(f"{name}() {error}") from None
        # Python names a missing argument first, although it is the one that was misspelt.
        hint = suggestion(unknown[0], known) or did_you_mean(unknown[0], known)
        raise TypeError(f"{name}() has no argument {unknown[0]!r}; {hint}") from None


def check_values(name: str, values: Sequence[object]) -> None:
    """Raise ValueError unless there is at least one value and none is repeated."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise argument_error(name, "a list of values", values)
    if len(values) == 0 or len(set(values)) < len(values):
        raise argument_error(name, "a list of distinct values", values)


def is_number(value: object) -> bool:
    """Return whether a value is a real number and not a truth value."""
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool | np.timedelta64)


def check_not_masked(value: Any, name: str) -> None:
    """Raise ValueError for an array with masked entries, which NumPy would use all the same."""
    masked = int(np.ma.getmaskarray(value).sum()) if isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"{name} must be an array without a mask; it has {masked} masked entries")


def check_not_meta(tensor: Tensor, name: str) -> None:
    """Raise ValueError for a tensor without entries."""
    if tensor.is_meta:
        raise ValueError(f"{name} must have entries; got a tensor on the meta device")


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
                f"{name} must not require gradients, which do not pass through here; pass "
                f"{name}.detach()"
            )
        check_not_meta(value, name)
        value = value.detach().cpu()
    try:
        raw = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).split(". ")[0]
        raise ValueError(f"{name} must be an array of numbers; {reason}") from None
    check_not_masked(value, name)
    if np.iscomplexobj(raw):
        raise ValueError(f"{name} must be real; got complex entries")
    not_numbers = f"{name} must be an array of numbers; got entries of type {raw.dtype}"
    if raw.dtype.kind not in "biufO":
        raise ValueError(not_numbers)
    try:
        return raw.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise ValueError(not_numbers) from None


def with_types(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that it refuses arguments of other types than annotated.

    Values within a type are checked where they are used.

    Examples
    --------
    >>> @with_types
    ... def area(width: float, path: str | Path | None = None) -> None:
    ...     pass
    >>> area("wide")
    Traceback (most recent call last):
    ValueError: width must be a number; got 'wide'
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_types(function, signature.bind(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    return call


def check_types(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if an argument, by name, is of none of the types of its annotation.

    An annotation that has an alternative which `_kind` does not know is not looked at.
    """
    for name, kinds in _kinds_of(function).items():
        if name in arguments and not any(test(arguments[name]) for _, test in kinds):
            words = dict.fromkeys(words for words, _ in kinds if words)
            if "a path" in words:
                words.pop("a string", None)
            raise argument_error(name, " or ".join(words), arguments[name])


_CLASSES = ("Dataset", "Executor", "Sweep")
"""Classes of arguments besides dataclasses, by name, which does not load them."""

_Kind = tuple[str, Callable[[Any], bool]]
"""A type in words, and a test of a value; None has no words."""


class _AnyName(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls


class _OfTorch(metaclass=_AnyName):
    """Stands for torch and its types in annotations, which must not load it."""


@cache
def _kinds_of(function: Callable[..., Any]) -> dict[str, list[_Kind]]:
    kinds: dict[str, list[_Kind]] = {}
    hints = get_type_hints(function, localns={"torch": _OfTorch})
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name)
        alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        known = [kind for kind in map(_kind, alternatives) if kind is not None]
        if len(known) == len(alternatives) and parameter.kind is not parameter.VAR_KEYWORD:
            kinds[name] = known
    return kinds


def _kind(hint: Any) -> _Kind | None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Callable:
        return "a function", callable
    if origin is Sequence and arguments[0] in (int, float, str):
        words = "a list of names" if arguments[0] is str else "a list of numbers"
        return words, lambda value: _is_list(value, _KINDS[arguments[0]][1])
    if isinstance(hint, type) and (is_dataclass(hint) or hint.__name__ in _CLASSES):
        article = "an" if hint.__name__[0] in "AEIOU" else "a"
        return f"{article} {hint.__name__}", lambda value: isinstance(value, hint)
    return _KINDS.get(origin or hint)


_KINDS: dict[Any, _Kind] = {
    NoneType: ("", lambda value: value is None),
    bool: ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: ("an integer", is_number),
    float: ("a number", is_number),
    str: ("a string", lambda value: isinstance(value, str)),
    Path: ("a path", lambda value: isinstance(value, os.PathLike)),
    os.PathLike: ("a path", lambda value: isinstance(value, os.PathLike)),
}


def _is_list(value: Any, test: Callable[[Any], bool]) -> bool:
    if hasattr(value, "shape"):
        # An array or a tensor, which the function looks at.
        return True
    listed = hasattr(value, "__len__") and hasattr(value, "__iter__")
    return listed and not isinstance(value, str | bytes | Mapping) and all(map(test, value))


def check_new_name(taken: set[tuple[str, int]], name: str | None, head: int) -> None:
    """Raise ValueError if a matrix of this name and head is taken; afterwards it is."""
    if name is None:
        return
    if (name, head) in taken:
        raise ValueError(
            f"project must have a new name or head in each call; got name={name!r}, head={head} "
            "twice: equal names do not tie weights"
        )
    taken.add((name, head))


_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def names_code(value: object) -> TypeGuard[str]:
    """Return whether a value is text of the form "module:name"."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def function_named(
    name: str,
    argument: str = "layer",
    requirement: str = "a 'module:function' that can be imported",
) -> Callable[..., Any]:
    """Return a function, such as that of a layer, which an argument names as 'module:function'.

    Raise ValueError, which names the argument, if there is none. What a file says never comes here:
    to import a module runs it.
    """
    if not names_code(name):
        raise argument_error(argument, requirement, name)
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ValueError(f"{argument_error(argument, requirement, name)} (of Python's library)")
    # Find modules in the working directory, like `python -m` and unlike installed commands.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs any code
        raise ValueError(f"{argument_error(argument, requirement, name)} ({error})") from None
    if not callable(function):
        raise ValueError(f"{argument_error(argument, requirement, name)} (not a function)")
    return function
