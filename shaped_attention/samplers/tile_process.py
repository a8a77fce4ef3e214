"""A chunk of paths on tiles, moved by compiled code: small matrices, on the CPU."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics import tile_interpreter, tiles
from shaped_attention.numerics.jit import LANES
from shaped_attention.samplers.task import Task, covariances

Array = NDArray[np.float64]


class TileProcess:
    """Paths on tiles, moved by compiled code on the CPU in double precision."""

    def __init__(self, task: Task, first: int, start: Array) -> None:
        """Create the paths with numbers first, ... and factors `start` (count, groups, m, c)."""
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
        """Mark the paths that have stopped already; they do not move."""
        self.stopped_at.reshape(-1)[: self.count] = stopping_times
        self.alive[:] = np.isinf(self.stopped_at)

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,)."""
        return self.stopped_at.reshape(-1)[: self.count]

    # The interface for torchsde.

    # Arrays are reused: allocating them costs more than writing to them.

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
        """Set the state from torchsde's (tiles, entries)."""
        self.state = np.ascontiguousarray(y.numpy().reshape(self.state.shape))

    def brownian_shape(self) -> tuple[int, int]:
        """Return the shape of the increments of a step."""
        return len(self.state), (self.task.compiled.normals + 1) * LANES

    def increments(self, step: int) -> Tensor:
        """Return the Brownian increments of a step (tiles, entries), valid until the next call."""
        x = self.task.compiled
        array, flat = self._increments
        tile_interpreter.draw(x.code, x.table, x.keys, x.ranges, self.first, step, array)
        return flat

    def drift_and_noise(self, y: Tensor, increments: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise, zero for stopped paths, valid until the next call."""
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
