"""The result of a run: what is kept of its paths at stored times, as a Dataset.

Kept are V, all observables, or the numbers of a function by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import specification_of
from shaped_attention.checks import function_named
from shaped_attention.results.provenance import attribute, plain
from shaped_attention.samplers.paths import Paths, check_stopping_times
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]

_KEPT = "'V', 'observables' or 'module:function'"

_OF_THE_CLOCK = {
    "steps_taken": "number of steps of the clock",
    "largest_speed": "largest speed of the clock: relative rate of the superlinear terms",
}


class Measure(Protocol):
    """A function of paths at a stored grid point, such as `Kept`."""

    def __call__(self, paths: Paths, point: int) -> Array:
        """Return the values (count, ...)."""


@dataclass(frozen=True)
class Kept:
    """The measure of the keyword `keep`: a function of V, and the names of its numbers.

    Without names it is V itself.
    """

    function: Callable[[Array], Array]
    names: tuple[str, ...] = ()

    def __call__(self, paths: Paths, point: int) -> Array:
        """Return the values (count, m, m) or (count, names)."""
        return self.function(paths.covariances(point))

    def numbers(self, tokens: int) -> int:
        """Return how many numbers are kept of a sample at each stored time."""
        return len(self.names) or tokens**2


def kept_of(keep: str, tokens: int) -> Kept:
    """Return what "V", "observables" or "module:function" keeps.

    A function with the attribute `names` returns as many numbers for each sample.
    """
    if keep == "V":
        return Kept(np.asarray)
    if keep == "observables":
        from shaped_attention.numerics.observables import observables

        names = tuple(observables(np.eye(tokens)[None]))

        def all_observables(v: Array) -> Array:
            values = observables(v)
            return np.stack([values[name] for name in names], axis=-1)

        return Kept(all_observables, names)
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

    return Kept(checked, (keep,) if several is None else tuple(several))


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
    }
    coords: dict[str, Any] = {
        "time": ("time", spec.times, {"long_name": "time t (layer l / width n)"})
    }
    kept: dict[str, Any] = {
        "V": (
            ("time", "sample", "row", "col"),
            v,
            {"long_name": "token covariance", "sampler": sampler, "seed": attribute(spec.seed)},
        )
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
    return result
