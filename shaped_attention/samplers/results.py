"""Results: an xarray Dataset that carries its specification, saved, loaded and run again."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.parameters import Schedule
from shaped_attention.blocks.pattern import Pattern, specification_of
from shaped_attention.io.storage import reason, written
from shaped_attention.samplers.request import Request
from shaped_attention.version import __version__

FORMAT = 2
"""Number of the layout of `attrs`; raised when an old result could be misread."""

READABLE = (1, 2)
"""Formats that this version reads. Those below `FORMAT` have other random numbers."""


def make_result(
    sampler: str,
    request: Request,
    v: NDArray[np.float64],
    stopping_time: NDArray[np.float64],
    parameters: dict[str, Any],
    names: Sequence[str] = (),
) -> xr.Dataset:
    """Put covariances and stopping times into a Dataset with its specification in `attrs`.

    With `names` `v` holds numbers (time, sample, name) that were kept in place of V.

    Raises
    ------
    FloatingPointError
        If a covariance is not finite: a result never contains NaN.
    """
    if not np.isfinite(v).all():
        raise FloatingPointError(
            f"the {sampler} produced covariances that are not finite; a smaller radius or step, "
            "or less extreme parameters of the blocks, keep them from overflowing"
        )
    specification = {
        "sampler": sampler,
        "layer": specification_of(request.pattern),
        "v0": request.v0.tolist(),
        **parameters,
        "samples": request.samples,
        "seed": request.seed,
        "times": [float(t) for t in request.times],
        "radius": request.radius,
        "device": request.place,
        "dtype": request.precision,
        "keep": request.keep,
    }
    coords: dict[str, Any] = {
        "time": ("time", request.times, {"long_name": "time t (layer l / width n)"})
    }
    kept: dict[str, Any] = {
        "V": (("time", "sample", "row", "col"), v, {"long_name": "token covariance"})
    }
    if names:
        kept = {"kept": (("time", "sample", "observable"), v)}
        coords["observable"] = list(names)
    return xr.Dataset(
        {
            **kept,
            "stopping_time": (
                ("sample",),
                stopping_time,
                {"long_name": "first time with |V| >= radius; infinite if there is none"},
            ),
        },
        coords=coords,
        attrs={
            "format": FORMAT,
            "sampler": sampler,
            # netCDF has no larger integers
            "seed": request.seed if request.seed < 2**63 else str(request.seed),
            "radius": request.radius,
            "horizon": request.steps * request.dt,
            "steps": request.steps,
            "specification": json.dumps(specification, default=plain),
            "versions": json.dumps(versions()),
        },
    )


def versions() -> dict[str, str]:
    """Versions of what makes the numbers of a result."""
    return {
        "shaped_attention": __version__,
        **{name: version(name) for name in ("torch", "numpy", "scipy", "numba", "torchsde")},
        "python": platform.python_version(),
    }


def plain(value: object) -> Any:
    """A NumPy number as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not plain data")


def specification(result: xr.Dataset) -> dict[str, Any]:
    """The full specification stored in a result, as plain data.

    Raises
    ------
    ValueError
        If `result` is not a result of this package.
    """
    if not isinstance(result, xr.Dataset) or "specification" not in result.attrs:
        raise ValueError("result: a Dataset made by a sampler of shaped_attention is needed")
    if result.attrs.get("format") not in READABLE:
        raise ValueError(
            f"result has format {result.attrs.get('format')}; this version reads "
            f"{' and '.join(map(str, READABLE))}"
        )
    return json.loads(result.attrs["specification"])


def layer_of(result: xr.Dataset) -> list[Block] | Pattern:
    """The layer stored in a result, as blocks, or as a pattern of layers.

    Raises
    ------
    ValueError
        If `result` is not a result of this package, or the class of a block is not where it was.
    """
    stored = specification(result)
    if "layer" not in stored:
        raise ValueError(f"result comes from {stored['sampler']!r}, which has no layer of blocks")
    layer = stored["layer"]
    if isinstance(layer, dict):
        return Pattern([[_block(entry) for entry in blocks] for blocks in layer["pattern"]])
    return [_block(entry) for entry in layer]


def _block(entry: dict[str, Any]) -> Block:
    """A block from its specification; blocks among its fields likewise."""
    values = dict(entry)
    module, name = values.pop("module"), values.pop("block")
    for field, value in values.items():
        values[field] = _field(value)
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"result has a block {name} of the module {module}, which cannot be imported ({error})"
        ) from error
    # A file could name any callable.
    if not (isinstance(kind, type) and issubclass(kind, Block)):
        raise ValueError(f"result has a block {name} of the module {module}: it is no Block")
    return kind(**values)


def _field(value: Any) -> Any:
    if isinstance(value, dict) and "block" in value:
        return _block(value)
    if isinstance(value, dict) and "schedule" in value:
        return Schedule(value["schedule"])
    return [_field(x) for x in value] if isinstance(value, list) else value


def save(result: xr.Dataset, path: str | Path) -> Path:
    """Write a Dataset to a netCDF file (``.nc``) or a Zarr store (``.zarr``).

    It is written next to its place and moved there at the end, so no half-written file is left;
    an existing one is replaced.

    Raises
    ------
    ValueError
        If the suffix is another one, or the place or the Dataset cannot be written.
    """
    if not isinstance(result, xr.Dataset):
        raise ValueError(f"result: a Dataset is needed, not {type(result).__name__}")
    target = Path(path)
    if target.suffix not in (".nc", ".zarr"):
        raise ValueError(f"path={str(path)!r}: a name that ends in .nc or .zarr is needed")
    with written(target) as draft:
        if target.suffix == ".nc":
            result.to_netcdf(draft, engine="h5netcdf")
        else:
            # Format 3 has no settled form for the names of observables.
            result.to_zarr(draft, mode="w", zarr_format=2, consolidated=False)
    return target


def load(path: str | Path) -> xr.Dataset:
    """Read a Dataset written by `save`, whole, into memory.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ValueError
        If it is not a readable netCDF file or Zarr store, or a result of which a part is missing.
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
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"path={str(path)!r}: not a netCDF file or Zarr store ({reason(error)})"
        ) from error
    # A Zarr store reads as NaN where one of its files is gone.
    if "specification" in dataset.attrs:
        for name, variable in dataset.variables.items():
            if variable.dtype.kind == "f" and np.isnan(variable.to_numpy()).any():
                raise ValueError(f"path={str(path)!r}: {name} has missing entries")
    return dataset
