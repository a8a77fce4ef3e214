"""The limiting SDE, integrated by torchsde.

torchsde's Euler scheme moves a factor of the covariance; `shaped_attention.euler` has the step.
Time is counted in steps, which makes torchsde's clock exact (dt = 1), and its Brownian motion is
replaced by increments keyed by (seed, sample, step): see `shaped_attention.draws`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
import torchsde
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention import ensemble as en
from shaped_attention.blocks.base import Layer, check_limit
from shaped_attention.checks import check_positive
from shaped_attention.euler import TileSystem, TorchSystem, limit_system
from shaped_attention.kernels.jit import LANES
from shaped_attention.results import make_result

_PREFERRED_ENTRIES = 2**17
"""Entries of the factors in a chunk: enough to hide torchsde's cost per step, and in the cache."""


_SMALLEST_ENTRIES = 2**14
"""Below, torchsde's interpreter time outweighs what a second thread computes (measured)."""


def integrate_sde(
    layer: Layer,
    v0: ArrayLike,
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
    memory: int = en.MEMORY_BUDGET,
    progress: bool | None = None,
) -> xr.Dataset:
    """Sample the limit of the covariances, dV = b(V) dt + Sigma(V)^{1/2} dB, by Euler's scheme.

    Parameters
    ----------
    layer, v0, samples, seed, radius, device, dtype, chunk, memory, progress
        As in `shaped_attention.simulate_chain`. Solutions can explode in finite time: a path stops
        at the first grid time with |V| >= radius. The fixed step decides how many do, and makes
        paths explode that cannot: compare with a quarter of the step.
    horizon
        Last time T > 0; a network of width n and depth L corresponds to T = L / n.
    step
        Step of the scheme, positive; the horizon must be a multiple of it.
    times
        Times to store, multiples of the step in [0, T]; by default the first and the last.
    save_every
        Store every so many steps, and the last, instead.

    Returns
    -------
    xarray.Dataset as from `shaped_attention.simulate_chain`.

    Raises
    ------
    ValueError
        If an argument is outside its range; the sentence names it.

    Warns
    -----
    UserWarning
        If one step covers the whole horizon.
    """
    steps = count_steps(horizon, step)
    horizon, step = float(horizon), float(step)
    check_limit(layer)
    if steps == 1:
        warnings.warn(
            f"step={step!r}: one Euler step covers the whole horizon, so that the step decides "
            "the law at its end; smaller steps approach the limit",
            UserWarning,
            stacklevel=2,
        )
    request = en.make_ensemble(
        layer, v0, width=None, steps=steps, dt=horizon / steps, samples=samples, seed=seed,
        times=times, save_every=save_every, radius=radius, device=device, dtype=dtype,
        chunk=chunk, memory=memory,
    )  # fmt: skip
    m = request.tokens
    per_sample = request.dtype.itemsize * m * m * (14.0 + len(request.saved))
    smallest = _SMALLEST_ENTRIES // m**2
    size = en.chunk_size(request, per_sample, _PREFERRED_ENTRIES // m**2, LANES, smallest)

    def simulate(
        first: int,
        count: int,
        v: NDArray[np.float64],
        stopping: NDArray[np.float64],
        tick: Callable[[], None],
    ) -> None:
        system = limit_system(request, first, count)
        states = _sdeint(system, request, tick)
        for i in range(len(request.saved)):
            v[i] = en.gram(system.factors(states[i]))
        stopping[:] = system.stopping_times(states[-1])

    accelerators = [request.device] if request.device.type == "cuda" else []
    with _generator_put_back(accelerators):
        v, stopping = en.run_chunks(request, size, simulate, progress, "sde")
    return make_result("sde", request, v, stopping, {"horizon": horizon, "step": step})


_probing = threading.Lock()
_probes = 0
_before: ExitStack | None = None


@contextmanager
def _generator_put_back(accelerators: list[torch.device]) -> Iterator[None]:
    """Put torch's global generator back, from which torchsde probes the system.

    Calls may overlap on threads: the first one in saves the state, the last one out restores it.
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
    """``horizon / step`` as a whole number.

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


class _Increments:
    """The Brownian motion that torchsde asks for its increments, one whole step at a time."""

    levy_area_approximation = "none"

    def __init__(self, system: TileSystem | TorchSystem, tick: Callable[[], None]) -> None:
        self._system, self._tick = system, tick
        self.shape = (len(system.initial()), system.increments(0).shape[1])

    def __call__(self, start: Tensor, end: Tensor) -> Tensor:
        self._tick()
        return self._system.increments(int(start))


def _sdeint(
    system: TileSystem | TorchSystem, request: en.Ensemble, tick: Callable[[], None]
) -> Float[Tensor, "time batch state"]:
    """States at the stored steps and, last, at the horizon."""
    wanted = sorted({0, *request.saved, request.steps})
    with torch.no_grad():
        states = torchsde.sdeint(
            system,
            system.initial(),
            torch.tensor(wanted, dtype=torch.float64),
            bm=_Increments(system, tick),
            method="euler",
            dt=1.0,
        )
    keep = [wanted.index(i) for i in request.saved] + [len(wanted) - 1]
    return states if keep == list(range(len(wanted))) else states[keep]
