"""Compiled code on a CUDA device: each thread moves a path, many steps in a call."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from shaped_attention.compiler.ptx import available
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.device_code import DeviceSteps
from shaped_attention.numerics.emission import largest_factor
from shaped_attention.samplers.memory import chunk_size
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    PREFERRED_ON_DEVICE,
    Array,
    Batch,
    CompiledStepper,
    Mask,
)
from shaped_attention.samplers.task import Task

MOST_TOKENS = 8
"""Most tokens whose step fits into the registers and the stack of a thread."""


def stepper_of(spec: Specification, task: Task) -> DeviceStepper | None:
    """Return compiled code on a CUDA device for few tokens and steps of equal length."""
    fits = spec.tokens <= MOST_TOKENS and task.method == "direct" and not task.overrides
    if spec.eager or not fits or spec.device.type != "cuda" or not available():
        return None
    return DeviceStepper(task, spec.device)


class DeviceStepper(CompiledStepper):
    """The chain, and the limit with a fixed step; the state is a tensor (paths, entries)."""

    name: ClassVar[str] = "compiled code on the device"
    host_waits = False
    together = 1

    def __init__(self, task: Task, device: torch.device) -> None:
        super().__init__(task)
        self.largest_factor, self._device = largest_factor(task.dtype), device
        self._dtype = getattr(torch, task.dtype)
        self.code = DeviceSteps(
            task.programs, task.keys.key, task.depths, task.dtype, task.groups, device
        )

    def chunk(self, spec: Specification) -> int:
        """Return how many paths of a run move together."""
        return chunk_size(spec, self.bytes_of_one(spec), PREFERRED_ON_DEVICE)

    def array(self, values: NDArray[Any]) -> Tensor:
        """Return a tensor on the device."""
        return torch.tensor(values, device=self._device)

    def on_host(self, values: Tensor) -> NDArray[Any]:
        """Return an array of numpy; the host waits for the device."""
        return values.cpu().numpy()

    def arranged(self, factors: Array) -> Tensor:
        """Return the factors of a path one after the other."""
        flat = factors.reshape(len(factors), -1)
        return torch.tensor(flat, dtype=self._dtype, device=self._device)

    def factors(self, state: Tensor) -> Array:
        """Return the factors (rows, groups, m, c) in double precision."""
        shape = (-1, self.task.groups, self.task.tokens, self.task.columns)
        return state.double().cpu().numpy().reshape(shape)

    def advance(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        """Take at most `budget` steps of all paths, which are at one grid point."""
        task, begin = self.task, int(batch.grid[moves][0])
        ends = min(begin + budget, end)
        self.code.advance(
            batch.state, batch.alive, batch.stopped_at, task.radius, task.dt, batch.first, begin,
            ends, task.width is None,
        )  # fmt: skip
        batch.grid[moves] = batch.taken[moves] = ends
        return ends == begin + budget
