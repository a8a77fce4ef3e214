"""The result of a run: what was stored of its paths, as a Dataset with its specification."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.pattern import specification_of
from shaped_attention.io.records import plain
from shaped_attention.results.provenance import attribute
from shaped_attention.samplers.request import Request


def check_stopping_times(stopping_time: NDArray[np.float64]) -> None:
    """Raise FloatingPointError if a step of a path was not a number, far from an overflow."""
    broken = int(np.isnan(stopping_time).sum())
    if broken:
        raise FloatingPointError(
            f"the drift or noise of the layer is not a number on {broken} of {len(stopping_time)} "
            "paths, far from an overflow: a block's limit divides by zero or takes the root of a "
            "negative number (sa.eager() steps through it)"
        )


def make_result(
    sampler: str,
    request: Request,
    v: NDArray[np.float64],
    stopping_time: NDArray[np.float64],
    parameters: dict[str, Any],
    names: Sequence[str] = (),
) -> xr.Dataset:
    """Return covariances and stopping times as a Dataset with its specification in `attrs`.

    With `names`, `v` holds numbers (time, sample, name) that were stored in place of V.

    Raises
    ------
    FloatingPointError
        If a covariance is not finite: a result never contains NaN.
    """
    check_stopping_times(stopping_time)
    if not np.isfinite(v).all():
        raise FloatingPointError(
            f"the {sampler} produced covariances that are not finite; a smaller radius or step, "
            "or less extreme parameters of the blocks, would keep them from overflowing"
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
        "keep_state": request.keep_state,
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
    if request.start is not request.v0:
        dims = ("sample", "row", "col")[3 - request.v0.ndim :]
        kept["initial_covariance"] = (dims, request.v0, {"long_name": "covariance before layer 1"})
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
            "sampler": sampler,
            "seed": attribute(request.seed),
            "radius": request.radius,
            "horizon": request.steps * request.dt,
            "steps": request.steps,
            "specification": json.dumps(specification, default=plain),
        },
    )
