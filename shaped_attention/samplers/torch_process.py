"""A chunk of paths as torch tensors, moved by the descriptions themselves, on any device."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from shaped_attention.blocks.state import State, covariance
from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics import tiles
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.samplers.steps import chain_step, limit_step
from shaped_attention.samplers.task import Task, covariances

Array = NDArray[np.float64]
N = TypeVar("N", np.float64, np.int64)


class TorchProcess:
    """Paths as torch tensors, on any device and in any precision."""

    def __init__(
        self,
        task: Task,
        first: int,
        start: Array,
        device: torch.device,
        dtype: torch.dtype,
        size: int = 1,
    ) -> None:
        """Create the paths with numbers first, ... and factors `start` (count, groups, m, c).

        Copies of the first factor make them at least `size` paths, the last of which are not asked
        for: the order in which torch adds numbers can depend on the shape of a batch.
        """
        self.task, self.first, self.count = task, first, len(start)
        self.device, self.dtype = device, dtype
        whole = completed(start, max(size, self.count))
        self.samples = torch.arange(first, first + len(whole), device=device)
        self.state = torch.tensor(whole, dtype=dtype, device=device)
        self.stopped_at = torch.full((len(whole),), torch.inf, dtype=torch.float64, device=device)
        # The fourth root of the largest number keeps V and products of two of its entries finite.
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
                    task.pattern[layer], task.parameters(step, layer),
                    State(self.state.unbind(1), task.means), self._numbers(step, None), task.width,
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
        # No boolean index: the host would have to wait for the device.
        outside = self.stopped_at.isinf() & (norms(self.state.detach()) >= self.task.radius)
        self.stopped_at = torch.where(outside, time, self.stopped_at)

    def covariances(self) -> Array:
        """Return V (count, m, m)."""
        return covariances(self.factors())

    def factors(self) -> Array:
        """Return the state (count, groups, m, c) in double precision."""
        return self.state[: self.count].double().cpu().numpy()

    def stop(self, stopping_times: Array) -> None:
        """Mark the paths that have stopped already; they do not move."""
        whole = completed(stopping_times, len(self.samples))
        self.stopped_at = torch.tensor(whole, device=self.device)

    def stopping_times(self) -> Array:
        """Return the stopping time of each path (count,)."""
        return self.stopped_at[: self.count].cpu().numpy()

    def flat_state(self) -> Tensor:
        """Return the state as torchsde's (paths, entries)."""
        return self.state.flatten(1)

    def set_state(self, y: Tensor) -> None:
        """Set the state from torchsde's (count, entries)."""
        self.state = y.reshape(self.state.shape)

    @cached_property
    def _entries(self) -> int:
        return self.increments(0).shape[1]

    def brownian_shape(self) -> tuple[int, int]:
        """Return the shape of the increments of a step."""
        return len(self.samples), self._entries

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
        moderate = min(tiles.MODERATE_FACTOR, self._largest**0.5)
        broken = size.isnan() & (F.double().abs().sum((-2, -1)) < moderate)
        at = torch.where(broken, torch.nan, step * task.dt)
        self.stopped_at = torch.where(overflowing, at, self.stopped_at)
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
    """Numbers that are recorded when they are drawn."""

    def __init__(self, numbers: TorchNumbers, recorded: list[Tensor]) -> None:
        self._numbers, self._recorded = numbers, recorded

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return _Recording(self._numbers.inside(index), self._recorded)

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return normals, and record them."""
        self._recorded.append(self._numbers.normal(name, rows, columns, head))
        return self._recorded[-1]


class _Given(Numbers):
    """Recorded numbers, in the order in which they were drawn."""

    def __init__(self, increments: Tensor) -> None:
        self._increments, self._next = increments, 0

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return self

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return the next increments."""
        start, self._next = self._next, self._next + rows * columns
        return self._increments[:, start : self._next].unflatten(1, (rows, columns))


def completed(rows: NDArray[N], size: int) -> NDArray[N]:
    """Return `size` rows: the given ones, then copies of the first."""
    return np.concatenate([rows, np.repeat(rows[:1], size - len(rows), axis=0)])


def norms(state: Float[Tensor, "B g m c"]) -> Float[Tensor, " B"]:
    """Return the Frobenius norms of V in double precision: |V|^2 overflows in single precision."""
    v: Tensor = covariance(State(state.double().unbind(1)))
    return torch.linalg.matrix_norm(v)
