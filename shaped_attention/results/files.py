"""Save and load results, with checksums so that damage is noticed, and recover their layers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.blocks.base import Block, Pattern, blocks_of
from shaped_attention.checks import argument_error, with_types
from shaped_attention.io.storage import reason, written
from shaped_attention.libraries import extras
from shaped_attention.results.plain_arguments import UnknownBlockError
from shaped_attention.results.provenance import argument_of, specification

ATTRIBUTE = "checksums"
"""Attribute of a file with the checksums of its variables, and of the other attributes, in JSON."""


def layer_of(result: xr.Dataset, *, blocks: Sequence[type[Block]] = ()) -> list[Block] | Pattern:
    """Return the layer stored in a result, as a list of blocks or as a `Pattern`.

    Parameters
    ----------
    result
        Result of a sampler, which may come from a file.
    blocks
        Classes of blocks of your own, of which a result holds the names and fields.

    Raises
    ------
    ValueError
        If `result` is not a result of this package, or has a block that is neither of this package
        nor in `blocks`.
    """
    stored = specification(result)
    if "layer" not in stored:
        made_by = stored.get("sampler", result.attrs.get("function"))
        raise ValueError(f"result comes from {made_by!r}, which has no layer of blocks")
    listed = isinstance(blocks, list | tuple)
    if not listed or not all(isinstance(x, type) and issubclass(x, Block) for x in blocks):
        raise argument_error("blocks", "a list of classes of blocks", blocks)
    try:
        layer = argument_of(result, "layer", blocks)
    except UnknownBlockError as error:
        raise ValueError(f"{error}; pass the classes of your blocks as blocks=[...]") from None
    return layer if isinstance(layer, Pattern) else list(blocks_of(layer))


@with_types
def save(result: xr.Dataset, path: str | Path) -> Path:
    """Write a Dataset to a netCDF file (``.nc``).

    The file is written next to `path` and moved into place at the end, so that a failure leaves no
    partial file. An existing file is replaced. The file stores checksums of all variables and of
    the attributes, which `load` verifies.

    Raises
    ------
    ValueError
        If the suffix is not .nc, the Dataset cannot be written there, or a V or a stopping time is
        NaN.
    """
    target = Path(path)
    _check_numbers(result, "result")
    if target.suffix != ".nc":
        raise argument_error("path", "a name that ends in .nc", str(path))
    _import_library()
    with written(target) as draft:
        summed = result.assign_attrs({ATTRIBUTE: json.dumps(checksums(result), sort_keys=True)})
        summed.to_netcdf(draft, engine="h5netcdf")
    return target


@with_types
def load(path: str | Path) -> xr.Dataset:
    """Read a Dataset written by `save` into memory.

    Parameters
    ----------
    path
        A netCDF file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not a readable netCDF file, or differs from its checksums. Files from other
        programs, which have no checksums, are not verified.
    """
    place = f"path={str(path)!r}"
    with opened(Path(path)) as lazy, reading(place):
        dataset = lazy.load()
    stored = dataset.attrs.pop(ATTRIBUTE, None)
    if stored is not None:
        try:
            wrong = damaged(dataset, json.loads(stored))
        except (TypeError, ValueError):
            wrong = [ATTRIBUTE]
        if wrong:
            raise ValueError(f"{place}: damaged since it was written ({', '.join(wrong)})")
    _check_numbers(dataset, place)
    return dataset


_NUMBERS = ("V", "stopping_time")
"""Variables of a result that are never NaN."""


def _check_numbers(data: xr.Dataset, place: str) -> None:
    """Raise ValueError if a result has missing entries; tables and sweeps may lack cells."""
    if "sweep" in data.attrs:
        return
    for name, variable in data.variables.items():
        never = "sampler" in data.attrs or name in _NUMBERS
        if never and variable.dtype.kind == "f" and np.isnan(variable.to_numpy()).any():
            raise ValueError(f"{place}: {name} has missing entries")


@contextmanager
def opened(path: Path) -> Iterator[xr.Dataset]:
    """Open a netCDF file, of which nothing but coordinates is read yet."""
    place = f"path={str(path)!r}"
    if not path.exists():
        raise FileNotFoundError(f"{place}: there is no such file")
    _import_library()
    with reading(place):
        if not path.is_file():
            raise ValueError("not a plain file")  # a pipe would wait for ever
        dataset = xr.open_dataset(path, engine="h5netcdf")
    with dataset:
        yield dataset


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Report whatever the libraries raise for files of other programs as a ValueError."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{place}: not a netCDF file ({reason(error)})") from error


@extras()
def _import_library() -> None:
    """Import the libraries of netCDF, or raise the error that names their extra.

    It takes a tenth of a second or more, which results that stay in memory do not need.
    """
    import h5netcdf  # noqa: F401
    import h5py  # noqa: F401


def checksums(data: xr.Dataset) -> dict[str, str]:
    """Return a checksum of each variable (dimensions, sizes and values), and of all attributes.

    They depend on values, not on how a file stores them: text of any width is text, and whole
    numbers are whole numbers.
    """
    sums = {f"variable {name}": _of_variable(variable) for name, variable in data.variables.items()}
    attributes = {
        str(name): _plain(value) for name, value in data.attrs.items() if name != ATTRIBUTE
    }
    return sums | {"attributes": _digest(json.dumps(attributes, sort_keys=True).encode())}


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
