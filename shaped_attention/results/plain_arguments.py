"""Arguments of a call as plain data that JSON can hold, and back.

Numbers, text, None and lists stand for themselves. Anything else is an object, identified by a key:

    block            the name of a block of this package, with its fields
    custom           the name of a block of the user's, with its fields
    pattern          layers of blocks; `schedule`: its knots
    class            the name of a dataclass that is `storable`, with its fields
    dict             a dictionary with text as keys
    array, tensor    the type of the entries, and `values` or the name of a `variable`
    unrecorded       why the argument, or a field of it, is not recorded

A record is data and never code. A name stands for a class of this package, or for one that the
caller gives; nothing is imported, and an argument that is a function, or names one, is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import shaped_attention.blocks
from shaped_attention.blocks.base import Block, Pattern, specification_of
from shaped_attention.blocks.parameters import Schedule
from shaped_attention.blocks.reasons import check_storable
from shaped_attention.checks import names_code
from shaped_attention.libraries import Tensor, torch

ADDED = "arguments."
"""Prefix of the names of variables that hold arguments."""

_INLINE = 1024
"""Number of entries of the largest listed array; a larger one is a variable of the result."""

_LARGEST = 2**24
"""Number of entries of the largest array that is recorded."""

_storable: dict[str, type] = {}

Blocks = Sequence[type[Block]]

T = TypeVar("T")


def storable(kind: type[T]) -> type[T]:
    """Allow records to hold instances of a dataclass, by their fields."""
    _storable[kind.__name__] = kind
    return kind


class UnrecordedError(ValueError):
    """An argument that plain data cannot express; the message gives the reason."""


class UnknownBlockError(UnrecordedError):
    """A block of the user's, whose class the caller has to give."""


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
        return value.specification()
    if isinstance(value, Pattern):
        return specification_of(value.layers)
    if isinstance(value, Schedule):
        return {"schedule": [list(knot) for knot in value.knots]}
    if isinstance(value, np.ndarray | Tensor):
        return _array(value, path, result, added)
    if type(value) in _storable.values():
        stored = [entry.name for entry in fields(value) if entry.init]
        parts = {x: encoded(getattr(value, x), f"{path}.{x}", result, added) for x in stored}
        return {"class": type(value).__name__, **parts}
    if inspect.isfunction(value):
        raise UnrecordedError(f"{value.__qualname__} is a function, which is code")
    raise UnrecordedError(f"a {type(value).__name__} is not plain data")


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


def decoded(value: Any, result: xr.Dataset, blocks: Blocks = ()) -> Any:
    """Return the argument that plain data express, with arrays from the variables of a result.

    `blocks` are classes of the user's. Raise UnrecordedError if a part of the argument is not
    recorded, and ValueError if the data name a class that there is not.
    """
    if names_code(value):
        raise UnrecordedError(f"it names {value}, which is code")
    if isinstance(value, list):
        return [decoded(x, result, blocks) for x in value]
    if not isinstance(value, dict):
        return value
    if "unrecorded" in value:
        raise UnrecordedError(value["unrecorded"])
    if "dict" in value:
        return {key: decoded(x, result, blocks) for key, x in value["dict"].items()}
    if "pattern" in value:
        return Pattern([decoded(layer, result, blocks) for layer in value["pattern"]])
    if "schedule" in value:
        return Schedule(value["schedule"])
    if "array" in value or "tensor" in value:
        dtype = value.get("array", value.get("tensor"))
        entries = result.variables[value["variable"]] if "variable" in value else value["values"]
        array = np.array(entries, dtype=dtype)
        # A variable of the result, which may have been cut in the meantime.
        if list(array.shape) != value.get("shape", list(array.shape)):
            raise UnrecordedError(f"it had the shape {tuple(value['shape'])}, not {array.shape}")
        return torch.from_numpy(array) if "tensor" in value else array
    named = next(key for key in ("block", "custom", "class") if key in value)
    kind = _kind_of(named, str(value[named]), blocks)
    arguments = {name: x for name, x in value.items() if name != named}
    for name, x in arguments.items():
        # A position bias "alibi:..." names no code.
        if not (name == "position_bias" and isinstance(x, str)):
            arguments[name] = decoded(x, result, blocks)
    return kind(**arguments)


def _kind_of(named: str, name: str, blocks: Blocks) -> type:
    """Return the class that has a name in a record."""
    if named == "custom":
        given = {kind.__name__: kind for kind in blocks}
        if name not in given:
            raise UnknownBlockError(f"its block {name} is not one of this package")
        return given[name]
    if named == "class" and name in _storable:
        return _storable[name]
    own = shaped_attention.blocks
    kind = getattr(own, name) if named == "block" and name in own.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, Block)):
        raise ValueError(f"result has the {named} {name}, which this package does not have")
    return kind
