"""Save and load results, and recover the layer that made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from shaped_attention.argument_types import with_types
from shaped_attention.blocks.base import Block, blocks_of
from shaped_attention.blocks.pattern import Pattern
from shaped_attention.io.storage import reason, written
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
    existing file is replaced.

    Raises
    ------
    ValueError
        If the suffix is neither .nc nor .zarr, or the Dataset cannot be written there.
    """
    target = Path(path)
    if target.suffix not in (".nc", ".zarr"):
        raise ValueError(f"path={str(path)!r}: a name that ends in .nc or .zarr is needed")
    with written(target) as draft:
        if target.suffix == ".nc":
            result.to_netcdf(draft, engine="h5netcdf")
        else:
            # Format 3 does not yet specify how strings such as the observables' names are stored.
            result.to_zarr(draft, mode="w", zarr_format=2, consolidated=True)
    return target


@with_types
def load(path: str | Path) -> xr.Dataset:
    """Read a Dataset written by `save` into memory.

    Raises
    ------
    FileNotFoundError
        If there is no such file or store.
    ValueError
        If it is not a readable netCDF file or Zarr store, or a part of the result is missing.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"path={str(path)!r}: there is no such file or store")
    try:
        if source.suffix == ".zarr":
            dataset = xr.open_zarr(source, consolidated=False).load()
        else:
            with xr.open_dataset(source, engine="h5netcdf") as opened:
                dataset = opened.load()
    except Exception as error:  # the libraries raise anything for files of other programs
        raise ValueError(
            f"path={str(path)!r}: not a netCDF file or Zarr store ({reason(error)})"
        ) from error
    # A missing file of a Zarr store reads as NaN.
    if "sampler" in dataset.attrs:
        for name, variable in dataset.variables.items():
            if variable.dtype.kind == "f" and np.isnan(variable.to_numpy()).any():
                raise ValueError(f"path={str(path)!r}: {name} has missing entries")
    return dataset
