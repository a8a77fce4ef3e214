"""Compiled code on a CUDA device: each thread moves a path, many steps in a call."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from shaped_attention.compiler.ptx import available
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.device_code import DeviceSteps
from shaped_attention.samplers.memory import chunk_size
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import PREFERRED_ON_DEVICE, Array, Mask, Numpy, Stepper

if TYPE_CHECKING:
    from shaped_attention.samplers.paths import Paths

MOST_TOKENS = 8
"""Most tokens whose step fits into the registers and the stack of a thread."""


def runs_on_device(spec: Specification) -> bool:
    """Return whether compiled code runs on the device: for few tokens and equal steps."""
    fits = spec.tokens <= MOST_TOKENS and spec.method == "direct" and not spec.overrides
    return fits and not spec.eager and spec.device.type == "cuda" and available()


class DeviceStepper(Stepper[Tensor]):
    """The chain, and the limit with a fixed step; the state is a tensor (paths, entries)."""

    name: ClassVar[str] = "compiled code on the device"
    host_waits = False
    together = 1

    @cached_property
    def code(self) -> DeviceSteps:
        """The code of the steps."""
        spec = self.spec
        return DeviceSteps(
            spec.programs, spec.keys.key, spec.depths, spec.precision, spec.groups, spec.device
        )

    def chunk(self) -> int:
        """Return how many paths move together."""
        return chunk_size(self.spec, self.bytes_of_one(), PREFERRED_ON_DEVICE)

    def array(self, values: Numpy) -> Tensor:
        """Return a tensor on the device."""
        return torch.tensor(values, device=self.spec.device)

    def on_host(self, values: Tensor) -> Numpy:
        """Return an array of numpy; the host waits for the device."""
        return values.cpu().numpy()

    def arranged(self, factors: Array) -> Tensor:
        """Return the factors of a path one after the other."""
        flat = factors.reshape(len(factors), -1)
        return torch.tensor(flat, dtype=self.spec.dtype, device=self.spec.device)

    def factors(self, state: Tensor) -> Array:
        """Return the factors (rows, groups, m, c) in double precision."""
        shape = (-1, self.spec.groups, self.spec.tokens, self.spec.columns)
        return state.double().cpu().numpy().reshape(shape)

    def advance(self, paths: Paths, moves: Mask, end: int, budget: int) -> bool:
        """Take at most `budget` steps of all paths, which are at one grid point."""
        spec, begin = self.spec, int(paths.grid[moves][0])
        ends = min(begin + budget, end)
        self.code.advance(
            paths.state, paths.alive, paths.stopped_at, spec.radius, spec.dt, paths.first, begin,
            ends, spec.width is None,
        )  # fmt: skip
        paths.grid[moves] = paths.taken[moves] = ends
        return ends == begin + budget
