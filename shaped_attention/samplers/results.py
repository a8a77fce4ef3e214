"""The result of a run: what was stored of its paths, as a Dataset with its specification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import specification_of
from shaped_attention.io.records import plain
from shaped_attention.results.provenance import attribute
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.starts import STATE, checksum

_OF_THE_CLOCK = {
    "steps_taken": "number of steps of the clock",
    "largest_speed": "largest speed of the clock: relative rate of the superlinear terms",
}


def check_stopping_times(stopping_time: NDArray[np.float64]) -> None:
    """Raise FloatingPointError if a step of a path was not a number, far from an overflow."""
    broken = int(np.isnan(stopping_time).sum())
    if broken:
        raise FloatingPointError(
            f"the drift or noise of the layer is not a number on {broken} of {len(stopping_time)} "
            "paths, far from an overflow: a block's limit divides by zero or takes the root of a "
            "negative number (sa.eager() steps through it)"
        )


@dataclass
class Run:
    """What is kept of the paths of a run.

    Attributes
    ----------
    measured
        Values at the stored times (time, sample, ...), by the name of their measure.
    stopping_time
        Stopping times (sample,); infinite for paths that did not stop.
    steps_taken, largest_speed
        Of each path (sample,) by the clock.
    state
        States at the end (sample, groups, m, c), if they are kept.
    """

    measured: dict[str, NDArray[np.float64]]
    stopping_time: NDArray[np.float64]
    steps_taken: NDArray[np.int64] | None = None
    largest_speed: NDArray[np.float64] | None = None
    state: NDArray[np.float64] | None = None


def make_result(
    sampler: str,
    spec: Specification,
    run: Run,
    parameters: Mapping[str, Any],
    names: Sequence[str] = (),
) -> xr.Dataset:
    """Return covariances and stopping times as a Dataset with its specification in `attrs`.

    With `names`, numbers (time, sample, name) were kept in place of V.

    Raises
    ------
    FloatingPointError
        If a covariance is not finite: a result never contains NaN.
    """
    v, stopping_time = run.measured["kept"], run.stopping_time
    check_stopping_times(stopping_time)
    if not np.isfinite(v).all():
        raise FloatingPointError(
            f"the {sampler} produced covariances that are not finite; a smaller radius or step, "
            "or less extreme parameters of the blocks, would keep them from overflowing"
        )
    specification = {
        "sampler": sampler,
        "layer": specification_of(spec.pattern),
        "v0": spec.v0.tolist(),
        **parameters,
        "samples": spec.samples,
        "seed": spec.seed,
        "times": [float(t) for t in spec.times],
        "radius": spec.radius,
        "device": spec.place,
        "dtype": spec.precision,
        "keep": spec.options.keep,
        "keep_state": spec.options.keep_state,
    }
    coords: dict[str, Any] = {
        "time": ("time", spec.times, {"long_name": "time t (layer l / width n)"})
    }
    kept: dict[str, Any] = {
        "V": (("time", "sample", "row", "col"), v, {"long_name": "token covariance"})
    }
    if names:
        kept = {"kept": (("time", "sample", "observable"), v)}
        coords["observable"] = list(names)
    if spec.start is not spec.v0:
        dims = ("sample", "row", "col")[3 - spec.v0.ndim :]
        kept["initial_covariance"] = (dims, spec.v0, {"long_name": "covariance before layer 1"})
    result = xr.Dataset(
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
            "seed": attribute(spec.seed),
            "radius": spec.radius,
            "horizon": spec.steps * spec.dt,
            "steps": spec.steps,
            "specification": json.dumps(specification, default=plain),
        },
    )
    for name, values in (
        ("steps_taken", run.steps_taken),
        ("largest_speed", run.largest_speed),
    ):
        if values is not None:
            result[name] = ("sample", values, {"long_name": _OF_THE_CLOCK[name]})
    if run.state is None:
        return result
    result = result.assign(state=(STATE, run.state))
    return result.assign_attrs(state_checksum=checksum(result))
