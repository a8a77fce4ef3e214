"""The result of a run: what is kept of its paths at stored times, as a Dataset.

Kept are V, all observables, or the numbers of a function by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import specification_of
from shaped_attention.checks import function_named
from shaped_attention.results.provenance import attribute, plain
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]

_KEPT = "'V', 'observables' or 'module:function'"

_TIME = "time t (layer l / width n)"
_START = "covariance before layer 1"
_OF_PATHS = {
    "stopping_time": "first time with |V| >= radius; infinite if there is none",
    "steps_taken": "number of steps of the clock",
    "largest_speed": "largest speed of the clock: relative rate of the superlinear terms",
}


Kept = tuple[Callable[[Array], Array], tuple[str, ...]]
"""A function of V (samples, m, m), and the names of its numbers (samples, names); V has none."""


def kept_of(keep: str, tokens: int) -> Kept:
    """Return what "V", "observables" or "module:function" keeps.

    A function with the attribute `names` returns as many numbers for each sample.
    """
    if keep == "V":
        return np.asarray, ()
    if keep == "observables":
        from shaped_attention.numerics.observables import observables

        names = tuple(observables(np.eye(tokens)[None]))

        def all_observables(v: Array) -> Array:
            values = observables(v)
            return np.stack([values[name] for name in names], axis=-1)

        return all_observables, names
    function = function_named(keep, "keep", _KEPT)
    several = getattr(function, "names", None)
    numbers = "one number" if several is None else f"the numbers {', '.join(several)}"
    shape = () if several is None else (len(several),)

    def checked(v: Array) -> Array:
        try:
            values = np.asarray(function(v), dtype=np.float64)
        except Exception as error:  # whatever a function of the user's raises
            raise ValueError(
                f"keep={keep!r} failed for V of shape {v.shape} ({type(error).__name__}: {error})"
            ) from error
        if values.shape != (len(v), *shape):
            raise ValueError(
                f"keep={keep!r} must return shape {(len(v), *shape)}, {numbers} for each sample, "
                f"for V of shape {v.shape}; it returned shape {values.shape}"
            )
        return values if shape else values[:, None]

    return checked, (keep,) if several is None else tuple(several)


def make_result(
    spec: Specification,
    values: Mapping[str, Array],
    parameters: Mapping[str, float | str],
    names: Sequence[str] = (),
) -> xr.Dataset:
    """Return covariances and stopping times as a Dataset with its specification in `attrs`.

    The `values` are those of `run_paths`. With `names`, numbers (time, sample, name) were kept in
    place of V. Raise FloatingPointError if a step of a path was not a number, far from an overflow,
    or a covariance is not finite: a result never contains NaN.
    """
    sampler, v = spec.sampler, values["kept"]
    broken = int(np.isnan(values["stopping_time"]).sum())
    if broken:
        raise FloatingPointError(
            f"the drift or noise of the layer is not a number on {broken} of {spec.samples} "
            "paths, far from an overflow: a block's limit divides by zero or takes the root of a "
            "negative number (sa.eager() steps through it)"
        )
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
        "keep": spec.keep,
    }
    coords = {"time": xr.Variable("time", spec.times, {"long_name": _TIME})}
    if names:
        kept = {"kept": xr.Variable(("time", "sample", "observable"), v)}
        coords["observable"] = xr.Variable("observable", list(names))
    else:
        about = {"long_name": "token covariance", "sampler": sampler, "seed": attribute(spec.seed)}
        kept = {"V": xr.Variable(("time", "sample", "row", "col"), v, about)}
    if spec.start is not spec.v0:
        dims, about = ("sample", "row", "col")[3 - spec.v0.ndim :], {"long_name": _START}
        kept["initial_covariance"] = xr.Variable(dims, spec.v0, about)
    for name, long_name in _OF_PATHS.items():
        if name in values:
            kept[name] = xr.Variable("sample", values[name], {"long_name": long_name})
    return xr.Dataset(
        kept,
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
