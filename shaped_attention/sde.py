"""The limiting SDE, integrated by torchsde's Euler scheme on a factor of the covariance.

The state is F with V = F F^T (`shaped_attention.blocks.base` has the equation), so V is positive
semidefinite by construction, also when it is singular, and nothing larger than m x m is formed.
One step from F with step h and Brownian increments dZ:

1. the part of the drift that raises the rank of V is applied first, V -> V' = flow(V, h), and
   R is a triangular factor of V' (R = F if no block has such a part);
2. F' = R + h b_F(R) + R (sqrt(k) / 2) dZ_1 + (the blocks' further noise at R).

Seen by torchsde this is an Euler step with the drift (R - F) / h + b_F(R) and the noise taken at R,
which are functions of F and h; the splitting changes neither the weak order 1 nor the limit.

Time is counted in steps, which makes torchsde's clock exact (dt = 1), and its Brownian motion is
replaced by increments keyed by (seed, sample, step): see `shaped_attention.draws`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torchsde
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention import ensemble as en
from shaped_attention.blocks.base import Layer, check_positive, symmetric
from shaped_attention.blocks.branch import semidefinite_cholesky
from shaped_attention.covariance import factor
from shaped_attention.draws import Draws, stream_key
from shaped_attention.kernels.jit import LANES
from shaped_attention.kernels.sde import (
    fill_increments,
    freeze_stopped,
    linear_noise,
    multiply_factors,
)
from shaped_attention.results import make_result

_PREFERRED_CHUNK = 1024


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
        at the first grid time with |V| >= radius.
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
    """
    steps = count_steps(horizon, step)
    request = en.make_ensemble(
        layer, v0, width=None, steps=steps, dt=horizon / steps, samples=samples, seed=seed,
        times=times, save_every=save_every, radius=radius, device=device, dtype=dtype,
        chunk=chunk, memory=memory,
    )  # fmt: skip
    m = request.tokens
    compiled = request.compiled_device and all(block.compiled_sde(m) for block in request.blocks)
    per_sample = request.dtype.itemsize * m * m * (14.0 + len(request.saved))
    size = en.chunk_size(request, per_sample, _PREFERRED_CHUNK, LANES)

    def simulate(
        first: int,
        count: int,
        v: NDArray[np.float64],
        stopping: NDArray[np.float64],
        tick: Callable[[], None],
    ) -> None:
        system: TileSystem | TorchSystem
        system = (
            TileSystem(request, first, count) if compiled else TorchSystem(request, first, count)
        )
        states = _sdeint(system, request, tick)
        for i in range(len(request.saved)):
            v[i] = en.gram(system.factors(states[i]))
        stopping[:] = system.stopping_times(states[-1])

    # torchsde probes the system with numbers from torch's global generator; it is put back.
    accelerators = [request.device] if request.device.type == "cuda" else []
    with torch.random.fork_rng(devices=accelerators):
        v, stopping = en.run_chunks(request, size, simulate, progress, "sde")
    return make_result("sde", request, v, stopping, {"horizon": horizon, "step": step})


def count_steps(horizon: float, step: float) -> int:
    """``horizon / step`` as a whole number.

    Raises
    ------
    ValueError
        If one is not positive, or the horizon is not a multiple of the step.
    """
    check_positive("horizon", horizon)
    check_positive("step", step)
    steps = round(horizon / step)
    if steps < 1 or abs(horizon / step - steps) > 1e-6:
        nearest = horizon / max(1, steps)
        raise ValueError(
            f"step={step!r}: horizon={horizon!r} is not a multiple of it; "
            f"the nearest step that divides it is {nearest:.12g}"
        )
    return steps


class TileSystem:
    """The SDE as torchsde sees it, on tiles: the state is (tiles, m * m * LANES)."""

    noise_type = "general"
    sde_type = "ito"

    def __init__(self, request: en.Ensemble, first: int, count: int) -> None:
        m = request.tokens
        self.request, self.first, self.count = request, first, count
        self.key = stream_key(request.seed, "sde")
        self.start = en.to_tiles(factor(request.v0), count)
        self.rows = _noise_rows(request)
        self.noise_rows = sum(self.rows) + m * (m + 1) // 2
        self.stopped_at = np.full((len(self.start), LANES), np.inf)
        self._flowing = any(block.has_flow for block in request.blocks)
        self._flow_end = np.empty_like(self.start) if self._flowing else self.start
        self._multiplier = np.empty_like(self.start)
        self._drift = np.empty_like(self.start)
        self._noise = np.empty_like(self.start)
        self._increments = np.empty((len(self.start), self.noise_rows + 1, LANES))

    def initial(self) -> Float[Tensor, "tiles state"]:
        """The state at time 0."""
        return torch.from_numpy(self.start).flatten(1)

    def increments(self, step: int) -> Float[Tensor, "tiles noise"]:
        """Brownian increments of one step: first the common noise, then each block's."""
        scale = math.sqrt(self.request.dt)
        fill_increments(self._increments, self.noise_rows, scale, self.key, self.first, step)
        return torch.from_numpy(self._increments).flatten(1)

    def f_and_g_prod(
        self, t: Tensor, y: Float[Tensor, "tiles state"], v: Float[Tensor, "tiles noise"]
    ) -> tuple[Tensor, Tensor]:
        """Drift times the step, and noise; both zero for stopped paths."""
        request = self.request
        h, m = request.dt, request.tokens
        F = y.numpy().reshape(self.start.shape)
        dZ = v.numpy().reshape(self._increments.shape)
        self._drift[:] = 0.0
        R = F
        if self._flowing:
            R = self._flow_end
            R[:] = F
            for block in request.blocks:
                if block.has_flow:
                    block.flow_tiles(R, h)
            np.subtract(R, F, out=self._drift)
        k = sum(block.linear_rate for block in request.blocks)
        linear_noise(R, dZ, self._multiplier, self._drift, k, h)
        row = m * (m + 1) // 2
        for block, size in zip(request.blocks, self.rows, strict=True):
            block.sde_tiles(R, dZ, row, self._multiplier, self._drift, h)
            row += size
        multiply_factors(R, self._multiplier, self._noise)
        freeze_stopped(
            F, self._drift, self._noise, self.stopped_at, request.radius, float(t) * request.dt
        )
        return torch.from_numpy(self._drift).flatten(1), torch.from_numpy(self._noise).flatten(1)

    def factors(self, y: Float[Tensor, "tiles state"]) -> NDArray[np.float64]:
        """The factors F (count, m, m) of a state."""
        return en.from_tiles(y.numpy().reshape(self.start.shape), self.count)

    def stopping_times(self, last: Tensor) -> NDArray[np.float64]:
        """When each path stopped, given the state at the horizon."""
        F = last.numpy().reshape(self.start.shape)
        end = self.request.steps * self.request.dt
        freeze_stopped(F, self._drift, self._noise, self.stopped_at, self.request.radius, end)
        return self.stopped_at.reshape(-1)[: self.count]


class TorchSystem:
    """The SDE as torchsde sees it, in torch on any device: the state is (count, m * m)."""

    noise_type = "general"
    sde_type = "ito"

    def __init__(self, request: en.Ensemble, first: int, count: int) -> None:
        m, device = request.tokens, request.device
        self.request, self.count = request, count
        self.key = stream_key(request.seed, "sde")
        self.samples = torch.arange(first, first + count, device=device)
        self.rows = _noise_rows(request)
        self.noise_rows = sum(self.rows) + m * (m + 1) // 2
        self.stopped_at = torch.full((count,), torch.inf, dtype=torch.float64, device=device)

    def initial(self) -> Float[Tensor, "B state"]:
        """The state at time 0."""
        start = torch.tensor(
            factor(self.request.v0), dtype=self.request.dtype, device=self.request.device
        )
        return start.flatten().expand(self.count, -1).contiguous()

    def increments(self, step: int) -> Float[Tensor, "B noise"]:
        """Brownian increments of one step: first the common noise, then each block's."""
        draws = Draws(self.key, self.samples, step, 0, self.request.dtype)
        return math.sqrt(self.request.dt) * draws.normal(1, self.noise_rows)[:, 0]

    def f_and_g_prod(
        self, t: Tensor, y: Float[Tensor, "B state"], v: Float[Tensor, "B noise"]
    ) -> tuple[Tensor, Tensor]:
        """Drift times the step, and noise; both zero for stopped paths."""
        request = self.request
        h, m = request.dt, request.tokens
        F = y.unflatten(1, (m, m))
        R = F
        flowing = [block for block in request.blocks if block.has_flow]
        if flowing:
            V = F @ F.mT
            for block in flowing:
                V = block.flow(V, h)
            R = semidefinite_cholesky(V)
        k = sum(block.linear_rate for block in request.blocks)
        i, j = torch.tril_indices(m, m, device=y.device)
        lower = v.new_zeros(len(v), m, m)
        lower[:, i, j] = v[:, : len(i)]
        lower.diagonal(dim1=-2, dim2=-1).mul_(math.sqrt(0.5))
        noise = 0.5 * math.sqrt(k) * (R @ symmetric(lower))
        drift = (R - F) - h * k * (m + 1) / 8.0 * R
        row = len(i)
        for block, size in zip(request.blocks, self.rows, strict=True):
            part = block.factor_drift(R)
            drift = drift if part is None else drift + h * part
            part = block.factor_noise(R, v[:, row : row + size])
            noise = noise if part is None else noise + part
            row += size
        moving = self._moving(F, float(t) * h)[:, None, None]
        zero = torch.zeros((), dtype=y.dtype, device=y.device)
        return (
            torch.where(moving, drift, zero).flatten(1),
            torch.where(moving, noise, zero).flatten(1),
        )

    def _moving(self, F: Float[Tensor, "B m m"], time: float) -> Tensor:
        """Record which paths are outside the radius at this time; the others move on."""
        outside = torch.linalg.matrix_norm(F @ F.mT) >= self.request.radius
        self.stopped_at = torch.where(outside, self.stopped_at.clamp(max=time), self.stopped_at)
        return self.stopped_at.isinf()

    def factors(self, y: Float[Tensor, "B state"]) -> NDArray[np.float64]:
        """The factors F (count, m, m) of a state."""
        m = self.request.tokens
        return y.unflatten(1, (m, m)).double().cpu().numpy()

    def stopping_times(self, last: Tensor) -> NDArray[np.float64]:
        """When each path stopped, given the state at the horizon."""
        m = self.request.tokens
        self._moving(last.unflatten(1, (m, m)), self.request.steps * self.request.dt)
        return self.stopped_at.cpu().numpy()


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


def _noise_rows(request: en.Ensemble) -> list[int]:
    return [block.noise_size(request.tokens) for block in request.blocks]
