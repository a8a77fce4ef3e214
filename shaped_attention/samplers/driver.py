"""The loop that all samplers share: advance a chunk of paths, store the requested values, tick.

Compiled calls return at save times and at least every 50 ms, so a run can be interrupted and shows
its progress. The stored values are functions of V, computed during the run.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor
from shaped_attention.numerics.observables import observables
from shaped_attention.samplers.chunks import run_chunks
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.run_result import make_result
from shaped_attention.samplers.starts import STATE, checksum
from shaped_attention.samplers.task import Task

Array = NDArray[np.float64]

_SLICE = 0.05
"""Seconds after which a compiled call returns."""


@runtime_checkable
class Process(Protocol):
    """A chunk of paths, at a step."""

    def advance(self, begin: int, end: int) -> None:
        """Take the steps begin, ..., end - 1."""

    def covariances(self) -> Array:
        """Return V (count, m, m)."""

    def factors(self) -> Array:
        """Return the state (count, groups, m, c), V = (1/g) sum of F_g F_g^T."""

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,); infinite if it has not stopped."""


@runtime_checkable
class LimitProcess(Process, Protocol):
    """A chunk of paths that exposes drift and noise of a step, for integrators of the limit.

    The flat state and flat increments are (rows, entries); a row is a path or a tile of paths.
    """

    @property
    def task(self) -> Task:
        """Programs of the step of these paths."""

    def stop(self, stopping_times: Array) -> None:
        """Mark the paths that have stopped already; they do not move."""

    def flat_state(self) -> Tensor:
        """Return the state, flat."""

    def set_state(self, y: Tensor) -> None:
        """Set the state from a flat one."""

    def brownian_shape(self) -> tuple[int, int]:
        """Return the shape of the increments of a step."""

    def increments(self, step: int) -> Tensor:
        """Return the Brownian increments of a step, valid until the next call."""

    def drift_and_noise(self, y: Tensor, increments: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise, zero for stopped paths, valid until the next call."""

    def finish(self, time: float) -> None:
        """Stop the paths that are outside the radius at this time."""


class Paths(Protocol):
    """A chunk of paths at the end of its run."""

    def factors(self) -> Array:
        """Return the state (count, groups, m, c)."""

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,)."""


P = TypeVar("P", bound=Paths)

Travel = Callable[[Request, P, Callable[[Array], Array], Array, Callable[[int], None]], None]
"""``travel(request, paths, keep, kept, tick)`` takes paths to the end, and stores ``keep(V)``."""

REPORTED = {
    "steps_taken": "number of steps of the clock",
    "largest_speed": "largest speed of the clock: relative rate of the superlinear terms",
}
"""Descriptions of the further numbers of each path."""


def run(
    request: Request,
    process: Callable[[int, int], P],
    size: int,
    progress: bool | None,
    sampler: str,
    parameters: dict[str, Any],
    travel: Travel[P] | None = None,
    report: Callable[[P], dict[str, NDArray[Any]]] | None = None,
) -> xr.Dataset:
    """Run ``process(first, count)`` for all samples, `size` at a time, and return their result.

    `travel` takes paths to the end, by default in steps as `march` does. `report` returns further
    numbers of each path (count,) by name.
    """
    keep, names = keeper(request.keep, request.tokens)
    shape = (len(names),) if names else (request.tokens, request.tokens)

    def simulate(
        first: int, count: int, kept: Array, stopping: Array, tick: Callable[[int], None]
    ) -> None:
        paths = process(first, count)
        if travel:
            travel(request, paths, keep, kept, tick)
        else:
            assert isinstance(paths, Process)
            march(request, paths, keep, kept, tick)
        stopping[:] = paths.stopping_times()
        if request.keep_state:
            states[first] = paths.factors()
        if report:
            reports[first] = report(paths)

    states: dict[int, Array] = {}
    reports: dict[int, dict[str, NDArray[Any]]] = {}
    kept, stopping = run_chunks(request, size, simulate, progress, sampler, shape)
    result = make_result(sampler, request, kept, stopping, parameters, names)
    for name in reports.get(0, {}):
        values = np.concatenate([reports[first][name] for first in sorted(reports)])
        result[name] = ("sample", values, {"long_name": REPORTED[name]})
    if not request.keep_state:
        return result
    state = np.concatenate([states[first] for first in sorted(states)])
    result = result.assign(state=(STATE, state))
    return result.assign_attrs(state_checksum=checksum(result))


class Pace:
    """Number of steps of a chunk that fill a time slice, from its last call."""

    def __init__(self) -> None:
        self.steps = 1

    def measured(self, steps: int, seconds: float) -> None:
        """Record the duration of a call."""
        self.steps = max(1, int(_SLICE * steps / max(seconds, 1e-9)))


def march(
    request: Request,
    paths: Process,
    keep: Callable[[Array], Array],
    kept: Array,
    tick: Callable[[int], None],
    advance: Callable[[int, int], None] | None = None,
) -> None:
    """Take all steps, and store in `kept` (time, count, ...) the values at the save times."""
    advance, pace = advance or paths.advance, Pace()
    step = request.begin
    for i, target in enumerate([*request.saved, request.steps]):
        while step < target:
            end = min(step + pace.steps, target)
            began = time.perf_counter()
            advance(step, end)
            pace.measured(end - step, time.perf_counter() - began)
            tick(end - step)
            step = end
        if i < len(request.saved):
            kept[i] = keep(paths.covariances())


_KEPT = "'V', 'observables' or 'module:function'"


def function_named(name: str, argument: str = "keep", needed: str = _KEPT) -> Callable[..., Array]:
    """Return a function, such as one of V (samples, m, m), named as "module:function".

    Raises
    ------
    ValueError
        If the module or the function cannot be found; it names the argument.
    """
    if not isinstance(name, str):
        raise ValueError(f"{argument}={name!r}: {needed} is needed")
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{argument}={name!r}: {needed} is needed ({error})") from None
    if not callable(function):
        raise ValueError(f"{argument}={name!r}: {attribute} of {module} is not a function")
    return function


def keeper(keep: str, tokens: int) -> tuple[Callable[[Array], Array], list[str]]:
    """Return the function of V (samples, m, m) that is stored, and the names of its numbers.

    A function with the attribute `names` returns as many numbers for each sample.
    """
    if keep == "V":
        return lambda v: v, []
    if keep == "observables":
        names = list(observables(np.eye(tokens)[None]))

        def all_observables(v: Array) -> Array:
            values = observables(v)
            return np.stack([values[name] for name in names], axis=-1)

        return all_observables, names
    function = function_named(keep)
    several = getattr(function, "names", None)
    numbers = "one number" if several is None else f"the numbers {', '.join(several)}"
    shape = () if several is None else (len(several),)

    def checked(v: Array) -> Array:
        values = np.asarray(function(v), dtype=np.float64)
        if values.shape != (len(v), *shape):
            raise ValueError(
                f"keep={keep!r}: for V of shape {v.shape} it returned shape {values.shape}; "
                f"{(len(v), *shape)}, {numbers} for each sample, is needed"
            )
        return values if shape else values[:, None]

    return checked, [keep] if several is None else list(several)
