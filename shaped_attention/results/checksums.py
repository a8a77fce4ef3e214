"""Checksums of Datasets, which a file keeps so that damage is noticed when it is read."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import xarray as xr

ATTRIBUTE = "checksums"
"""Attribute of a file with the checksums of its variables, and of the other attributes, in JSON."""

_ATTRIBUTES = "attributes"


def checksums(data: xr.Dataset) -> dict[str, str]:
    """Return a checksum of each variable (dimensions, sizes and values), and of all attributes.

    They depend on values, not on how a file stores them: text of any width is text, and whole
    numbers are whole numbers.
    """
    sums = {f"variable {name}": _of_variable(variable) for name, variable in data.variables.items()}
    attributes = {
        str(name): _plain(value) for name, value in data.attrs.items() if name != ATTRIBUTE
    }
    return sums | {_ATTRIBUTES: _digest(json.dumps(attributes, sort_keys=True).encode())}


def damaged(data: xr.Dataset, stored: dict[str, str]) -> list[str]:
    """Return what of a Dataset is missing, new, or differs from its checksums, in words."""
    now = checksums(data)
    return sorted(name for name in {*now, *stored} if now.get(name) != stored.get(name))


def _of_variable(variable: xr.Variable) -> str:
    values = variable.to_numpy()
    about = json.dumps([list(map(str, variable.dims)), values.shape]).encode()
    if values.dtype.kind in "OUST":
        content = json.dumps(values.astype(str).tolist()).encode()
    elif values.dtype.kind in "biu":
        content = np.ascontiguousarray(values, dtype="<i8").tobytes()
    else:
        content = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    return _digest(about + content)


def _plain(value: Any) -> Any:
    """Return an attribute as JSON holds it; lists of one entry are that entry, as in netCDF."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return _plain(value[0]) if len(value) == 1 else [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
