"""Save and load results, and recover the layer that made them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from shaped_attention.blocks.base import Block, blocks_of
from shaped_attention.blocks.pattern import Pattern
from shaped_attention.checks import with_types
from shaped_attention.io.declared_sizes import MAX_BYTES
from shaped_attention.io.storage import written
from shaped_attention.results.checksums import ATTRIBUTE, checksums, damaged
from shaped_attention.results.opening import opened, reading
from shaped_attention.results.plain_arguments import check_names, decoded
from shaped_attention.results.provenance import specification


def layer_of(result: xr.Dataset, *, trust: Sequence[str] = ()) -> list[Block] | Pattern:
    """Return the layer stored in a result, as a list of blocks or as a `Pattern`.

    Parameters
    ----------
    result
        Result of a sampler, which may come from a file.
    trust
        Modules from which classes and functions that the result names may be imported, besides this
        package; see the page *Security*.

    Raises
    ------
    ValueError
        If `result` is not a result of this package, or the class of a block cannot be imported or
        is in a module that `trust` lacks.
    """
    stored = specification(result)
    if "layer" not in stored:
        made_by = stored.get("sampler", result.attrs.get("function"))
        raise ValueError(f"result comes from {made_by!r}, which has no layer of blocks")
    check_names(stored["layer"], trust)
    layer = decoded(stored["layer"], result)
    return layer if isinstance(layer, Pattern) else list(blocks_of(layer))


@with_types
def save(result: xr.Dataset, path: str | Path) -> Path:
    """Write a Dataset to a netCDF file (``.nc``) or a Zarr store (``.zarr``).

    A draft next to `path` is moved into place at the end, so a failure leaves no partial file. An
    existing file is replaced. The file keeps checksums of all variables and of the attributes,
    which `load` verifies.

    Raises
    ------
    ValueError
        If the suffix is neither .nc nor .zarr, the Dataset cannot be written there, or V, a
        stopping time or a state is NaN.
    """
    target = Path(path)
    _check_numbers(result, "result")
    if target.suffix not in (".nc", ".zarr"):
        raise ValueError(f"path={str(path)!r}: a name that ends in .nc or .zarr is needed")
    with written(target) as draft:
        summed = result.assign_attrs({ATTRIBUTE: json.dumps(checksums(result), sort_keys=True)})
        if target.suffix == ".nc":
            summed.to_netcdf(draft, engine="h5netcdf")
        else:
            # Format 3 does not yet specify how strings such as the observables' names are stored.
            summed.to_zarr(draft, mode="w", zarr_format=2, consolidated=True)
    return target


@with_types
def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> xr.Dataset:
    """Read a Dataset written by `save` into memory.

    Parameters
    ----------
    path
        A netCDF file (``.nc``) or a Zarr store (``.zarr``).
    max_bytes
        Most bytes that the variables may have in memory, checked before they are read.

    Raises
    ------
    FileNotFoundError
        If there is no such file or store.
    ValueError
        If it is not a readable netCDF file or Zarr store, is larger than `max_bytes`, a part of the
        result is missing, or it differs from its checksums. Files without checksums, of other
        programs, are not verified.
    """
    place = f"path={str(path)!r}"
    with opened(Path(path), max_bytes) as lazy, reading(place):
        dataset = lazy.load()
    stored = dataset.attrs.pop(ATTRIBUTE, None)
    if stored is not None:
        try:
            wrong = damaged(dataset, json.loads(stored))
        except (TypeError, ValueError):
            wrong = [ATTRIBUTE]
        if wrong:
            raise ValueError(f"{place}: damaged since it was written ({', '.join(wrong)})")
    # A missing file of a Zarr store reads as NaN.
    _check_numbers(dataset, place)
    return dataset


_NUMBERS = ("V", "stopping_time", "state")
"""Variables of a result that are never NaN."""


def _check_numbers(data: xr.Dataset, place: str) -> None:
    """Raise ValueError if a result has missing entries; tables and sweeps may lack cells."""
    if "sweep" in data.attrs:
        return
    for name, variable in data.variables.items():
        never = "sampler" in data.attrs or name in _NUMBERS
        if never and variable.dtype.kind == "f" and np.isnan(variable.to_numpy()).any():
            raise ValueError(f"{place}: {name} has missing entries")
