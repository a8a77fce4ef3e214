"""Small matrices on a CUDA device: one kernel takes many steps of all paths in a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.device.launch import (
    CudaKernel,
    Kernel,
    can_compile,
    say_slow,
)
from shaped_attention.numerics.device.source import kernel_source
from shaped_attention.numerics.tile_interpreter import Packed
from shaped_attention.samplers.memory import chunk_size, of_kernel
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import (
    NEAR,
    PREFERRED_ON_DEVICE,
    SHIFT,
    Batch,
    CompiledStepper,
    Mask,
)
from shaped_attention.samplers.steppers.torch_descriptions import DeviceArrays
from shaped_attention.samplers.task import Task

MOST_TOKENS = 64
"""Tokens up to which a warp has a path; library calls are faster from there on."""


def stepper_of(spec: Specification, task: Task) -> CompiledStepper | None:
    """Return the kernel if the run is on a CUDA device, unless torch was requested.

    Where it cannot be compiled, torch runs its operations one by one, which the log says.
    """
    if spec.device.type != "cuda" or spec.eager or not can_run(spec, task):
        return None
    if not can_compile(spec.device):
        return None
    try:
        return DeviceStepper(task, spec.device, spec.precision)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        say_slow(f"the kernel of this layer cannot be compiled ({error})")
        return None


def can_run(spec: Specification, task: Task) -> bool:
    """Return whether the kernel has what a run needs."""
    plain = not task.overrides and not task.weights
    return plain and spec.tokens <= MOST_TOKENS and task.method in ("direct", "clock")


class DeviceStepper(DeviceArrays, CompiledStepper):
    """The chain, and the limit with a fixed step or by the clock.

    A state is (rows, groups, m, c) in the device's memory. Times and steps taken are on the host.
    """

    name: ClassVar[str] = "a kernel on the device"

    def __init__(
        self, task: Task, device: torch.device, precision: str,
        compiler: Callable[[str, Packed, str, torch.device], Kernel] = CudaKernel,
    ) -> None:  # fmt: skip
        super().__init__(task)
        self.device, self.state_dtype = device, getattr(torch, precision)
        self.packed = task.compiled_clock if self.clock else task.compiled
        programs = task.clock_programs if self.clock else task.programs
        source = kernel_source(
            programs, self.packed, task.width is None and not self.clock, precision, self.clock
        )
        self.kernel = compiler(source, self.packed, precision, device)
        self.table = torch.tensor(self.packed.table, dtype=self.state_dtype, device=device)
        self.keys = torch.tensor(self.packed.keys, device=device)

    def bytes_of_one(self, spec: Specification) -> float:
        """Return the bytes that a path of a run takes on the device."""
        return of_kernel(self.task, self.state_dtype.itemsize, len(spec.saved))

    def chunk(self, spec: Specification) -> int:
        """Return how many paths of a run move together."""
        return chunk_size(spec, self.bytes_of_one(spec), PREFERRED_ON_DEVICE)

    def advance(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        """Move paths towards a grid point; return whether more steps are needed.

        By the clock, `budget` counts the steps of each path, whose times and numbers of steps come
        back to the host; with a fixed step all paths take `budget` steps in one launch.
        """
        if self.clock:
            return self._advance_clock(batch, moves, end, budget)
        begin = int(batch.grid[moves][0])
        ends = min(begin + budget, end)
        self._launch(batch, moves, [float(begin), float(ends)])
        batch.grid[moves] = batch.taken[moves] = ends
        return ends == begin + budget

    def _advance_clock(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        if "stored" not in batch.work:
            # Back on the host once the last path has arrived.
            batch.work["stored"] = self.arranged(batch.stored)
        moved = [
            torch.tensor(values, device=self.device)
            for values in (batch.left, batch.largest, batch.grid, batch.taken)
        ]
        rest = [*moved, self.array(batch.slots), batch.work["stored"], budget, SHIFT, NEAR]
        self._launch(batch, moves, [float(end), *rest])
        for values, new in zip(
            (batch.left, batch.largest, batch.grid, batch.taken), moved, strict=True
        ):
            values[:] = self.on_host(new)
        left = bool((self.on_host(batch.alive) & (batch.grid < end)).any())
        if not left:
            batch.stored[...] = self.on_host(batch.work.pop("stored"))
        return left

    def _launch(self, batch: Batch, moves: Mask, rest: list[Any]) -> None:
        task, table = self.task, self.packed.table
        alive = batch.alive.view(torch.uint8)
        first: list[Tensor] = [
            batch.state, alive, batch.stopped_at, self.array(moves.astype(np.uint8)), self.table,
            self.keys,
        ]  # fmt: skip
        shape = [float(len(alive)), float(batch.first), int(len(table) > 1), table.shape[1]]
        self.kernel(len(alive), first, [task.radius, task.dt, *shape, *rest])
