"""One Euler step of the limit on a factor of the covariance, as torchsde sees it.

The state is F with V = F F^T (`shaped_attention.blocks.base` has the equation), so V is positive
semidefinite by construction, also when it is singular, and nothing larger than m x m is formed.
One step from F with step h and Brownian increments dZ:

1. the part of the drift that raises the rank of V is applied first, V -> V' = flow(V, h), and
   R is a triangular factor of V' (R = F if no block has such a part);
2. F' = R + h b_F(R) + R (sqrt(k) / 2) dZ_1 + (the blocks' further noise at R).

Seen by torchsde this is an Euler step with the drift (R - F) / h + b_F(R) and the noise taken at R,
which are functions of F and h; the splitting changes neither the weak order 1 nor the limit.

`TileSystem` runs the compiled faces of the blocks, `TorchSystem` the readable ones on any device;
on the same seed they give the same paths to rounding.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention import ensemble as en
from shaped_attention.blocks.base import has_compiled_sde, symmetric
from shaped_attention.covariance import factor
from shaped_attention.draws import Draws, stream_key
from shaped_attention.factors import semidefinite_cholesky
from shaped_attention.kernels.jit import LANES
from shaped_attention.kernels.sde import (
    LARGEST_FACTOR,
    fill_increments,
    freeze_stopped,
    linear_noise,
    multiply_factors,
)


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
        # The fourth root of the largest number: V, and products of two entries of V, stay finite.
        self._largest = min(LARGEST_FACTOR, torch.finfo(request.dtype).max ** 0.25)

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
        time = float(t) * h
        moving = self._moving(F, time)
        size = (F + drift + noise).double().abs().sum((-2, -1))
        overflowing = moving & ~(size < self._largest)
        self.stopped_at = torch.where(overflowing, time, self.stopped_at)
        moving = (moving & ~overflowing)[:, None, None]
        zero = torch.zeros((), dtype=y.dtype, device=y.device)
        return (
            torch.where(moving, drift, zero).flatten(1),
            torch.where(moving, noise, zero).flatten(1),
        )

    def _moving(self, F: Float[Tensor, "B m m"], time: float) -> Tensor:
        """Record which paths are outside the radius at this time; the others move on."""
        outside = en.norms(F) >= self.request.radius
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


def limit_system(request: en.Ensemble, first: int, count: int) -> TileSystem | TorchSystem:
    """The SDE for some samples: compiled if all blocks are, on the CPU in double precision."""
    m = request.tokens
    compiled = request.compiled_device and all(has_compiled_sde(b, m) for b in request.blocks)
    return (TileSystem if compiled else TorchSystem)(request, first, count)


def _noise_rows(request: en.Ensemble) -> list[int]:
    return [block.noise_size(request.tokens) for block in request.blocks]
