"""Torch on any device and in any precision: the descriptions of the blocks move all paths at once.

With a fixed step the host never waits for the device; only a clock needs to know which paths move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from shaped_attention.blocks.parameters import Parameters, at_depth
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.emission import largest_factor
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.rows.step import State, covariance
from shaped_attention.samplers.clock_step import clock_speed, clock_step, norm_spread
from shaped_attention.samplers.memory import chunk_size, of_torch
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    PREFERRED_ON_DEVICE,
    Array,
    Numpy,
    Rate,
    SingleStepper,
    SplitStepper,
)
from shaped_attention.samplers.steps import Parts, chain_step, limit_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shaped_attention.blocks.overrides import Overrides
    from shaped_attention.samplers.paths import Paths


_TOGETHER = 64
"""Rows of a batch on the CPU."""


class TorchStepper(SingleStepper[Tensor]):
    """A stepper on tensors of torch, whose states are factors (rows, groups, m, c).

    On the CPU a batch has a fixed number of rows, `size`: the order in which torch adds numbers can
    depend on the shape of a paths.
    """

    xp: ClassVar[Any] = torch

    def __init__(self, spec: Specification, size: int | None = None) -> None:
        super().__init__(spec)
        self.device, self.dtype = spec.device, spec.dtype
        self.size = size or (_TOGETHER if self.device.type == "cpu" else 1)
        self.host_waits = self.clock
        # The speed has V^2, which overflows in single precision: by the clock only steps have it.
        precision = "float64" if self.clock else spec.precision
        self.state_dtype, self.largest_factor = getattr(torch, precision), largest_factor(precision)

    def array(self, values: Numpy) -> Tensor:
        """Return a tensor on the device."""
        return torch.tensor(values, device=self.device)

    def on_host(self, values: Tensor) -> Numpy:
        """Return an array of numpy; the host waits for the device."""
        return values.detach().cpu().numpy()

    def arranged(self, factors: Array) -> Tensor:
        """Return the factors on the device."""
        return torch.tensor(factors, dtype=self.state_dtype, device=self.device)

    def factors(self, state: Tensor) -> Array:
        """Return the factors in double precision."""
        return state.detach().double().cpu().numpy()

    def chunk(self) -> int:
        """Return how many paths move together."""
        if self.device.type == "cpu":
            return self.size
        return chunk_size(self.spec, self.bytes_of_one(), PREFERRED_ON_DEVICE)

    def rows(self, count: int) -> int:
        """Return the rows of whole batches of a fixed size."""
        return -(-count // self.size) * self.size

    def absolute_sums(self, state: Tensor) -> Tensor:
        """Return the sums of absolute entries (rows,)."""
        return state.detach().double().abs().sum((-3, -2, -1))

    def norms(self, paths: Paths, moving: Tensor, least: float) -> Tensor:
        """Return |V| (rows,); by the clock, 0 where the trace is below `least`."""
        v = covariance(State(paths.state.detach().double().unbind(1)))
        norms = torch.linalg.matrix_norm(v)
        if not self.clock:
            return norms / self.divisor
        near = v.diagonal(dim1=-2, dim2=-1).sum(-1) >= least
        return torch.where(near, norms, 0.0)

    def numbers_of(self, paths: Paths) -> Tensor:
        """Return the numbers of the paths (rows,)."""
        return torch.arange(paths.first, paths.first + len(paths.grid), device=self.device)


class DescriptionStepper(TorchStepper, SplitStepper[Tensor]):
    """The chain and the limit, by the descriptions of their blocks."""

    def bytes_of_one(self) -> float:
        """Return the bytes that a path takes on the device."""
        return of_torch(self.spec)

    def moved(self, paths: Paths, moving: Tensor, lengths: Array, point: int) -> Tensor:
        """Return the states after a step of each row."""
        spec = self.spec
        if spec.width is not None:
            layer = point % len(spec.pattern)
            new = chain_step(
                spec.pattern[layer], self._of_layer(point, layer),
                State(paths.state.unbind(1), spec.means), self._numbers(paths, point, None),
                spec.width,
            )  # fmt: skip
            return torch.stack(new.factors, dim=1)
        if self.clock:
            steps = torch.tensor(paths.taken, device=self.device)
            size = torch.tensor(lengths, dtype=self.dtype, device=self.device)
            size = torch.where(moving, size, 0.0)[:, None, None]
            factors, numbers = paths.state[:, 0].to(self.dtype), self._numbers(paths, steps, 1.0)
            return clock_step(self._parts(point), factors, size, numbers)[:, None].double()
        drift, noise = self.drift_and_noise(paths, moving, point)
        return (paths.state + drift) + noise

    def drift_and_noise(self, paths: Paths, moving: Tensor, point: int) -> tuple[Tensor, Tensor]:
        """Return drift times step, and noise."""
        spec = self.spec
        drift, noise = limit_step(
            self._parts(point), paths.state[:, 0],
            self._numbers(paths, point, math.sqrt(spec.dt)), spec.dt,
        )  # fmt: skip
        return drift[:, None], noise[:, None]

    def rate(self, name: Rate, paths: Paths, moving: Tensor, point: int) -> Array:
        """Return the speed or the spread (rows,)."""
        rate = {"speed": clock_speed, "spread": norm_spread}[name]
        return self.on_host(rate(self._parts(point), paths.state[:, 0])[:, 0, 0])

    def _parts(self, point: int) -> Parts:
        pattern = self.spec.pattern
        return Parts.of(pattern, [self._of_layer(point, k) for k in range(len(pattern))])

    def _of_layer(self, point: int, layer: int) -> list[Parameters]:
        """Return the parameters of the blocks of a layer of the pattern at a grid point."""
        spec, blocks = self.spec, self.spec.pattern[layer]
        tensors: Sequence[Overrides] = [{}] * len(blocks)
        if spec.overrides:
            from shaped_attention.blocks.overrides import at_layer

            tensors = at_layer(spec.overrides[layer], point)
        return [
            at_depth(block, point / spec.steps, of_block)
            for block, of_block in zip(blocks, tensors, strict=True)
        ]

    def _numbers(
        self, paths: Paths, step: int | Tensor, increments: float | None
    ) -> Callable[[tuple[int, ...]], TorchNumbers]:
        keys, samples, dtype = self.spec.keys, self.numbers_of(paths), self.dtype
        return cache(
            lambda place: TorchNumbers(
                keys, samples, step, dtype, place=place, increments=increments
            )
        )
