"""The limiting SDE, integrated by the clock or by torchsde.

Where paths can explode, steps shrink with the state: see `shaped_attention.samplers.clock_step`.
torchsde's Euler scheme moves a factor of the covariance; `shaped_attention.samplers.steps` has the
step. Time is counted in steps, which makes torchsde's clock exact (dt = 1), and its Brownian motion
is replaced by increments keyed by (seed, sample, step): see `shaped_attention.numerics.draws`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import torch
import torchsde
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer, check_limit
from shaped_attention.checks import check_choice, check_positive
from shaped_attention.numerics.jit import LANES
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chunks import chunk_size
from shaped_attention.samplers.clock_run import run_clock
from shaped_attention.samplers.clock_step import can_explode, first_order
from shaped_attention.samplers.driver import LimitProcess, march, run
from shaped_attention.samplers.executors import (
    by_library,
    by_torch_on_cpu,
    path_chunk,
    process_of,
)
from shaped_attention.samplers.request import MEMORY_BUDGET, Request, make_request
from shaped_attention.samplers.starts import Resumed
from shaped_attention.samplers.task import task_of

Array = NDArray[np.float64]
Keep = Callable[[Array], Array]

METHODS = ("clock", "torchsde", "direct")
"""Integrators of the limit."""

_PREFERRED_ENTRIES = 2**17
"""Entries of the factors in a chunk: they hide torchsde's cost per step and fit into the cache."""


_SMALLEST_ENTRIES = 2**14
"""Below this size, torchsde's interpreter time outweighs the gain of a second thread (measured)."""


@recorded(sampler="sde")
def integrate_sde(
    layer: Layer,
    v0: ArrayLike | Resumed,
    *,
    horizon: float,
    step: float = 0.01,
    samples: int,
    seed: int = 0,
    times: Sequence[float] | None = None,
    save_every: int | None = None,
    radius: float | None = None,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float64",
    chunk: int | None = None,
    memory: int = MEMORY_BUDGET,
    progress: bool | None = None,
    keep: str = "V",
    keep_state: bool = False,
    method: str | None = None,
) -> xr.Dataset:
    """Sample the limit of the covariances, dV = b(V) dt + Sigma(V)^{1/2} dB.

    Parameters
    ----------
    layer, v0, samples, seed, radius, device, dtype, chunk, memory, progress, keep, keep_state
        As in `shaped_attention.simulate_chain`. Solutions can explode in finite time: a path stops
        where |V| reaches the radius; the clock lowers the radius by the 0.58 standard deviations of
        a step that corrects for crossings between steps. A path that reaches the radius need not
        explode.
    horizon
        Final time T > 0; a network of width n and depth L corresponds to T = L / n.
    step
        Length of a step, positive; the horizon must be a multiple of it. The clock takes shorter
        steps where superlinear terms change V quickly.
    times
        Times to store, multiples of the step in [0, T]; by default the first and the last.
    save_every
        Alternative to `times`: number of steps between stored ones. The last is always stored.
    method
        "clock" for steps that shrink with the state, by a predictor and a corrector; "torchsde" for
        Euler steps of fixed length by torchsde, or "direct" for the same steps without it,
        bit-identical and faster. None, the default, is the clock where paths can explode and
        torchsde elsewhere.

    Returns
    -------
    xarray.Dataset as from `shaped_attention.simulate_chain`; the clock adds `steps_taken` and
    `largest_speed` (sample), the largest relative rate at which superlinear terms changed V.

    Raises
    ------
    ValueError
        If an argument is outside its range; the message names it.

    Warns
    -----
    UserWarning
        If one fixed step covers the whole horizon, or paths reach the radius with a fixed step.
    """
    if method is not None:
        check_choice("method", method, METHODS)
    steps = count_steps(horizon, step)
    horizon, step = float(horizon), float(step)
    check_limit(layer)
    if steps == 1 and method in ("torchsde", "direct"):
        warnings.warn(
            f"step={step!r}: one Euler step covers the whole horizon, so the step determines the "
            "law at its end; smaller steps approach the limit",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    request = make_request(
        layer, v0, width=None, steps=steps, dt=horizon / steps, samples=samples, seed=seed,
        times=times, save_every=save_every, radius=radius, device=device, dtype=dtype,
        chunk=chunk, memory=memory, keep=keep, keep_state=keep_state,
    )  # fmt: skip
    if method == "clock" and request.blocks[0].limit.normalised:
        raise ValueError(
            "method='clock': paths of normalised blocks cannot explode; 'torchsde' or 'direct' is "
            "needed"
        )
    task = task_of(request, "sde", None)
    if method is None:
        method = "clock" if can_explode(request.pattern, request.tokens) else "torchsde"
    parameters = {"horizon": horizon, "step": step, "method": method}
    if method == "clock":
        for block in first_order(request.pattern, request.tokens):
            warnings.warn(
                f"method='clock': the limit of {type(block).__name__} has no noise_drift, which is "
                "derived for up to 64 increments a step, so that steps near an explosion have "
                "first order; noise_drift and noise_along are needed",
                UserWarning,
                stacklevel=3,  # the caller of the recorded function
            )
        return run_clock(request, task, progress, parameters)
    size = _torchsde_chunk(request) if method == "torchsde" else path_chunk(request)
    start = partial(process_of, request, task)
    if method == "direct":
        result = run(request, start, size, progress, "sde", parameters)
    else:
        accelerators = [request.device] if request.device.type == "cuda" else []
        with _generator_put_back(accelerators):
            result = run(request, start, size, progress, "sde", parameters, _march)
    stopped = int(np.isfinite(result["stopping_time"]).sum())
    if stopped and not request.blocks[0].limit.normalised:
        advice = (
            "which is wrong near an explosion; method='clock' is needed"
            if can_explode(request.pattern, request.tokens)
            else "so that when they did is known to a step only; these paths cannot explode, and "
            "a larger radius does not stop them"
        )
        warnings.warn(
            f"method={method!r}: {stopped} of {samples} paths reached the radius with a fixed "
            f"step, {advice}",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    return result


def sample_paths(request: Request, width: int | None, method: str) -> xr.Dataset:
    """Sample the paths of a request: of the chain with a width, and of the limit without."""
    if width is not None:
        task, parameters = task_of(request, "chain", width), {"width": width}
        start = partial(process_of, request, task)
        return run(request, start, path_chunk(request), False, "chain", parameters)
    task = task_of(request, "sde", None)
    if method == "clock":
        return run_clock(request, task, False, {})
    start = partial(process_of, request, task)
    return run(request, start, path_chunk(request), False, "sde", {})


def _march(
    request: Request, paths: LimitProcess, keep: Keep, kept: Array, tick: Callable[[int], None]
) -> None:
    """Take all steps by torchsde."""
    march(request, paths, keep, kept, tick, partial(_sdeint, paths))


def _torchsde_chunk(request: Request) -> int:
    if by_torch_on_cpu(request):
        return path_chunk(request)
    m = request.tokens
    per_sample = request.dtype.itemsize * m * m * (14.0 + len(request.saved))
    smallest, multiple = _SMALLEST_ENTRIES // m**2, 1 if by_library(request) else LANES
    preferred = max(1, _PREFERRED_ENTRIES // m**2)
    return chunk_size(request, per_sample, preferred, multiple, smallest)


_probing = threading.Lock()
_probes = 0
_before: ExitStack | None = None


@contextmanager
def _generator_put_back(accelerators: list[torch.device]) -> Iterator[None]:
    """Restore torch's global generator, from which torchsde draws when it probes the system.

    Calls may overlap on threads: the first to enter saves the state, the last to leave restores it.
    """
    global _probes, _before
    with _probing:
        if _probes == 0:
            _before = ExitStack()
            _before.enter_context(torch.random.fork_rng(devices=accelerators))
        _probes += 1
    try:
        yield
    finally:
        with _probing:
            _probes -= 1
            if _probes == 0 and _before is not None:
                _before.close()
                _before = None


def count_steps(horizon: float, step: float) -> int:
    """Return ``horizon / step`` as an integer.

    Raises
    ------
    ValueError
        If one is not positive, or the horizon is not a multiple of the step.
    """
    check_positive("horizon", horizon)
    check_positive("step", step)
    ratio = min(float(horizon) / float(step), 1e300)
    steps = round(ratio)
    if steps < 1 or abs(ratio - steps) > 1e-6:
        nearest = horizon / max(1, steps)
        raise ValueError(
            f"step={step!r}: horizon={horizon!r} is not a multiple of it; "
            f"the nearest step that divides it is {nearest:.12g}"
        )
    return steps


class _System:
    """The limit as torchsde sees it, with time in steps and our own Brownian motion."""

    noise_type = "general"
    sde_type = "ito"
    levy_area_approximation = "none"

    def __init__(self, process: LimitProcess) -> None:
        self._process = process
        self.start = process.flat_state()
        self.shape = process.brownian_shape()

    def f_and_g_prod(self, t: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return drift times the step, and the noise of Brownian increments v."""
        return self._process.drift_and_noise(y, v, round(float(t)))

    def __call__(self, start: Tensor, end: Tensor) -> Tensor:
        """Return the Brownian increments of one whole step."""
        return self._process.increments(round(float(start)))


def _sdeint(process: LimitProcess, begin: int, end: int) -> None:
    """Take the steps begin, ..., end - 1 by torchsde's Euler scheme."""
    system = _System(process)
    with torch.no_grad():
        states = torchsde.sdeint(
            system,
            system.start,
            torch.tensor([begin, end], dtype=torch.float64),
            bm=system,
            method="euler",
            dt=1.0,
        )
    process.set_state(states[-1])
    process.finish(end * process.task.dt)
