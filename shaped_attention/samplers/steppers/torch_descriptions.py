"""Torch on any device and in any precision: the descriptions of the blocks move all paths at once.

With a fixed step the host never waits for the device; only a clock needs to know which paths move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.rows.step import State, covariance
from shaped_attention.samplers.clock_step import clock_speed, clock_step, norm_spread
from shaped_attention.samplers.memory import chunk_size, of_torch
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    PREFERRED_ON_DEVICE,
    Array,
    Batch,
    Brownian,
    Clocked,
    SingleStepper,
)
from shaped_attention.samplers.steps import chain_step, limit_step
from shaped_attention.samplers.task import Task


def stepper_of(spec: Specification, task: Task) -> DescriptionStepper:
    """Return torch, which moves the paths of any run."""
    return DescriptionStepper(task, spec.device, spec.dtype)


_TOGETHER = 64
"""Rows of a batch on the CPU."""


class TorchStepper(SingleStepper):
    """A stepper on tensors of torch, whose states are factors (rows, groups, m, c).

    On the CPU a batch has a fixed number of rows, `size`: the order in which torch adds numbers can
    depend on the shape of a batch.
    """

    xp: ClassVar[Any] = torch

    def __init__(
        self, task: Task, device: torch.device, dtype: torch.dtype, size: int | None = None
    ) -> None:
        super().__init__(task)
        self.device, self.dtype = device, dtype
        self.size = size or (_TOGETHER if device.type == "cpu" else 1)
        self.host_waits = self.clock
        # The speed has V^2, which overflows in single precision: by the clock only steps have it.
        self.state_dtype = torch.float64 if self.clock else dtype
        # The fourth root of the largest number keeps V and products of two of its entries finite.
        self.largest_factor = min(self.largest_factor, torch.finfo(self.state_dtype).max ** 0.25)

    def array(self, values: NDArray[Any]) -> Tensor:
        """Return a tensor on the device."""
        return torch.tensor(values, device=self.device)

    def on_host(self, values: Tensor) -> NDArray[Any]:
        """Return an array of numpy; the host waits for the device."""
        return values.detach().cpu().numpy()

    def arranged(self, factors: Array) -> Tensor:
        """Return the factors on the device."""
        return torch.tensor(factors, dtype=self.state_dtype, device=self.device)

    def factors(self, state: Tensor) -> Array:
        """Return the factors in double precision."""
        return state.detach().double().cpu().numpy()

    def workspace(self) -> Any:
        """Return a place for what is computed once."""
        return {}

    def chunk(self, spec: Specification) -> int:
        """Return how many paths of a run move together."""
        if self.device.type == "cpu":
            return self.size
        return chunk_size(spec, self.bytes_of_one(spec), PREFERRED_ON_DEVICE)

    def rows(self, count: int) -> int:
        """Return the rows of whole batches of a fixed size."""
        return -(-count // self.size) * self.size

    def absolute_sums(self, state: Tensor) -> Tensor:
        """Return the sums of absolute entries (rows,)."""
        return state.detach().double().abs().sum((-3, -2, -1))

    def norms(self, batch: Batch, moving: Any, least: float) -> Tensor:
        """Return |V| (rows,); by the clock, 0 where the trace is below `least`."""
        v = covariance(State(batch.state.detach().double().unbind(1)))
        norms = torch.linalg.matrix_norm(v)
        if not self.clock:
            return norms / self.divisor
        near = v.diagonal(dim1=-2, dim2=-1).sum(-1) >= least
        return torch.where(near, norms, 0.0)

    def numbers_of(self, batch: Batch) -> Tensor:
        """Return the numbers of the paths (rows,)."""
        return torch.arange(batch.first, batch.first + len(batch.grid), device=self.device)


class DescriptionStepper(TorchStepper, Brownian, Clocked):
    """The chain and the limit, by the descriptions of their blocks."""

    def bytes_of_one(self, spec: Specification) -> float:
        """Return the bytes that a path of a run takes on the device."""
        return of_torch(self.task, self.dtype.itemsize, spec.eager)

    def moved(self, batch: Batch, moving: Any, lengths: Array, point: int) -> Tensor:
        """Return the states after a step of each row."""
        task = self.task
        if task.width is not None:
            layer = point % len(task.pattern)
            new = chain_step(
                task.pattern[layer], task.parameters(point, layer),
                State(batch.state.unbind(1), task.means), self._numbers(batch, point, None),
                task.width,
            )  # fmt: skip
            return torch.stack(new.factors, dim=1)
        if self.clock:
            steps = torch.tensor(batch.taken, device=self.device)
            size = torch.tensor(lengths, dtype=self.dtype, device=self.device)
            size = torch.where(moving, size, 0.0)[:, None, None]
            factors, numbers = batch.state[:, 0].to(self.dtype), self._numbers(batch, steps, 1.0)
            new = clock_step(task.pattern, self._parameters(point), factors, size, numbers)
            return new[:, None].double()
        drift, noise = self.drift_and_noise(batch, moving, None, point)
        return (batch.state + drift) + noise

    def drift_and_noise(
        self, batch: Batch, moving: Any, increments: Any, point: int
    ) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise."""
        if increments is None:
            numbers: Any = self._numbers(batch, point, math.sqrt(self.task.dt))
        else:
            of_increments = GivenNumbers(increments)

            def numbers(place: tuple[int, ...]) -> GivenNumbers:
                return of_increments

        drift, noise = self._limit_step(batch, numbers, point)
        return drift[:, None], noise[:, None]

    def increments(self, batch: Batch, step: int) -> Tensor:
        """Return the Brownian increments of a step (rows, entries)."""
        recorded: list[Tensor] = []
        at = self._numbers(batch, step, math.sqrt(self.task.dt))

        def recording(place: tuple[int, ...]) -> Numbers:
            return _RecordingNumbers(at(place), recorded)

        self._limit_step(batch, recording, step)
        return torch.cat([x.flatten(1) for x in recorded], dim=1)

    def brownian_shape(self, batch: Batch) -> tuple[int, int]:
        """Return the rows and entries of the increments of a step."""
        if "shape" not in batch.work:
            batch.work["shape"] = tuple(self.increments(batch, 0).shape)
        shape: tuple[int, int] = batch.work["shape"]
        return shape

    def speed(self, batch: Batch, moving: Any, point: int) -> Array:
        """Return by how much steps are shorter at a grid point (rows,)."""
        return self._rate(clock_speed, batch, point)

    def spread(self, batch: Batch, moving: Any, point: int) -> Array:
        """Return the variance rate of log |V| (rows,)."""
        return self._rate(norm_spread, batch, point)

    def _rate(self, rate: Callable[..., Tensor], batch: Batch, point: int) -> Array:
        values = rate(self.task.pattern, self._parameters(point), batch.state[:, 0])
        return self.on_host(values[:, 0, 0])

    def _limit_step(self, batch: Batch, numbers_at: Any, step: int) -> tuple[Tensor, Tensor]:
        parameters = self._parameters(step)
        return limit_step(
            self.task.pattern, parameters, batch.state[:, 0], numbers_at, self.task.dt
        )

    def _parameters(self, point: int) -> list[Any]:
        return [self.task.parameters(point, layer) for layer in range(len(self.task.pattern))]

    def _numbers(
        self, batch: Batch, step: int | Tensor, increments: float | None
    ) -> Callable[[tuple[int, ...]], TorchNumbers]:
        places: dict[tuple[int, ...], TorchNumbers] = {}
        samples = self.numbers_of(batch)

        def at(place: tuple[int, ...]) -> TorchNumbers:
            if place not in places:
                places[place] = TorchNumbers(
                    self.task.keys, samples, step, self.dtype, place=place, increments=increments
                )
            return places[place]

        return at


class _RecordingNumbers(Numbers):
    """Numbers that are recorded when they are drawn."""

    def __init__(self, numbers: TorchNumbers, recorded: list[Tensor]) -> None:
        self._numbers, self._recorded = numbers, recorded

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        return _RecordingNumbers(self._numbers.inside(index), self._recorded)

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return normals, and record them."""
        self._recorded.append(self._numbers.normal(name, rows, columns, head))
        return self._recorded[-1]


class GivenNumbers(Numbers):
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
