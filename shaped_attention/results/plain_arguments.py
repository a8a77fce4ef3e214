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
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block, Pattern, specification_of
from shaped_attention.blocks.parameters import Schedule
from shaped_attention.blocks.reasons import check_storable
from shaped_attention.libraries import Tensor, torch
from shaped_attention.trust import UnrecordedError, imported, name_of, names_code, note_use, noted

ADDED = "arguments."
"""Prefix of the names of variables that hold arguments."""

_INLINE = 1024
"""Number of entries of the largest listed array; a larger one is a variable of the result."""

_LARGEST = 2**24
"""Number of entries of the largest array that is recorded."""

_storable: set[type] = set()

T = TypeVar("T")


def storable(kind: type[T]) -> type[T]:
    """Allow records to hold instances of a dataclass, by their fields."""
    _storable.add(kind)
    return kind


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


def _is_subclass(value: Any, *kinds: type) -> bool:
    return isinstance(value, type) and issubclass(value, kinds)


def _is_safe_function(value: Any) -> bool:
    """Return whether it is a function outside Python's library, which could write and delete."""
    if not inspect.isfunction(value):
        return False
    return value.__module__.partition(".")[0] not in sys.stdlib_module_names
