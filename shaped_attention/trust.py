"""Which code what lies on a disk may name: that of this package, and of modules the caller trusts.

Records of results and stores of sweeps name classes and functions as "module:name". To import a
module runs it, so a file from elsewhere must not decide which. A name is looked up only if its
module belongs to this package, is trusted by the caller, or if this process used that very name
itself, so that what it just made can be run again without further words.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Collection
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


def layer_function(name: str) -> Callable[..., Any]:
    """Return the function behind a layer 'module:function'; raise ValueError if there is none."""
    needed = "a 'module:function' that can be imported"
    if not names_code(name):
        raise argument_error("layer", needed, name)
    module, _, attribute = name.partition(":")
    # Find modules in the working directory, like `python -m` and unlike installed commands.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs any code
        raise argument_error("layer", f"{needed} ({error})", name) from None
    if not callable(function):
        raise argument_error("layer", "a function", name)
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
