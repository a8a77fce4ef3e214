"""Types of arguments at the public boundary: a wrong one is a ValueError that names the argument.

What an argument should be is its annotation. Values inside a type are checked where they are used,
with the checks of `shaped_attention.checks`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from shaped_attention.checks import argument_error, is_number

P = ParamSpec("P")
R = TypeVar("R")

Test = Callable[[Any], bool]


def with_types(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that it refuses arguments of wrong types.

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
    check = type_check(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check(signature.bind(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    return call


def type_check(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that raises ValueError for arguments, by name, of a wrong type.

    Annotations that have another alternative than those of `_known` are not looked at.
    """
    rules = {}
    for name, parameter in inspect.signature(function).parameters.items():
        alternatives = [
            part.strip() for part in re.split(r"\|(?![^\[]*\])", str(parameter.annotation))
        ]
        found = [_known(part) for part in alternatives if part != "None"]
        known = [each for each in found if each is not None]
        if parameter.kind is not parameter.VAR_KEYWORD and known and known == found:
            words = dict.fromkeys(words for words, _ in known)
            if "a path" in words:
                words.pop("a string", None)
            tests = [test for _, test in known]
            rules[name] = " or ".join(words), tests, "None" in alternatives

    def check(arguments: Mapping[str, Any]) -> None:
        for name, (words, tests, optional) in rules.items():
            value = arguments.get(name)
            if name not in arguments or (value is None and optional):
                continue
            if not any(test(value) for test in tests):
                raise argument_error(name, words, value)

    return check


def _known(annotation: str) -> tuple[str, Test] | None:
    """Words for an annotation, and a test of a value; None if it is not checked here."""
    if annotation.startswith("Callable"):
        return "a function", callable
    if annotation in ("SphereAttention", "TokenAttention", "xr.Dataset"):
        return _instance(annotation.rpartition(".")[2])
    return {
        "bool": ("True or False", lambda value: isinstance(value, bool | np.bool_)),
        "int": ("an integer", is_number),
        "float": ("a number", is_number),
        "str": ("a string", lambda value: isinstance(value, str)),
        "Path": ("a path", lambda value: isinstance(value, os.PathLike)),
        "os.PathLike[str]": ("a path", lambda value: isinstance(value, os.PathLike)),
        "Sequence[int]": ("a list of numbers", _list_of(is_number)),
        "Sequence[float]": ("a list of numbers", _list_of(is_number)),
        "Sequence[str]": ("a list of names", _list_of(lambda value: isinstance(value, str))),
    }.get(annotation)


def _list_of(test: Test) -> Test:
    def is_list(value: Any) -> bool:
        if hasattr(value, "shape"):
            # An array or a tensor, which the function looks at.
            return True
        listed = hasattr(value, "__len__") and hasattr(value, "__iter__")
        return listed and not isinstance(value, str | bytes | Mapping) and all(map(test, value))

    return is_list


def _instance(name: str) -> tuple[str, Test]:
    """By the name of the class, which is not imported to look at an argument."""
    return f"a {name}", lambda value: any(kind.__name__ == name for kind in type(value).__mro__)
