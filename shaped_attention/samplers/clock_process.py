"""Paths of the limit that keep their own time: they take steps as short as their state requires.

A path hits every point of the grid 0, dt, ..., T, so the stored times, schedules and continued runs
are those of a fixed step. Between two points the rest of the way is divided into equal parts of
about dt / (1 + speed), again after each step. The random numbers of a path are keyed by the number
of steps that it has taken, so neither chunks nor the remaining paths change it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics.clock_tiles import advance_clock
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.numerics.one_thread import one_thread
from shaped_attention.numerics.tiles import LARGEST_FACTOR, MODERATE_FACTOR
from shaped_attention.samplers.clock_step import NEAR, SHIFT, clock_speed, clock_step, norm_spread
from shaped_attention.samplers.task import Task, covariances
from shaped_attention.samplers.torch_process import completed

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_BURST = 16
"""Steps after which the paths that still have to move are gathered again."""

_SLICE = 0.05
"""Seconds after which `moves` yields."""


class ClockProcess:
    """Paths of the limit with their own times.

    Attributes
    ----------
    samples
        Numbers of the paths (count,), in [0, 2^32).
    state
        Factors (count, m, m).
    grid, left
        Number of the last grid point, and time left to the next one (count,).
    taken
        Number of steps taken (count,).
    alive, stopped_at, largest
        1.0 where a path moves, stopping times, and the largest speed before a step (count,).
    """

    def __init__(
        self,
        task: Task,
        samples: Integers,
        start: Array,
        grid: Integers | int = 0,
        left: Array | None = None,
        taken: Integers | None = None,
    ) -> None:
        """Create paths with numbers `samples` and factors `start` (count, m, m)."""
        self.task, self.samples, count = task, np.asarray(samples, dtype=np.int64), len(start)
        self.state = np.array(start, dtype=np.float64, order="C")
        self.grid = np.array(np.broadcast_to(grid, (count,)), dtype=np.int64)
        self.left = np.full(count, task.dt) if left is None else left.copy()
        self.taken = np.zeros(count, dtype=np.int64) if taken is None else taken.copy()
        self.alive, self.stopped_at = np.ones(count), np.full(count, np.inf)
        self.largest = np.zeros(count)

    @property
    def times(self) -> Array:
        """Times of the paths (count,)."""
        return self.grid * self.task.dt + (self.task.dt - self.left)

    def stop(self, stopping_times: Array) -> None:
        """Mark the paths that have stopped already; they do not move."""
        self.stopped_at[:] = stopping_times
        self.alive[:] = np.isinf(stopping_times)

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,)."""
        return self.stopped_at

    def factors(self) -> Array:
        """Return the state (count, 1, m, m)."""
        return self.state[:, None]

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        return covariances(self.factors())

    def step(self) -> None:
        """Take one step with each path that has neither stopped nor arrived at the end."""
        self._advance(self.task.steps, self._nowhere, self._nothing, 1, 1)

    def moves(self, end: int, saved: Sequence[int], stored: Array) -> Iterator[None]:
        """Move to a grid point, yielding now and then, and store the factors at some grid points.

        `stored` (saved, count, m, m) is filled for the grid points `saved`; a path that stops keeps
        its factor.
        """
        slots = self._nowhere.copy()
        slots[np.asarray(saved, dtype=np.int64)] = np.arange(len(saved))
        for slot, point in enumerate(saved):
            stored[slot, self.grid == point] = self.state[self.grid == point]
        budget = 1
        while True:
            began = time.perf_counter()
            more = self._advance(end, slots, stored, _BURST, budget)
            budget = max(1, int(budget * _SLICE / max(time.perf_counter() - began, 1e-9)))
            yield
            if not more:
                break
        for slot, point in enumerate(saved):
            ended = (self.alive < 0.5) & (point * self.task.dt >= self.times)
            stored[slot, ended] = self.state[ended]

    @cached_property
    def _nowhere(self) -> Integers:
        return np.full(self.task.steps + 1, -1, dtype=np.int64)

    @cached_property
    def _nothing(self) -> Array:
        return np.zeros((1, 1, *self.state.shape[1:]))

    def _advance(self, end: int, slots: Integers, stored: Array, burst: int, budget: int) -> bool:
        """Move on, and return whether some paths have not arrived at the grid point `end`."""
        task, x = self.task, self.task.compiled_clock
        flat = self.state.reshape(len(self.state), -1)
        copies = stored.reshape(*stored.shape[:2], -1)
        return bool(
            advance_clock(
                x.code, x.ranges, x.table, x.keys, x.constant_rows, x.constants, x.outputs,
                x.parts[:1], x.rows, flat, self.left, self.grid, self.taken, self.alive,
                self.stopped_at, self.largest, self.samples, task.radius, task.dt, SHIFT, NEAR,
                end, slots, copies, burst, budget,
            )
        )  # fmt: skip


class SlowClock(ClockProcess, ABC):
    """The same paths where tiles do not apply: three methods do the work of a step."""

    @abstractmethod
    def speed(self, k: Integers, point: int) -> Array:
        """Return the speed of the paths k, with the parameters at a grid point."""

    @abstractmethod
    def spread(self, k: Integers, point: int) -> Array:
        """Return the variance rate of log |V| of the paths k, with those parameters."""

    @abstractmethod
    def stepped(self, k: Integers, lengths: Array, point: int) -> Array:
        """Return the factors of the paths k after steps of given lengths."""

    def _advance(self, end: int, slots: Integers, stored: Array, burst: int, budget: int) -> bool:
        for _ in range(budget * burst):
            active = np.flatnonzero((self.alive > 0.5) & (self.grid < end))
            if not len(active):
                return False
            point = 0
            if self.task.scheduled:
                point = int(self.grid[active].min())
                active = active[self.grid[active] == point]
            self._step(active, point, slots, stored)
        return True

    def _step(self, k: Integers, point: int, slots: Integers, stored: Array) -> None:
        """Take a step with the paths k."""
        task, now = self.task, self.times[k]
        speed = self.speed(k, point)
        self.largest[k] = np.maximum(self.largest[k], speed)
        pieces = np.maximum(np.floor(self.left[k] * (1.0 + speed) / task.dt + 0.5), 1.0)
        lengths = self.left[k] / pieces
        new = self.stepped(k, lengths, point)
        size = np.abs(new).sum((-2, -1))
        overflowing = ~(size < LARGEST_FACTOR)
        broken = np.isnan(size) & (np.abs(self.state[k]).sum((-2, -1)) < MODERATE_FACTOR)
        stops = np.where(broken, np.nan, now)
        self.alive[k[overflowing]], self.stopped_at[k[overflowing]] = 0.0, stops[overflowing]
        moving, arrived = ~overflowing, pieces == 1.0
        k, arrived, lengths, now = k[moving], arrived[moving], lengths[moving], now[moving]
        self.state[k] = new[moving]
        self.taken[k] += 1
        self.grid[k[arrived]] += 1
        self.left[k] = np.where(arrived, task.dt, self.left[k] - lengths)
        now = np.where(arrived, self.grid[k] * task.dt, now + lengths)
        trace = np.einsum("kij,kij->k", self.state[k], self.state[k])
        outside = trace >= NEAR * task.radius
        if outside.any():
            factor = self.state[k[outside]]
            norms = np.linalg.norm(factor @ factor.swapaxes(-1, -2), axis=(-2, -1))
            deviation = np.sqrt(self.spread(k[outside], point) * lengths[outside])
            outside[outside] = norms >= task.radius * np.exp(-SHIFT * deviation)
            self.alive[k[outside]], self.stopped_at[k[outside]] = 0.0, now[outside]
        there = k[arrived & ~outside]
        there = there[slots[self.grid[there]] >= 0]
        stored[slots[self.grid[there]], there] = self.state[there]


class TorchClock(SlowClock):
    """Paths moved by the descriptions themselves, on any device and in any precision.

    All paths are evaluated, also those that wait, and at least `size`: the order in which torch
    adds numbers can depend on the shape of a batch.
    """

    def __init__(
        self, *arguments: Any, device: torch.device, dtype: torch.dtype, size: int = 1
    ) -> None:
        """Create paths as `ClockProcess` does."""
        super().__init__(*arguments)
        self.device, self.dtype, self._size = device, dtype, max(size, len(self.state))

    def _parameters(self, point: int) -> list[Any]:
        return [self.task.parameters(point, layer) for layer in range(len(self.task.pattern))]

    def _double(self) -> Tensor:
        # In double precision: V^2 overflows in single.
        return torch.tensor(completed(self.state, self._size))

    def speed(self, k: Integers, point: int) -> Array:
        """Return the speed of the paths k."""
        found = clock_speed(self.task.pattern, self._parameters(point), self._double())
        return found[:, 0, 0].numpy()[k]

    def spread(self, k: Integers, point: int) -> Array:
        """Return the variance rate of log |V| of the paths k."""
        found = norm_spread(self.task.pattern, self._parameters(point), self._double())
        return found[:, 0, 0].numpy()[k]

    def stepped(self, k: Integers, lengths: Array, point: int) -> Array:
        """Return the factors of the paths k after steps of given lengths."""
        first, last = int(self.samples[0]), int(self.samples[0]) + self._size
        numbers = torch.arange(first, last, device=self.device)
        steps = torch.tensor(completed(self.taken, self._size), device=self.device)
        step = np.zeros(self._size)
        step[k] = lengths
        places: dict[tuple[int, ...], TorchNumbers] = {}

        def at(place: tuple[int, ...]) -> TorchNumbers:
            return places.setdefault(
                place,
                TorchNumbers(self.task.keys, numbers, steps, place, self.dtype, 1.0),
            )

        factors = self._double().to(self.device, self.dtype)
        size = torch.tensor(step, dtype=self.dtype, device=self.device)[:, None, None]
        new = clock_step(self.task.pattern, self._parameters(point), factors, size, at)
        return new.double().cpu().numpy()[k]


class BlasClock(SlowClock):
    """Paths with large matrices, moved by library routines."""

    def speed(self, k: Integers, point: int) -> Array:
        """Return the speed of the paths k."""
        return self._rate(0, k, point)

    def spread(self, k: Integers, point: int) -> Array:
        """Return the variance rate of log |V| of the paths k."""
        return self._rate(2, k, point)

    def _rate(self, program: int, k: Integers, point: int) -> Array:
        return self._run(program, k, np.zeros(len(k)), point).reshape(len(k))

    def stepped(self, k: Integers, lengths: Array, point: int) -> Array:
        """Return the factors of the paths k after steps of given lengths."""
        return self._run(1, k, lengths, point)

    def _run(self, program: int, k: Integers, lengths: Array, point: int) -> Array:
        plan, inputs = self.task.clock_plans[program], [self.state[k], lengths[:, None, None]]
        with one_thread(), np.errstate(all="ignore"):
            (result,) = plan.run(inputs, self.samples[k], self.taken[k], row=point)
        return result
