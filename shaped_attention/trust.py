"""Which code what lies on a disk may name: that of this package, and of modules the caller trusts.

Records of results and stores of sweeps name classes and functions as "module:name". To import a
module runs it, so a file from elsewhere must not decide which. A name is looked up only if its
module belongs to this package, is trusted by the caller, or if this process used that very name
itself, so that what it has just made can be run again without `trust`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeGuard

from shaped_attention.checks import argument_error

_PACKAGE = __name__.partition(".")[0]

_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")

_used: set[str] = set()


def note_use(name: str) -> None:
    """Note a "module:name" that this process itself was given, not read from a file."""
    _used.add(name)


def names_code(value: object) -> TypeGuard[str]:
    """Return whether a value is text of the form "module:name"."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def function_named(
    name: str,
    argument: str = "layer",
    requirement: str = "a 'module:function' that can be imported",
) -> Callable[..., Any]:
    """Return a function, such as that of a layer, which an argument names as 'module:function'.

    Raise ValueError, which names the argument, if it is missing.
    """
    if not names_code(name):
        raise argument_error(argument, requirement, name)
    module, _, attribute = name.partition(":")
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


def belongs(module: str, packages: Collection[str]) -> bool:
    """Return whether a module is one of some packages or a part of one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def check_modules(trust: Collection[str]) -> None:
    """Raise ValueError unless `trust` is a list of names of modules."""
    listed = isinstance(trust, Collection) and not isinstance(trust, str)
    if not listed or not all(isinstance(module, str) for module in trust):
        raise argument_error("trust", "a list of names of modules", trust)


def check_trusted(name: str, trust: Collection[str], what: str, package: bool = True) -> None:
    """Raise ValueError unless a "module:name" from a disk may be imported; `what` is its subject.

    Names of this `package` may be looked up without being trusted, but not where what they name is
    called with arguments from the same file.
    """
    module = name.partition(":")[0]
    if not (name in _used or belongs(module, (_PACKAGE, *trust) if package else trust)):
        raise ValueError(
            f"{what} {name}, and no file may choose the code that runs; to allow it, pass "
            f"trust=[{module!r}] (--trust {module})"
        )


class UnrecordedError(ValueError):
    """An argument that plain data cannot express; the message gives the reason."""


def name_of(thing: Any) -> str:
    """Return "module:name" of a function or class, in the outermost package that exports it.

    Raises
    ------
    UnrecordedError
        If it cannot be imported under that name.
    """
    module, name = thing.__module__, thing.__qualname__
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        place = ".".join(parts[:length])
        exporter = sys.modules.get(place)
        if getattr(exporter, name, None) is thing:
            return f"{place}:{name}"
    raise UnrecordedError(f"{name} is not a name in the module {module}")


def noted(value: Any) -> Any:
    """Return plain data of this process, whose names it may look up again."""
    for name, _ in _names_in(value):
        note_use(name)
    return value


def _names_in(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield what plain data name as "module:name", and whether it is a class."""
    if names_code(value):
        yield value, False
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _names_in(entry)
    elif isinstance(value, dict):
        if "block" in value:
            yield f"{value.get('module')}:{value['block']}", True
        if "class" in value:
            yield str(value["class"]), True
        for key, entry in value.items():
            if key not in ("block", "class", "module") or not isinstance(entry, str):
                yield from _names_in(entry)


def check_names(value: Any, trust: Collection[str]) -> None:
    """Raise ValueError if plain data from a file name something that may not be looked up.

    Classes of modules that this process has imported may: nothing is run to find them, and only
    blocks and records are made.
    """
    check_modules(trust)
    for name, is_class in _names_in(value):
        if not (is_class and name.partition(":")[0] in sys.modules):
            check_trusted(name, trust, "result names")


def imported(kind: str, name: str, allowed: Callable[[Any], bool], otherwise: str) -> Any:
    """Return what a result names as "module:name", if it is allowed.

    A file could name any callable, so only objects that pass `allowed` are returned.

    Raises
    ------
    ValueError
        If it cannot be imported, or is not allowed.
    """
    # What does not have this form, `check_names` did not see.
    if not names_code(name):
        raise ValueError(f"result has a {kind} {name!r}, which is not of the form module:name")
    module, _, attribute = name.partition(":")
    about = f"result has a {kind} {attribute} of the module {module}"
    try:
        imported_object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{about}, which cannot be imported ({error})") from error
    if not allowed(imported_object):
        raise ValueError(f"{about}: {otherwise}")
    return imported_object
