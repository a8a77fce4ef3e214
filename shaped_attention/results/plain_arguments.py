"""Arguments of a call as plain data that JSON can hold, and back.

Numbers, text, None and lists stand for themselves. Anything else is an object, identified by a key:

    block, module    a block, with its fields; `pattern`: layers of blocks; `schedule`: its knots
    class            "module:name" of a dataclass that is `storable`, with its fields
    function         "module:name" of a function
    dict             a dictionary with text as keys
    array, tensor    the type of the entries, and `values` or the name of a `variable`
    unrecorded       why the argument, or a field of it, is not recorded
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block, Pattern, check_storable, specification_of
from shaped_attention.blocks.parameters import Schedule
from shaped_attention.deprecated import OLD_NAMES
from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.trust import check_modules, check_trusted, names_code, note_use

ADDED = "arguments."
"""Prefix of the names of variables that hold arguments."""

_INLINE = 1024
"""Number of entries of the largest listed array; a larger one is a variable of the result."""

_LARGEST = 2**24
"""Number of entries of the largest array that is recorded."""

_storable: set[type] = set()

T = TypeVar("T")


class UnrecordedError(ValueError):
    """An argument that plain data cannot express; the message gives the reason."""


def storable(kind: type[T]) -> type[T]:
    """Allow records to hold instances of a dataclass, by their fields."""
    _storable.add(kind)
    return kind


def name_of(thing: Any) -> str:
    """Return "module:name" of a function or class, in the outermost package that exports it.

    Raise UnrecordedError if it cannot be imported under that name.
    """
    module, name = thing.__module__, thing.__qualname__
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        place = ".".join(parts[:length])
        old = name in OLD_NAMES.get(place, ())
        if not old and getattr(sys.modules.get(place), name, None) is thing:
            return f"{place}:{name}"
    raise UnrecordedError(f"{name} is not a name in the module {module}")


def encoded(value: Any, path: str, result: xr.Dataset, added: dict[str, xr.Variable]) -> Any:
    """Return an argument as plain data, or the reason under the key `unrecorded`.

    `path` is its name; fields of arguments have names with dots. An array that is a variable of the
    result of the call is named, not stored twice; `added` receives other large arrays.
    """
    try:
        return _plain(value, path, result, added)
    except ValueError as error:
        return {"unrecorded": str(error)}


def _plain(value: Any, path: str, result: xr.Dataset, added: dict[str, xr.Variable]) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        if names_code(value):
            note_use(value)
        return value
    # By name: a look at a type must not load torch.
    if type(value).__module__ == "torch" and type(value).__name__ in ("device", "dtype"):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple | range):
        return [encoded(x, f"{path}.{i}", result, added) for i, x in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        inner = {k: encoded(x, f"{path}.{k}", result, added) for k, x in value.items()}
        return {"dict": inner}
    if isinstance(value, Block):
        check_storable(value)
        return noted(value.specification())
    if isinstance(value, Pattern):
        return noted(specification_of(value.layers))
    if isinstance(value, Schedule):
        return {"schedule": [list(knot) for knot in value.knots]}
    if isinstance(value, np.ndarray | Tensor):
        return _array(value, path, result, added)
    if type(value) in _storable:
        stored = [entry.name for entry in fields(value) if entry.init]
        parts = {x: encoded(getattr(value, x), f"{path}.{x}", result, added) for x in stored}
        return noted({"class": name_of(type(value)), **parts})
    if not inspect.isfunction(value):
        raise UnrecordedError(f"a {type(value).__name__} is not plain data")
    if value.__module__ == "__main__":
        raise UnrecordedError(f"{value.__qualname__} is in no module but __main__")
    return noted({"function": name_of(value)})


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


def _array(
    value: NDArray[Any] | Tensor, path: str, result: xr.Dataset, added: dict[str, xr.Variable]
) -> dict[str, Any]:
    tensor = isinstance(value, Tensor)
    if tensor and value.dtype == torch.bfloat16:
        raise UnrecordedError(f"{path} has entries of type {value.dtype}")
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.dtype.kind not in "biuf":
        raise UnrecordedError(f"{path} has entries of type {array.dtype}")
    entry = {"tensor" if tensor else "array": array.dtype.name}
    there = result.variables.get(path)
    if there is not None and there.dtype == array.dtype and np.array_equal(there, array):
        return entry | {"variable": path, "shape": list(array.shape)}
    if array.size <= _INLINE:
        return entry | {"values": array.tolist()}
    if array.size > _LARGEST:
        raise UnrecordedError(f"{path} has more than {_LARGEST} entries")
    name = f"{ADDED}{path}"
    added[name] = xr.Variable([f"{name}.{i}" for i in range(array.ndim)], array.copy())
    return entry | {"variable": name, "shape": list(array.shape)}


def decoded(value: Any, result: xr.Dataset) -> Any:
    """Return the argument that plain data express, with arrays from the variables of a result.

    Raise UnrecordedError if a part of it is not recorded, and ValueError if the data name something
    that cannot be imported or has the wrong type.
    """
    if isinstance(value, list):
        return [decoded(x, result) for x in value]
    if not isinstance(value, dict):
        return value
    if "unrecorded" in value:
        raise UnrecordedError(value["unrecorded"])
    if "dict" in value:
        return {key: decoded(x, result) for key, x in value["dict"].items()}
    if "pattern" in value:
        return Pattern([decoded(blocks, result) for blocks in value["pattern"]])
    if "schedule" in value:
        return Schedule(value["schedule"])
    if "function" in value:
        return imported("function", value["function"], _is_safe_function, "it is not a function")
    if "array" in value or "tensor" in value:
        dtype = value.get("array", value.get("tensor"))
        entries = result.variables[value["variable"]] if "variable" in value else value["values"]
        array = np.array(entries, dtype=dtype)
        # A variable of the result, which may have been cut in the meantime.
        if list(array.shape) != value.get("shape", list(array.shape)):
            raise UnrecordedError(f"it had the shape {tuple(value['shape'])}, not {array.shape}")
        return torch.from_numpy(array) if "tensor" in value else array
    arguments = dict(value)
    if "block" in value:
        name = f"{arguments.pop('module')}:{arguments.pop('block')}"
        kind = imported("block", name, lambda x: _is_subclass(x, Block), "it is not a Block")
    else:
        name = arguments.pop("class")
        kind = imported("class", name, lambda x: _is_subclass(x, *_storable), "it is not storable")
    return kind(**{field: decoded(x, result) for field, x in arguments.items()})


def imported(kind: str, name: str, allowed: Callable[[Any], bool], otherwise: str) -> Any:
    """Return what a result names as "module:name", or raise ValueError if it is not allowed.

    A file could name any callable, so only objects that pass `allowed` are returned.
    """
    # What does not have this form, `check_names` did not see.
    if not names_code(name):
        raise ValueError(f"result has a {kind} {name!r}, which is not of the form module:name")
    module, _, attribute = name.partition(":")
    about = f"result has a {kind} {attribute} of the module {module}"
    try:
        imported_object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{about}, which cannot be imported ({error})") from error
    if not allowed(imported_object):
        raise ValueError(f"{about}: {otherwise}")
    return imported_object


def _is_subclass(value: Any, *kinds: type) -> bool:
    return isinstance(value, type) and issubclass(value, kinds)


def _is_safe_function(value: Any) -> bool:
    """Return whether it is a function outside Python's library, which could write and delete."""
    if not inspect.isfunction(value):
        return False
    return value.__module__.partition(".")[0] not in sys.stdlib_module_names
