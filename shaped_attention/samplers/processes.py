"""A chunk of paths that moves step by step: the chain or the limit, compiled or in torch.

All three executors (tiles, library routines, torch) take the same `Task` and give the same paths to
rounding, from the same numbers. A process knows its state, how to advance it, and which paths have
stopped; it knows neither save times nor files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from shaped_attention.blocks.state import State, covariance
from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics import tiles
from shaped_attention.numerics.jit import LANES
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.samplers.chunks import chunk_size
from shaped_attention.samplers.driver import LimitProcess
from shaped_attention.samplers.large_matrices import BlasProcess
from shaped_attention.samplers.request import Request
from shaped_attention.samplers.steps import chain_step, limit_step
from shaped_attention.samplers.task import Task, covariances

Array = NDArray[np.float64]


_PREFERRED_CHUNK = 1024
"""Paths whose factors stay in the second-level cache for the usual m."""

_SMALLEST_ENTRIES = 2**11
"""Below, the interpreter time of a chunk outweighs what a second thread computes (measured)."""


FEWEST_LARGE_TOKENS = 96
"""Tokens from which on library routines for one sample are faster than tiles (measured)."""

_PREFERRED_ENTRIES = 2**15
"""Entries of V in a chunk of large matrices."""


def path_chunk(request: Request) -> int:
    """Return how many paths of a request move together."""
    m = request.tokens
    per_sample = 8.0 * 40 * m * m * request.groups + 16 * m * 64
    if by_library(request):
        return chunk_size(request, per_sample, max(1, _PREFERRED_ENTRIES // m**2), 1)
    smallest = _SMALLEST_ENTRIES // m**2
    return chunk_size(request, per_sample, _PREFERRED_CHUNK, LANES, smallest)


def by_library(request: Request) -> bool:
    """Whether library routines take the samples of a request, one by one."""
    return request.compiled_device and request.tokens >= FEWEST_LARGE_TOKENS


def executor(tokens: int) -> str:
    """Return what runs the programs of that many tokens, in float64 on the CPU."""
    if tokens >= FEWEST_LARGE_TOKENS:
        return "BLAS and LAPACK, one sample after the other,"
    return "compiled code on tiles"


def process_of(request: Request, task: Task, first: int, count: int) -> LimitProcess:
    """Return some paths of a request at their start, with the executor that it asks for."""
    start = request.start_factors(first, count, task.groups, task.columns)
    process: LimitProcess
    if by_library(request):
        process = BlasProcess(task, first, start)
    elif request.compiled_device:
        process = TileProcess(task, first, start)
    else:
        process = TorchProcess(task, first, start, request.device, request.dtype)
    if request.resumed:
        process.stop(request.resumed.stopping_time[first : first + count])
    return process


class TileProcess:
    """Paths on tiles, moved by compiled code on the CPU in double precision."""

    def __init__(self, task: Task, first: int, start: Array) -> None:
        """Start paths number first, ... at `start` (count, groups, m, c)."""
        self.task, self.first, self.count = task, first, len(start)
        tile_count = -(-self.count // LANES)
        size = int(np.prod(start.shape[1:]))
        padded = np.zeros((tile_count * LANES, size))
        padded[: self.count] = start.reshape(self.count, size)
        self.state = np.ascontiguousarray(padded.reshape(tile_count, LANES, size).swapaxes(1, 2))
        self.alive = np.ones((tile_count, LANES))
        self.stopped_at = np.full((tile_count, LANES), np.inf)
        self._nothing = np.zeros((tile_count, 1, LANES)), np.zeros((2, 1, 1, LANES))

    def _run(self, begin: int, end: int, mode: int, given: Array, reported: Array) -> None:
        task, x = self.task, self.task.compiled
        tiles.advance(
            x.code, x.ranges, x.table, x.keys, x.constant_rows, x.constants, x.outputs, x.parts,
            1.0 / task.groups, x.rows, self.state, self.alive, self.stopped_at, task.radius,
            task.dt, self.first, begin, end, mode, given, reported,
        )  # fmt: skip

    def advance(self, begin: int, end: int) -> None:
        """Take the steps begin, ..., end - 1."""
        mode = tiles.REPLACE if self.task.width is not None else tiles.ADD
        self._run(begin, end, mode, *self._nothing)

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        return covariances(self.factors())

    def factors(self) -> Array:
        """Return the state (count, groups, m, c)."""
        shape = (-1, self.task.groups, self.task.tokens, self.task.columns)
        return self.state.swapaxes(1, 2).reshape(shape)[: self.count]

    def stop(self, stopping_times: Array) -> None:
        """Let paths that stopped before stay where they are."""
        self.stopped_at.reshape(-1)[: self.count] = stopping_times
        self.alive[:] = np.isinf(self.stopped_at)

    def stopping_times(self) -> Array:
        """Return when each path stopped (count,)."""
        return self.stopped_at.reshape(-1)[: self.count]

    # What torchsde needs of the limit.

    # Its arrays are used again: fresh ones would cost more than what is written to them.

    @cached_property
    def _increments(self) -> tuple[Array, Tensor]:
        array = np.empty((len(self.state), self.task.compiled.normals + 1, LANES))
        return array, torch.from_numpy(array).flatten(1)

    @cached_property
    def _reported(self) -> tuple[Array, Tensor, Tensor]:
        array = np.empty((2, *self.state.shape))
        drift, noise = torch.from_numpy(array).flatten(2)
        return array, drift, noise

    def flat_state(self) -> Tensor:
        """Return the state as torchsde's (tiles, entries)."""
        return torch.from_numpy(self.state).flatten(1)

    def set_state(self, y: Tensor) -> None:
        """Take a state of torchsde's shape."""
        self.state = np.ascontiguousarray(y.numpy().reshape(self.state.shape))

    def brownian_shape(self) -> tuple[int, int]:
        """Return the shape of the increments of a step."""
        return len(self.state), (self.task.compiled.normals + 1) * LANES

    def increments(self, step: int) -> Tensor:
        """Return the Brownian increments of a step (tiles, entries), until the next call."""
        x = self.task.compiled
        array, flat = self._increments
        tiles.draw(x.code, x.table, x.keys, x.ranges, self.first, step, array)
        return flat

    def drift_and_noise(self, y: Tensor, increments: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise, until the next call; both zero for stopped paths."""
        self.set_state(y)
        given, flat = self._increments
        if increments is not flat:
            given = increments.numpy().reshape(given.shape)
        reported, drift, noise = self._reported
        self._run(step, step + 1, tiles.REPORT, given, reported)
        return drift, noise

    def finish(self, time: float) -> None:
        """Stop the paths that are outside the radius at this time."""
        tiles.check_outside(
            self.state, self.task.compiled.parts, 1.0 / self.task.groups, self.alive,
            self.stopped_at, self.task.radius, time,
        )  # fmt: skip


class TorchProcess:
    """Paths as torch tensors, on any device and in any precision: the descriptions as they are."""

    def __init__(
        self, task: Task, first: int, start: Array, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Start paths number first, ... at `start` (count, groups, m, c)."""
        self.task, self.count = task, len(start)
        self.device, self.dtype = device, dtype
        self.samples = torch.arange(first, first + self.count, device=device)
        self.state = torch.tensor(start, dtype=dtype, device=device)
        self.stopped_at = torch.full((self.count,), torch.inf, dtype=torch.float64, device=device)
        # The fourth root of the largest number: V, and products of two entries of V, stay finite.
        self._largest = min(tiles.LARGEST_FACTOR, torch.finfo(dtype).max ** 0.25)

    def _numbers(
        self, step: int, increments: float | None
    ) -> Callable[[tuple[int, ...]], TorchNumbers]:
        places: dict[tuple[int, ...], TorchNumbers] = {}

        def at(place: tuple[int, ...]) -> TorchNumbers:
            if place not in places:
                places[place] = TorchNumbers(
                    self.task.keys, self.samples, step, place, self.dtype, increments
                )
            return places[place]

        return at

    def advance(self, begin: int, end: int) -> None:
        """Take the steps begin, ..., end - 1."""
        task = self.task
        for step in range(begin, end):
            if task.width is not None:
                layer = step % len(task.pattern)
                new = chain_step(
                    task.pattern[layer], task.parameters(step, layer), State(self.state.unbind(1)),
                    self._numbers(step, None), task.width,
                )  # fmt: skip
                self._move(torch.stack(new.factors, dim=1), step)
            else:
                y = self.state.flatten(1)
                drift, noise = self.drift_and_noise(y, None, step)
                self.state = ((y + drift) + noise).reshape(self.state.shape)
                self.finish((step + 1) * task.dt)

    def _move(self, new: Tensor, step: int) -> None:
        moving = self.stopped_at.isinf()
        self.state = torch.where(moving[:, None, None, None], new, self.state)
        self.finish((step + 1) * self.task.dt)

    def finish(self, time: float) -> None:
        """Stop the paths that are outside the radius at this time."""
        # No boolean index, for which the host would wait for the device.
        outside = self.stopped_at.isinf() & (norms(self.state.detach()) >= self.task.radius)
        self.stopped_at = torch.where(outside, time, self.stopped_at)

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        return covariances(self.factors())

    def factors(self) -> Array:
        """Return the state (count, groups, m, c) in double precision."""
        return self.state.double().cpu().numpy()

    def stop(self, stopping_times: Array) -> None:
        """Let paths that stopped before stay where they are."""
        self.stopped_at = torch.as_tensor(stopping_times, device=self.device).clone()

    def stopping_times(self) -> Array:
        """Return when each path stopped (count,)."""
        return self.stopped_at.cpu().numpy()

    def flat_state(self) -> Tensor:
        """Return the state as torchsde's (count, entries)."""
        return self.state.flatten(1)

    def set_state(self, y: Tensor) -> None:
        """Take a state of torchsde's shape."""
        self.state = y.reshape(self.state.shape)

    @cached_property
    def _entries(self) -> int:
        return self.increments(0).shape[1]

    def brownian_shape(self) -> tuple[int, int]:
        """Return the shape of the increments of a step."""
        return self.count, self._entries

    def increments(self, step: int) -> Tensor:
        """Return the Brownian increments of a step (count, entries)."""
        recorded: list[Tensor] = []
        at = self._numbers(step, math.sqrt(self.task.dt))

        def recording(place: tuple[int, ...]) -> Any:
            return _Recording(at(place), recorded)

        self._limit_step(self.state[:, 0], recording, step)
        return torch.cat([x.flatten(1) for x in recorded], dim=1)

    def drift_and_noise(
        self, y: Tensor, increments: Tensor | None, step: int
    ) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise; both zero for stopped paths."""
        task = self.task
        self.set_state(y)
        self.finish(step * task.dt)
        if increments is None:
            numbers: Any = self._numbers(step, math.sqrt(task.dt))
        else:
            given = _Given(increments)

            def numbers(place: tuple[int, ...]) -> _Given:
                return given

        F = self.state[:, 0]
        drift, noise = self._limit_step(F, numbers, step)
        size = (F + drift + noise).double().abs().sum((-2, -1))
        moving = self.stopped_at.isinf()
        overflowing = moving & ~(size < self._largest)
        self.stopped_at = torch.where(overflowing, step * task.dt, self.stopped_at)
        moving = (moving & ~overflowing)[:, None]
        zero = torch.zeros((), dtype=y.dtype, device=y.device)
        return (
            torch.where(moving, drift.flatten(1), zero),
            torch.where(moving, noise.flatten(1), zero),
        )

    def _limit_step(self, F: Tensor, numbers_at: Any, step: int) -> tuple[Tensor, Tensor]:
        task = self.task
        parameters = [task.parameters(step, layer) for layer in range(len(task.pattern))]
        return limit_step(task.pattern, parameters, F, numbers_at, task.dt)


class _Recording(Numbers):
    """Numbers that are kept as they are handed out."""

    def __init__(self, numbers: TorchNumbers, recorded: list[Tensor]) -> None:
        self._numbers, self._recorded = numbers, recorded

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return _Recording(self._numbers.inside(index), self._recorded)

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return normals, and keep them."""
        self._recorded.append(self._numbers.normal(name, rows, columns, head))
        return self._recorded[-1]


class _Given(Numbers):
    """Numbers that were drawn before, in the order in which they are asked for."""

    def __init__(self, increments: Tensor) -> None:
        self._increments, self._next = increments, 0

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return the next increments."""
        start, self._next = self._next, self._next + rows * columns
        return self._increments[:, start : self._next].unflatten(1, (rows, columns))


def norms(state: Float[Tensor, "B g m c"]) -> Float[Tensor, " B"]:
    """Return the Frobenius norms of V, in double precision: |V|^2 leaves single's range."""
    v: Tensor = covariance(State(state.double().unbind(1)))
    return torch.linalg.matrix_norm(v)
